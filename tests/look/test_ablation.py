"""A head that is switched off: the same numbers as with zeros in its rows of the output projection."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.errors import RegardError
from regard.look import look, look_pair
from tests.look.small import TEXT, opened, translator, vectors, weights
from tests.tasks import chat_toy, lm_toy


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return translator(tmp_path_factory.mktemp("ablation"))


def without(made: Any, *heads: tuple[torch.nn.Module, int]) -> Any:
    """The translator whose model has zeros in the place of what these heads would add."""
    for attention, head in heads:
        with torch.no_grad():
            attention.output.weight.unflatten(1, (attention.heads, -1))[:, head] = 0.0
    return made


def test_it_is_the_model_without_what_the_head_adds(made: Any) -> None:
    before = made.translate([TEXT, "w7 w8"])
    off = look(made, TEXT, ablate=["cross.2.1", "encoder.1.2"])
    twin = copy.deepcopy(made)
    twin = without(twin, (twin.model.decoder[1].cross, 0), (twin.model.encoder[0].attention, 1))
    on = look(twin, TEXT)
    assert off["output"] == on["output"] == twin.translate([TEXT])[0]
    for a, b in zip(off["places"], on["places"], strict=True):
        np.testing.assert_allclose(
            np.nan_to_num(weights(a["weights"])), np.nan_to_num(weights(b["weights"])), atol=1e-4
        )
    for a, b in zip(off["walk"]["cross"], on["walk"]["cross"], strict=True):
        for left, right in zip(a["after"]["parts"], b["after"]["parts"], strict=True):
            np.testing.assert_allclose(vectors(left["vectors"]), vectors(right["vectors"]), atol=2e-3)
    assert off["ablated"] == ["cross.2.1", "encoder.1.2"]
    assert off["output_before"] == before[0]
    assert made.translate([TEXT, "w7 w8"]) == before  # nothing stays
    assert not any(module._forward_pre_hooks for module in made.model.modules())


def test_all_heads_of_the_cross_attention_off_make_the_source_unknown(made: Any) -> None:
    every = [f"cross.{layer}.{head}" for layer in (1, 2) for head in (1, 2)]
    pair = look_pair(made, TEXT, "w9 w8", ablate=every)
    assert pair["looks"][0]["output"].split()[:2] == pair["looks"][1]["output"].split()[:2]
    decoder = [weights(each["places"][1]["weights"])[:, :, 0, 0] for each in pair["looks"]]
    np.testing.assert_array_equal(*decoder)


@pytest.mark.parametrize(
    "name, said",
    [
        ("encoder", "is not PLACE.LAYER.HEAD; write it as encoder.1.3"),
        ("encodr.1.1", "this model has no attention 'encodr'.*encoder"),
        ("cross.3.1", "there is no layer 3; write 1 to 2"),
        ("cross.0.1", "there is no layer 0; write 1 to 2"),
        ("cross.1.3", "there is no head 3; write 1 to 2"),
    ],
)
def test_heads_that_are_not_there(made: Any, name: str, said: str) -> None:
    with pytest.raises(RegardError, match=said):
        look(made, TEXT, ablate=[name])


def test_an_attention_without_projection_has_no_head_to_switch_off(tmp_path: Any) -> None:
    made = translator(tmp_path, {"kind": "rnn", "preset": "bahdanau", "size": 8})
    with pytest.raises(RegardError, match="has no output projection"):
        look(made, TEXT, ablate=["cross.1.1"])


def test_language_models_and_chat(tmp_path: Path) -> None:
    lm_toy.write_text(tmp_path, 20)
    chat_toy.write(tmp_path, 20)
    for recipe, text in ((lm_toy.recipe(tmp_path), "w1 w2"), (chat_toy.recipe(tmp_path, "lm"), "w1")):
        made = opened(tmp_path, recipe)
        on, off = look(made, text), look(made, text, ablate=["decoder.1.1"])
        assert off["output_before"] == on["output"]
        assert off["walk"]["scores"]["logits"] != on["walk"]["scores"]["logits"]
