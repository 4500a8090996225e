"""Optimisers as choices: each against torch's own on the same gradients, and resumed to the bit."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from regard import recipe as recipes
from regard.config import parse_config
from regard.errors import RegardError
from regard.nn.embedding import Embedding
from regard.run import train_recipe
from regard.run_checks import device_warnings
from regard.training.config import TrainingConfig
from regard.training.optimiser import MuonConfig, build_optimiser
from tests.training import toy

RATES = (3e-3, 2e-3, 1e-3, 4e-3)


class Small(nn.Module):
    """A table, two matrices, a norm and a convolution: every sort of parameter there is."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Embedding(7, 6, False)
        self.first, self.norm, self.second = nn.Linear(6, 10), nn.LayerNorm(10), nn.Linear(10, 4, bias=False)
        self.convolution = nn.Conv1d(4, 4, 3)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.second(self.norm(self.first(self.table(ids)))).transpose(1, 2)
        return self.convolution(x).square().sum()


def settings(**keys: Any) -> TrainingConfig:
    return parse_config(TrainingConfig, {"optimiser": keys})


def decayed(model: Small, yes: bool) -> list[nn.Parameter]:
    return [p for p in model.parameters() if (p.dim() > 1) == yes]


def groups(model: Small, weight_decay: float) -> list[dict[str, Any]]:
    """Written out, as a training script has them."""
    return [
        {"params": decayed(model, True), "weight_decay": weight_decay},
        {"params": decayed(model, False), "weight_decay": 0.0},
    ]


def adamw(model: Small) -> list[torch.optim.Optimizer]:
    return [torch.optim.AdamW(groups(model, 0.1), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True)]


def adam(model: Small) -> list[torch.optim.Optimizer]:
    return [torch.optim.Adam(groups(model, 0.1), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True)]


def adafactor(model: Small) -> list[torch.optim.Optimizer]:
    return [torch.optim.Adafactor(groups(model, 0.1), lr=0.0)]


def muon(model: Small) -> list[torch.optim.Optimizer]:
    matrices = [model.first.weight, model.second.weight]
    rest = [model.table.weight, model.convolution.weight]
    other = [{"params": rest, "weight_decay": 0.0}, {"params": decayed(model, False), "weight_decay": 0.0}]
    return [
        torch.optim.Muon(matrices, lr=0.0, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(other, lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True),
    ]


@pytest.mark.parametrize("kind, theirs", [("adamw", adamw), ("adam", adam), ("adafactor", adafactor), ("muon", muon)])
def test_it_is_torch_s_own(kind: str, theirs: Callable[[Small], list[torch.optim.Optimizer]]) -> None:
    torch.manual_seed(1)
    ours = Small()
    other = copy.deepcopy(ours)
    made = build_optimiser(ours, settings(kind=kind, weight_decay=0.1), torch.device("cpu"))
    plain = theirs(other)
    before = [p.detach().clone() for p in ours.parameters()]
    for rate in RATES:
        ids = torch.randint(7, (3, 5))
        for model, optimisers in ((ours, [made]), (other, plain)):
            model(ids).backward()
            for optimiser in optimisers:
                for group in optimiser.param_groups:
                    group["lr"] = rate
                optimiser.step()
                optimiser.zero_grad()
    for p, q, was in zip(ours.parameters(), other.parameters(), before, strict=True):
        assert torch.equal(p, q)
        assert not torch.equal(p, was)


def test_muon_takes_matrices_of_linear_layers_alone() -> None:
    model = Small()
    model.second.weight.requires_grad_(False)
    made = MuonConfig().groups(model)
    assert [id(p) for p in made[0]["params"]] == [id(model.first.weight)]
    rest = {id(p) for group in made[1:] for p in group["params"]}
    assert rest == {id(p) for p in model.parameters() if p.requires_grad} - {id(model.first.weight)}
    model.first.weight.requires_grad_(False)
    built = build_optimiser(model, settings(kind="muon"), torch.device("cpu"))
    assert type(built) is torch.optim.AdamW  # nothing is left for Muon, which takes no empty list


@pytest.mark.parametrize("kind", ["adamw", "adam", "adafactor", "muon"])
def test_a_resumed_run_is_the_same_bits(kind: str, tmp_path: Path) -> None:
    toy.write_corpus(tmp_path)
    keys = toy.recipe(tmp_path, steps=8, optimiser={"kind": kind, "weight_decay": 0.01})
    train_recipe(recipes.load_recipe(keys), tmp_path / "whole", "cpu")
    for steps in (3, 8):
        stopped = {**keys, "training": {**keys["training"], "steps": steps}}
        train_recipe(recipes.load_recipe(stopped), tmp_path / "parts", "cpu")
    for name in ("model", "optimiser"):
        one, two = (load_file(tmp_path / run / "last" / f"{name}.safetensors") for run in ("whole", "parts"))
        assert one.keys() == two.keys()
        assert all(one[key].equal(two[key]) for key in one)
    slots = {key.partition(".")[0] for key in one}
    adam_slots = {"step", "exp_avg", "exp_avg_sq"}
    kept = {"adafactor": {"step", "row_var", "col_var", "variance"}, "muon": adam_slots | {"momentum_buffer"}}
    assert slots == kept.get(kind, adam_slots)


@pytest.mark.parametrize("kind", ["adafactor", "muon"])
def test_rates_by_depth_serve_them_too(kind: str) -> None:
    model = Small()
    model.parts = lambda: [[model.convolution, model.second], [model.first, model.norm]]  # type: ignore[assignment]
    made = parse_config(TrainingConfig, {"optimiser": {"kind": kind}, "layerwise": {"divide": 2}})
    built = build_optimiser(model, made, torch.device("cpu"))
    depth = {id(p): group["depth"] for group in built.param_groups for p in group["params"]}
    assert [depth[id(p)] for p in (model.second.weight, model.first.weight, model.table.weight)] == [0, 1, 2]


@pytest.mark.parametrize(
    "written, kind",
    [
        ({}, "adamw"),
        ({"beta2": 0.99}, "adamw"),
        ({"kind": "adam"}, "adam"),
        ({"kind": "adam", "decoupled": True}, "adamw"),  # as runs have it that were written before there was adamw
        ({"kind": "adam", "decoupled": False, "weight_decay": 0.1}, "adam"),
        ({"decoupled": False}, "adam"),
        ("muon", "muon"),
    ],
)
def test_the_old_key_means_what_it_meant(written: Any, kind: str) -> None:
    made = parse_config(TrainingConfig, {"optimiser": written}).optimiser
    assert made.kind == kind
    for key, value in written.items() if isinstance(written, dict) else ():
        assert key in ("kind", "decoupled") or getattr(made, key) == value


def test_mistakes_are_explained() -> None:
    for keys, said in (
        ({"optimiser": {"kind": "adamx"}}, "t.optimiser.kind is 'adamx'; did you mean adam?"),
        ({"optimiser": {"kind": "muon", "decoupled": True}}, "t.optimiser.decoupled is not a known key; known: "),
        ({"optimiser": {"kind": "muon", "iterations": 0}}, "t.optimiser is impossible: iterations must be from 1 to"),
        ({"optimiser": {"kind": "muon", "rest": {"kind": "adam"}}}, "t.optimiser.rest.kind is 'adam'; known: adamw"),
        ({"optimiser": {"kind": "adafactor", "threshold": 0}}, "threshold must be above 0, not 0.0"),
        ({"optimiser": "muon", "parallel": "fsdp"}, "parallel is fsdp, and muon needs whole matrices; choose ddp, or"),
    ):
        with pytest.raises(RegardError) as caught:
            parse_config(TrainingConfig, keys, "t")
        assert said in str(caught.value)


def test_what_no_cuda_graph_can_hold_is_said() -> None:
    for kind in ("adafactor", "muon", "adamw"):
        device = torch.device("cuda")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
            sentences = " ".join(device_warnings(settings(kind=kind), device))
        assert ("cannot be part of a CUDA graph" in sentences) == (kind != "adamw")
