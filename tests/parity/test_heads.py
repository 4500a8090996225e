"""The same weights give the scores, losses and gradients of Hugging Face's fine-tuned BERTs, and rows are cut alike."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from regard.config import parse_config
from regard.data.loader import StepBatches
from regard.examples.features import RowBuilder
from regard.interop import bert
from regard.interop.key_map import KeyMap
from regard.io.tensors import load_weights, unique_state_dict
from regard.models.batch import RaggedRows, TextBatch, collate_texts
from regard.models.heads import (
    BodyWithHead,
    MultipleChoice,
    MultipleChoiceBatch,
    SequenceClassifier,
    SequenceRegressor,
    SpanClassifier,
    TokenClassifier,
)
from regard.tasks.contract import BaseTask
from regard.text import from_bert
from regard.training.config import TrainingConfig
from regard.training.loop import Trainer
from tests.parity.test_bert import asked

transformers = pytest.importorskip("transformers")

ENTRIES, LABELS = 43, 5
SIZES = {"vocab_size": ENTRIES, "max_position_embeddings": 24, "num_hidden_layers": 2, "hidden_size": 16}
SIZES |= {"num_attention_heads": 4, "intermediate_size": 24}


def theirs_of(kind: str, labels: int = LABELS, **keys: object) -> nn.Module:
    torch.manual_seed(0)
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = transformers.BertConfig(**SIZES, **dropout, num_labels=labels, initializer_range=0.3, **keys)
    made = getattr(transformers, f"BertFor{kind}")(config)
    with torch.no_grad():
        for p in made.parameters():
            if p.dim() == 1:
                p.add_(0.2 * torch.randn_like(p))
    return made.eval()


def filled(ours: BodyWithHead, theirs: nn.Module, keys: KeyMap) -> BodyWithHead:
    load_weights(ours, keys.from_hf(theirs.state_dict(), unique_state_dict(ours), "there"), Path("there"))
    return ours.eval()


def body(theirs: nn.Module):
    return bert.bert_config_from_hf(theirs.config.to_dict(), "there").build(ENTRIES)


def batch() -> TextBatch:
    g = np.random.default_rng(1)
    lengths = (9, 3, 16, 5, 12, 7)
    rows = [g.integers(4, ENTRIES, n) for n in lengths]
    return collate_texts(RaggedRows.of(rows), 0, RaggedRows.of([np.sort(g.integers(0, 2, n)) for n in lengths]))


def same(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def same_gradients(ours: BodyWithHead, theirs: nn.Module, keys: KeyMap) -> None:
    given = {name: p.grad for name, p in theirs.named_parameters()}
    wanted = keys.from_hf(given, unique_state_dict(ours), "gradients")
    for name, p in ours.named_parameters():
        torch.testing.assert_close(p.grad, wanted[name], atol=1e-4, rtol=1e-4, msg=name)


def test_classes() -> None:
    theirs, b = theirs_of("SequenceClassification"), replace(batch(), classes=torch.tensor([0, 4, 2, 2, 1, 3]))
    ours = filled(SequenceClassifier(body(theirs), LABELS), theirs, bert.CLASSIFIER)
    wanted = theirs(**asked(b), labels=b.classes)
    same(ours(b), wanted.logits)
    assert wanted.logits.std() > 0.3
    loss = ours(b, smoothing=0.0)
    same(loss, wanted.loss * 6)
    loss.backward()
    (wanted.loss * 6).backward()
    same_gradients(ours, theirs, bert.CLASSIFIER)


def test_numbers() -> None:
    theirs, b = theirs_of("SequenceClassification", 1), replace(batch(), classes=torch.randn(6))
    ours = filled(SequenceRegressor(body(theirs), 1), theirs, bert.CLASSIFIER)
    wanted = theirs(**asked(b), labels=b.classes)
    same(ours(b), wanted.logits[:, 0])
    same(ours(b, smoothing=0.0), wanted.loss * 6)


def test_tags() -> None:
    theirs, b = theirs_of("TokenClassification"), batch()
    classes = torch.where(b.real, torch.randint(0, LABELS, b.ids.shape), -100)
    classes[:, 0] = -100
    b = replace(b, classes=classes)
    ours = filled(TokenClassifier(body(theirs), LABELS), theirs, bert.TOKEN_CLASSIFIER)
    wanted = theirs(**asked(b), labels=classes)
    same(ours(b)[b.real], wanted.logits[b.real])
    loss = ours(b, smoothing=0.0)
    same(loss, wanted.loss * (classes >= 0).sum())
    loss.backward()
    (wanted.loss * (classes >= 0).sum()).backward()
    same_gradients(ours, theirs, bert.TOKEN_CLASSIFIER)


def test_spans() -> None:
    theirs, b = theirs_of("QuestionAnswering", 2), batch()
    ours = filled(SpanClassifier(body(theirs)), theirs, bert.QUESTION_ANSWERING)
    wanted = theirs(**asked(b))
    same(ours(b)[..., 0][b.real], wanted.start_logits[b.real])
    same(ours(b)[..., 1][b.real], wanted.end_logits[b.real])
    alike = TextBatch(
        b.ids[:, :3], torch.ones(6, 3, dtype=torch.bool), segments=b.segments[:, :3]
    )  # theirs counts padding
    alike = replace(alike, classes=torch.tensor([[0, 0], [1, 2], [2, 2], [0, 1], [1, 1], [0, 2]]))
    spans = {"start_positions": alike.classes[:, 0], "end_positions": alike.classes[:, 1]}
    same(ours(alike, smoothing=0.0), theirs(**asked(alike), **spans).loss * 6)


def test_padding_has_no_part_in_the_loss_of_spans() -> None:
    theirs, b = theirs_of("QuestionAnswering", 2), replace(batch(), classes=torch.tensor([[1, 2]] * 6))
    ours = filled(SpanClassifier(body(theirs)), theirs, bert.QUESTION_ANSWERING)
    more = replace(
        b,
        ids=nn.functional.pad(b.ids, (0, 4)),
        real=nn.functional.pad(b.real, (0, 4)),
        segments=nn.functional.pad(b.segments, (0, 4)),
    )
    same(ours(b, smoothing=0.0), ours(more, smoothing=0.0))


def test_options() -> None:
    theirs, b = theirs_of("MultipleChoice"), batch()
    fields = {"ids": b.ids, "real": b.real, "segments": b.segments}
    groups = torch.arange(6).view(2, 3)
    given = MultipleChoiceBatch(**fields, classes=torch.tensor([2, 0]), groups=groups)
    ours = filled(MultipleChoice(body(theirs)), theirs, bert.CLASSIFIER)
    wanted = theirs(**{k: v.view(2, 3, -1) for k, v in asked(b).items()}, labels=given.classes)
    same(ours(given), wanted.logits)
    same(ours(given, smoothing=0.0), wanted.loss * 2)
    uneven = replace(given, groups=torch.tensor([[0, 1, 2, 3], [4, 5, -1, -1]]))
    scores = ours(uneven)
    assert torch.isneginf(scores[1, 2:]).all()
    same(scores[0], torch.cat([wanted.logits[0], wanted.logits[1, :1]]))
    loss = ours(replace(uneven, classes=torch.tensor([0, 1])), smoothing=0.0)
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in ours.parameters())


# --- rows -------------------------------------------------------------------------------------------------------------


def write_vocabulary(folder: Path) -> list[str]:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefg", "##a", "##b", "the", "cat", "dog", "##s"]
    words += [f"w{n}" for n in range(ENTRIES - len(words))]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    return words


def test_rows_are_cut_as_theirs_are(tmp_path: Path) -> None:
    write_vocabulary(tmp_path)
    theirs = transformers.BertTokenizer(vocab=str(tmp_path / "vocab.txt"))
    ours = from_bert(tmp_path / "vocab.txt")
    draw = np.random.default_rng(0)
    for _ in range(200):
        a, b = (" ".join(draw.choice([*"abcdefg", "cats", "ab"], draw.integers(1, 12))) for _ in range(2))
        length = int(draw.integers(8, 20))
        wanted = theirs(a, b, truncation="longest_first", max_length=length)
        sides = ours.encode_batch([a, b])
        rooms = RowBuilder.rooms(list(map(len, sides)), length)
        row = RowBuilder(ours).row(*(side[:room] for side, room in zip(sides, rooms, strict=True)))
        assert (row.ids, row.segments) == (wanted["input_ids"], wanted["token_type_ids"])


# --- learning --------------------------------------------------------------------------------------------------------


class Learned(BaseTask):
    """What else the loop asks of a task is its base's."""

    fingerprint = ""

    def __init__(self) -> None: ...

    def loss(self, model: nn.Module, batch: TextBatch, carry: None) -> tuple[torch.Tensor, None]:
        return model(batch, None, 0.0), carry


@pytest.mark.filterwarnings("ignore:Detected call of")  # of their schedule, which is put one step ahead
@pytest.mark.parametrize(("decoupled", "kind"), [(True, torch.optim.AdamW), (False, torch.optim.Adam)])
def test_steps_are_those_of_their_examples(decoupled: bool, kind: type[torch.optim.Adam]) -> None:
    """Adam with either decay, which spares biases and norms; a linear schedule with warm-up; clipping."""
    theirs, b = theirs_of("SequenceClassification"), replace(batch(), classes=torch.tensor([0, 4, 2, 2, 1, 3]))
    ours = filled(SequenceClassifier(body(theirs), LABELS), theirs, bert.CLASSIFIER).train()
    said = {"kind": "linear", "peak": 1e-3, "warmup": 4}, {"beta2": 0.999, "epsilon": 1e-4, "weight_decay": 0.3}
    optimised = {**said[1], "decoupled": decoupled}
    settings = parse_config(TrainingConfig, {"steps": 16, "schedule": said[0], "optimiser": optimised, "clip": 1.0})
    trainer = Trainer(Learned(), ours, settings, 1, Path("none"), torch.device("cpu"))  # type: ignore[arg-type]
    spared = [p for name, p in theirs.named_parameters() if "bias" in name or "LayerNorm" in name]
    others = [p for name, p in theirs.named_parameters() if not ("bias" in name or "LayerNorm" in name)]
    groups = [{"params": others, "weight_decay": 0.3}, {"params": spared, "weight_decay": 0.0}]
    optimiser = kind(groups, lr=1e-3, betas=(0.9, 0.999), eps=1e-4)
    schedule = transformers.get_linear_schedule_with_warmup(optimiser, 4, 16)
    schedule.step()  # theirs counts from 0, where nothing is learned
    losses = []
    for n in range(12):
        mine, _, rate = trainer.step(StepBatches(0, n, [b], (0, n + 1), 6))
        trainer.state.step += 1
        assert rate == pytest.approx(optimiser.param_groups[0]["lr"])
        loss = theirs(**asked(b), labels=b.classes).loss
        loss.backward()
        nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        schedule.step()
        losses.append((float(mine), float(loss.detach())))
    found, wanted = (torch.tensor(side) for side in zip(*losses, strict=True))
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
    assert wanted[-1] < 0.9 * wanted[0]
