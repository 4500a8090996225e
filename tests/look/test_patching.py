"""Activation patching: what must come back whole, and one head by hand."""

from pathlib import Path
from typing import Any

import pytest
import torch

from regard.errors import RegardError
from regard.look import patch_activations
from regard.look.model_inputs import prepare_input
from regard.look.scoring import scored_input
from tests.look.small import TEXT, opened, translator
from tests.tasks import lm_toy

OTHER = "w1 w2 w7 w4 w5"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return translator(tmp_path_factory.mktemp("patching"))


def by_name(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["patch"]: row for row in data["patches"]}


def test_the_whole_memory_brings_back_the_whole_answer(made: Any) -> None:
    data = patch_activations(made, TEXT, OTHER, ["encoder.2", "encoder.1@1", "cross.1+cross.2"])
    rows = by_name(data)
    assert rows["encoder.2"]["recovered"] == pytest.approx(1, abs=1e-4)
    assert rows["encoder.2"]["probability"] == data["first"]
    assert rows["cross.1+cross.2"]["recovered"] == pytest.approx(
        1, abs=1e-4
    )  # all that the decoder reads of the source
    assert rows["encoder.1@1"]["recovered"] != pytest.approx(1, abs=1e-3)
    assert data["first"] != data["second"]


def test_a_text_and_itself_have_no_difference(made: Any) -> None:
    data = patch_activations(made, TEXT, TEXT, ["heads"])
    assert len(data["patches"]) == 3 * 2 * 2
    assert all(row["recovered"] is None and row["probability"] == data["second"] for row in data["patches"])


@pytest.mark.parametrize("role", ["encoder", "decoder", "cross"])
def test_one_head_by_hand(made: Any, role: str) -> None:
    """Its part of what enters the output projection, replaced there."""
    attention = made.model.encoder[0].attention if role == "encoder" else getattr(
        made.model.decoder[0], {"decoder": "attention", "cross": "cross"}[role]
    )  # fmt: skip
    target = made.translate([TEXT])[0]
    inputs = [scored_input(made, prepare_input(made, text, target)) for text in (TEXT, OTHER)]
    kept: list[torch.Tensor] = []
    handle = attention.output.register_forward_pre_hook(lambda module, args: kept.append(args[0].clone()))
    first = inputs[0].run().double().log_softmax(-1).detach()
    handle.remove()
    second = inputs[1].run().double().log_softmax(-1).detach()
    half = kept[0].shape[-1] // 2

    def put(module: Any, args: Any) -> Any:
        return (torch.cat([args[0][..., :half], kept[0][..., half:]], -1),)

    handle = attention.output.register_forward_pre_hook(put)
    expected = inputs[1].run().double().log_softmax(-1).detach()
    handle.remove()
    data = patch_activations(made, TEXT, OTHER, [f"{role}.1.2"])
    answers = first.argmax(-1, keepdim=True)
    lost = (first.gather(1, answers) - second.gather(1, answers))[:, 0]  # of each answer's log-probability
    at = int(lost.argmax())
    back = float((expected - second)[at, answers[at]] / lost[at])
    assert data["patches"][0]["probability"] == pytest.approx(float(expected[at, answers[at]].exp()), abs=1e-4)
    assert data["patches"][0]["recovered"] == pytest.approx(back, abs=1e-3)
    assert "attend" not in vars(attention)


def test_language_models_and_positions(tmp_path: Path) -> None:
    lm_toy.write_text(tmp_path, 20)
    made = opened(tmp_path, lm_toy.recipe(tmp_path))
    data = patch_activations(made, "the cat", "the mat", ["positions"])
    rows = by_name(data)
    assert len(rows) == len("the mat") + 1  # of one layer, with what begins a text
    assert max(row["recovered"] for row in rows.values()) == pytest.approx(1, abs=1e-4)  # the place's own last state
    assert rows["decoder.1@1"]["recovered"] == pytest.approx(0, abs=1e-6)  # what both texts share changes nothing


@pytest.mark.parametrize(
    "model", [{"kind": "rnn", "preset": "luong", "size": 8}, {"kind": "conv", "size": 8, "layers": 2}]
)
def test_attentions_without_projections(tmp_path: Path, model: dict[str, Any]) -> None:
    made = translator(tmp_path, model)
    data = patch_activations(made, TEXT, OTHER, ["heads"])
    assert all(row["patch"].startswith("cross.") for row in data["patches"])
    assert any(row["probability"] != data["second"] for row in data["patches"])


@pytest.mark.parametrize(
    "patch, said",
    [
        ("encoder", "is not PLACE.LAYER, PLACE.LAYER.HEAD or one of heads, layers, positions"),
        ("encodr.1", "no attention 'encodr'.*encoder"),
        ("cross.3", "there is no layer 3; write 1 to 2"),
        ("cross.1.3", "there is no head 3; write 1 to 2"),
        ("encoder.1@9", "there is no token 9; write 1 to 6"),
    ],
)
def test_patches_that_are_not_there(made: Any, patch: str, said: str) -> None:
    with pytest.raises(RegardError, match=said):
        patch_activations(made, TEXT, OTHER, [patch])


def test_a_token_without_a_counterpart(made: Any) -> None:
    with pytest.raises(RegardError, match="the first text has nothing in the place of 'w9'"):
        patch_activations(made, "w1 w2", "w1 w2 w9", ["encoder.1@3"])
