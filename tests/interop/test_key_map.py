"""The engine of key maps: names, layers, joins and cuts, both ways, and everything that is wrong in one sentence."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import RegardError
from regard.interop.key_map import SQUEEZE, TRANSPOSE, KeyMap, fold_layer_numbers, rule, weight_and_bias

MAP = KeyMap(
    (
        rule("table", "wte.weight"),
        *weight_and_bias("layers.{n}.expand", "h.{n}.c_fc", transform=TRANSPOSE),
        *weight_and_bias(
            ("layers.{n}.query", "layers.{n}.key_value"), "h.{n}.c_attn", sizes=(1, 2), transform=TRANSPOSE
        ),
        *weight_and_bias("layers.{n}.other_kv", ("h.{n}.key", "h.{n}.value")),
        rule("bias", "final_bias", transform=SQUEEZE, optional=True),
    ),
    tied={"head.weight": "wte.weight"},
    ignored=("h.{n}.mask", "counter"),
    renamed_suffixes={".gamma": ".weight"},
)


def their_weights(layers: int = 2, size: int = 4) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    made = {"wte.weight": torch.randn(7, size), "final_bias": torch.randn(1, 7), "counter": torch.zeros(3)}
    for n in range(layers):
        made |= {f"h.{n}.mask": torch.ones(1), f"h.{n}.c_fc.weight": torch.randn(size, 9)}
        made |= {f"h.{n}.c_fc.bias": torch.randn(9), f"h.{n}.c_attn.bias": torch.randn(3 * size)}
        made |= {f"h.{n}.c_attn.weight": torch.randn(size, 3 * size)}
        for part in ("key", "value"):
            made |= {f"h.{n}.{part}.weight": torch.randn(size, size), f"h.{n}.{part}.bias": torch.randn(size)}
    return made | {"head.weight": made["wte.weight"].clone()}


def own(layers: int = 2, size: int = 4) -> dict[str, torch.Tensor]:
    """The names and shapes of a model of ours, by hand."""
    made = {"table": (7, size), "bias": (7,)}
    for n in range(layers):
        for part, rows in (("expand", 9), ("query", size), ("key_value", 2 * size), ("other_kv", 2 * size)):
            made |= {f"layers.{n}.{part}.weight": (rows, size), f"layers.{n}.{part}.bias": (rows,)}
    return {name: torch.zeros(*shape) for name, shape in made.items()}


def test_every_tensor_finds_its_place() -> None:
    theirs = their_weights()
    ours = MAP.from_hf(theirs, own(), "here")
    assert set(ours) == set(own())
    assert torch.equal(ours["table"], theirs["wte.weight"])
    assert torch.equal(ours["bias"], theirs["final_bias"][0])
    for n in range(2):
        whole = theirs[f"h.{n}.c_attn.weight"]  # [in, query | key | value]
        assert torch.equal(ours[f"layers.{n}.query.weight"], whole[:, :4].T)
        assert torch.equal(ours[f"layers.{n}.key_value.weight"], whole[:, 4:].T)
        assert torch.equal(ours[f"layers.{n}.query.bias"], theirs[f"h.{n}.c_attn.bias"][:4])
        joined = [theirs[f"h.{n}.{part}.weight"] for part in ("key", "value")]
        assert torch.equal(ours[f"layers.{n}.other_kv.weight"], torch.cat(joined))
    assert all(tensor.is_contiguous() for tensor in ours.values())


@given(st.integers(0, 12), st.integers(1, 5))
def test_there_and_back(layers: int, size: int) -> None:
    """What is ignored, and what is a copy, is not written again; all else comes back bit by bit."""
    theirs = their_weights(layers, size)
    back = MAP.to_hf(MAP.from_hf(theirs, own(layers, size), "here"), "there")
    kept = {n: t for n, t in theirs.items() if "mask" not in n and n not in ("counter", "head.weight")}
    assert set(back) == set(kept)
    assert all(torch.equal(back[name], kept[name]) for name in kept)


def test_older_names_and_absent_options() -> None:
    theirs = their_weights()
    theirs["wte.gamma"] = theirs.pop("wte.weight")
    del theirs["final_bias"]
    mine = own()
    del mine["bias"]
    assert set(MAP.from_hf(theirs, mine, "here")) == set(mine)
    assert "final_bias" not in MAP.to_hf(mine, "there")


def test_a_map_under_another_name_and_two_joined() -> None:
    theirs = {f"model.{name}": tensor for name, tensor in their_weights().items()} | {"pooler": torch.ones(2)}
    joined = MAP.with_prefix("body.", "model.") + KeyMap((rule("head.pool", "pooler"),))
    mine = {f"body.{name}": tensor for name, tensor in own().items()} | {"head.pool": torch.zeros(2)}
    ours = joined.from_hf(theirs, mine, "here")
    assert set(ours) == set(mine)
    assert set(joined.to_hf(ours, "there")) == {
        name for name in theirs if "mask" not in name and not name.endswith(("counter", "head.weight"))
    }


def test_everything_wrong_is_told_at_once() -> None:
    theirs = their_weights()
    del theirs["h.0.c_fc.bias"], theirs["h.1.c_fc.bias"], theirs["h.1.value.weight"]
    theirs |= {"h.0.extra": torch.ones(1), "h.1.extra": torch.ones(1), "head.weight": torch.zeros(7, 4)}
    theirs |= {"wte.weight": torch.zeros(8, 4), "h.0.c_attn.bias": torch.zeros(13), "h.0.key.bias": torch.zeros(2, 2)}
    with pytest.raises(RegardError) as error:
        MAP.from_hf(theirs, own() | {"orphan": torch.zeros(1)}, "a/folder")
    said = str(error.value)
    assert said.startswith("a/folder: ")
    for part in (
        "missing: h.1.value.weight, h.{0,1}.c_fc.bias",
        "unknown: h.{0,1}.extra",
        "in the model, but in no rule: orphan",
        "table [8, 4], not [7, 4]",
        "h.0.c_attn.bias [13]",  # thirteen cannot be cut in three
        "h.0.key.bias [2, 2]",  # nor these joined
        "head.weight is not the same as wte.weight",
    ):
        assert part in said


def test_a_model_of_another_depth_is_told() -> None:
    with pytest.raises(RegardError, match=r"missing: .*h\.2\.c_fc\.weight"):
        MAP.from_hf(their_weights(2), own(3), "here")
    with pytest.raises(RegardError, match=r"not in the model: .*layers\.1\.query\.bias"):
        MAP.from_hf(their_weights(2), own(1), "here")
    with pytest.raises(RegardError, match=r"unknown: alien\)"):
        MAP.to_hf(own() | {"alien": torch.zeros(1)}, "there")
    with pytest.raises(RegardError, match=r"missing: layers\.0\.expand\.bias"):
        MAP.to_hf({name: t for name, t in own().items() if name != "layers.0.expand.bias"}, "there")


def test_names_are_folded_by_layer() -> None:
    assert fold_layer_numbers(["a.0.b", "a.10.b", "a.2.b", "c", "d.3"]) == ["a.{0,2,10}.b", "c", "d.3"]
