"""Heads on a BERT learn from recorded launches as by plain steps: the same losses, frozen bodies left as they are."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from regard import config
from regard.data.loader import StepBatches
from regard.examples.features import Feature, FeatureRow, pad_features
from regard.models.batch import TextBatch
from regard.models.bert import BertConfig
from regard.models.heads import (
    IGNORE_INDEX,
    FeatureTagger,
    LayerFeatures,
    MultipleChoice,
    MultipleChoiceBatch,
    SequenceClassifier,
    SequenceRegressor,
    SpanClassifier,
    TokenClassifier,
)
from regard.models.lm import LanguageModelConfig
from regard.nn import dispatch
from regard.tasks.contract import BaseTask
from regard.training.config import TrainingConfig
from regard.training.loop import Trainer

DEVICE = "cuda"
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
SMALL = {
    "layers": 2,
    "size": 64,
    "inner": 128,
    "heads": 4,
    "dropout": 0.0,
    "position": {"kind": "learned", "length": 64},
}
HEADS = {
    "classify": lambda body, frozen: SequenceClassifier(body, 3, frozen),
    "regress": lambda body, frozen: SequenceRegressor(body, 1, frozen),
    "tag": lambda body, frozen: TokenClassifier(body, 5, frozen),
    "answer": lambda body, frozen: SpanClassifier(body, frozen),
    "choose": lambda body, frozen: MultipleChoice(body, frozen),
    "gpt": lambda body, frozen: SequenceClassifier(body, 3, frozen),
    "features": lambda body, frozen: FeatureTagger(body, 5, LayerFeatures("0,2", lstm=0)),
}


class Learned(BaseTask):
    """What else the loop asks of a task is its base's."""

    fingerprint = ""

    def __init__(self) -> None: ...

    def loss(self, model: nn.Module, batch: TextBatch, carry: None) -> tuple[Tensor, None]:
        return model(batch, None, 0.0), carry

    def static_batch(self, model: nn.Module, batch: TextBatch) -> TextBatch:
        return batch.fixed()


def batches(kind: str, count: int = 3) -> list[TextBatch]:
    draw = np.random.default_rng(0)
    made = []
    for n in range(count):
        rows = [FeatureRow(draw.integers(4, 90, m).tolist(), [0] * m) for m in draw.integers(3, 15 + 8 * n, 24)]
        batch = pad_features([Feature((row,), 0) for row in rows], 0, 512)
        classes = {
            "classify": torch.from_numpy(draw.integers(0, 3, 24)),
            "regress": torch.from_numpy(draw.normal(size=24).astype(np.float32)),
            "tag": torch.where(batch.real, torch.from_numpy(draw.integers(0, 5, batch.ids.shape)), IGNORE_INDEX),
            "answer": torch.from_numpy(draw.integers(0, 3, (24, 2))),
            "choose": torch.from_numpy(draw.integers(0, 4, 6)),
        }[{"gpt": "classify", "features": "tag"}.get(kind, kind)]
        if kind == "choose":
            batch = MultipleChoiceBatch(
                batch.ids, batch.real, segments=batch.segments, groups=torch.arange(24).view(6, 4)
            )
        batch = replace(batch, classes=classes)
        made.append(batch.pin() if DEVICE == "cuda" else batch)
    return made


def learn(kind: str, fast: bool, frozen: bool, steps: int = 12) -> tuple[Tensor, Any, Trainer]:
    torch.manual_seed(0)
    body: Any = config.parse_config(BertConfig, SMALL).build(90)
    if kind == "gpt":
        body = config.parse_config(LanguageModelConfig, SMALL).body(90)
    model = HEADS[kind](body, frozen).to(DEVICE).train()
    before = {name: p.detach().clone() for name, p in model.body.named_parameters()}
    said = {"schedule": {"kind": "constant", "peak": 1e-3}, "optimiser": {"weight_decay": 0.1}, "clip": 1.0}
    trainer = Trainer(Learned(), model, config.parse_config(TrainingConfig, said | {"fast": fast}), 1, Path("none"),
                      torch.device(DEVICE))  # type: ignore[arg-type]  # fmt: skip
    losses, given = [], batches(kind)
    with dispatch.disabled(not fast), trainer.stream():
        for n in range(steps):
            losses.append(trainer.step(StepBatches(0, n, [given[n % len(given)]], (0, n + 1), 24))[0])
            trainer.state.step += 1
        trainer.check_finite()
    return torch.stack(losses).double().cpu(), before, trainer


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("kind", HEADS)
def test_recorded_steps_are_the_plain_ones(kind: str, frozen: bool) -> None:
    ours, before, trainer = learn(kind, True, frozen)
    plain, _, _ = learn(kind, False, frozen)
    assert ours[-3:].sum() < ours[:3].sum()  # it learns
    torch.testing.assert_close(ours, plain, atol=1e-3, rtol=1e-3)
    after = dict(trainer.model.body.named_parameters())
    assert all(torch.equal(before[name], after[name]) for name in before) == (frozen or kind == "features")
    assert trainer.replay is not None
    assert trainer.replay.graphs
