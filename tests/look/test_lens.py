"""The logit lens: each stage as a model without the layers that follow."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from regard.errors import RegardError
from regard.look import logit_lens, patch_activations
from regard.look.model_inputs import prepare_input
from regard.look.scoring import scored_input
from regard.models.batch import collate_texts
from regard.nn.norm import NoNorm
from tests.look.small import TEXT, opened, translator
from tests.look.test_attention import ROWS
from tests.tasks import bert_toy, lm_toy, toys


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return translator(tmp_path_factory.mktemp("lens"))


def stage(data: dict[str, Any], layer: int, after: str) -> int:
    return data["stages"].index({"layer": layer, "after": after})


def test_a_stage_is_the_model_without_the_layers_that_follow(made: Any) -> None:
    data = logit_lens(made, TEXT, "w3 w1")
    assert [each["after"] for each in data["stages"]] == [
        "embedding", *2 * ["attention", "cross", "feed_forward"],
    ]  # fmt: skip
    short = copy.deepcopy(made)
    short.model.decoder = nn.ModuleList([short.model.decoder[0]])
    for twin, layer in ((short, 1), (made, 2)):
        scores = scored_input(twin, prepare_input(twin, TEXT, "w3 w1")).run().double().softmax(-1)
        n = stage(data, layer, "feed_forward")
        for row, each in zip(data["rows"], scores, strict=True):
            np.testing.assert_allclose(row["stages"][n]["probabilities"], each.topk(5).values.detach(), atol=1e-4)
            assert row["stages"][n]["words"][0] == made.vocabulary.target.shown([int(each.argmax())])[0]


def test_cross_attention_is_a_stage_of_its_own(made: Any) -> None:
    """After the first layer's cross-attention: its residual's output, by the final norm and the embedding's matrix."""
    kept: list[torch.Tensor] = []
    layer = made.model.decoder[0]
    handle = layer.residuals[1].register_forward_hook(lambda module, args, out: kept.append(out))
    scored_input(made, prepare_input(made, TEXT, "w3 w1")).run()
    handle.remove()
    assert isinstance(made.model.decoder_norm, NoNorm)  # of the paper's order
    expected = (kept[-1][0] @ made.model.target_embedding.weight.T).double().softmax(-1).detach()
    data = logit_lens(made, TEXT, "w3 w1")
    n = stage(data, 1, "cross")
    for row, each in zip(data["rows"], expected, strict=True):
        np.testing.assert_allclose(row["stages"][n]["probabilities"][0], float(each.max()), atol=1e-4)
    assert not any(module._forward_hooks for module in made.model.modules())


def test_settled_is_the_first_stage_from_which_the_answer_stays(made: Any) -> None:
    for row in logit_lens(made, TEXT)["rows"]:
        firsts = [each["words"][0] for each in row["stages"]]
        assert all(word == row["says"] for word in firsts[row["settled"] :])
        assert row["settled"] == 0 or firsts[row["settled"] - 1] != row["says"]


def test_language_models(tmp_path: Path) -> None:
    lm_toy.write_text(tmp_path, 20)
    made = opened(tmp_path, lm_toy.recipe(tmp_path))
    data = logit_lens(made, "w1 w2")
    batch = collate_texts([made.document_encoder.prompt("w1 w2")], made.tokenizer.pad)
    scores = made.model(batch)[0].softmax(-1).detach()  # [T, V]
    for row, each in zip(data["rows"], scores, strict=True):
        assert row["stages"][-1]["probability"] == pytest.approx(float(each.max()), abs=1e-4)


def test_a_convolutional_decoder_has_stages_and_a_recurrent_one_has_none(tmp_path: Path) -> None:
    conv = translator(tmp_path / "conv", {"kind": "conv", "size": 8, "layers": 2, "kernel": 3})
    assert [each["layer"] for each in logit_lens(conv, TEXT)["stages"]] == [0, 1, 2]
    rnn = translator(tmp_path / "rnn", {"kind": "rnn", "preset": "bahdanau", "size": 8})
    with pytest.raises(RegardError, match="a model of the kind rnn has no stack of layers"):
        logit_lens(rnn, TEXT)


def test_masked_words(tmp_path: Path) -> None:
    bert_toy.write_text(tmp_path, 20)
    made = opened(tmp_path, bert_toy.recipe(tmp_path))
    (row,) = logit_lens(made, "Cat [MASK] mat")["rows"]
    with torch.no_grad():
        batch = collate_texts([prepare_input(made, "Cat [MASK] mat").ids["text"]], made.tokenizer.pad)
        place = int(batch.ids[0].eq(made.tokenizer.mask).nonzero())
        scores = made.model.words(made.model.body(batch)[0, place]).softmax(-1)
    assert row["stages"][-1]["probabilities"][0] == pytest.approx(float(scores.max()), abs=1e-4)
    with pytest.raises(RegardError, match=r"the text has no \[MASK\]"):
        logit_lens(made, "Cat mat")


@pytest.mark.parametrize("kind", ["classify", "tag"])
def test_labels_and_tags(kind: str, tmp_path: Path) -> None:
    rows, text, _ = ROWS[kind]
    name = {"classify": "rows.tsv", "tag": "rows.conll"}[kind]
    (tmp_path / name).write_text(rows + "\n", encoding="utf-8")
    task = {"kind": kind} | ({"overlap": 4} if kind == "tag" else {})
    made = opened(tmp_path, toys.recipe(tmp_path, task, (name, name)))
    rows_found = logit_lens(made, text)["rows"]
    if kind == "classify":
        best = made.classify([text])[0]
        assert rows_found[0]["says"] == best.label
        expected = best.probabilities[best.label]
        assert rows_found[0]["stages"][-1]["probability"] == pytest.approx(expected, abs=1e-4)
    else:
        assert [row["says"] for row in rows_found[1:3]] == made.tag([text])[0].tags  # <s> and </s> around
    other = patch_activations(made, text, text.replace("good", "bad"), ["layers"])
    assert other["patches"][0]["recovered"] == pytest.approx(1, abs=1e-4)


def test_a_span_has_no_scores_to_follow(tmp_path: Path) -> None:
    rows, text, _ = ROWS["answer"]
    (tmp_path / "rows.jsonl").write_text(rows + "\n", encoding="utf-8")
    task = {"kind": "answer", "length": 32, "overlap": 4, "question": 8}
    made = opened(tmp_path, toys.recipe(tmp_path, task, ("rows.jsonl", "rows.jsonl")))
    with pytest.raises(RegardError, match="a model of the task answer like this one has no scores"):
        logit_lens(made, text)
