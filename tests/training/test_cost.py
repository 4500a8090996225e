"""Costs against torch's flop counter, sizes of tensors, and parameters counted by hand."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import regard.nn.attention
from regard.models import Bert, LanguageModel, MaskedLM, Transformer
from regard.training import cost
from regard.training.config import TrainingConfig
from regard.training.optimiser import AdafactorConfig


def models() -> dict[str, torch.nn.Module]:
    return {
        "transformer": Transformer.tiny(50, dropout=0.0),
        "two sizes": Transformer.tiny(
            50, 70, decoder_layers=2, attention={"cross": {"d_k": 16, "d_v": 8}}, dropout=0.0
        ),
        "lm": LanguageModel.from_preset("tiny", 50, dropout=0.0),
        "bert": MaskedLM(Bert.from_preset("tiny", 50, dropout=0.0)),
    }


@pytest.mark.parametrize("name", ["transformer", "two sizes", "lm", "bert"])
def test_flops_are_the_counters(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regard.nn.attention, "BACKENDS", [])  # the plain function, whose products it can count
    model, length = models()[name].eval(), 12
    batch = cost.sample_batch(model, length)
    with FlopCounterMode(display=False) as counter:
        model(batch)
    assert sum(cost.forward_flops(model, length).values()) * length == counter.get_total_flops()


def test_parts_add_up() -> None:
    for model in models().values():
        assert sum(cost.parameters_by_part(model).values()) == sum(p.numel() for p in model.parameters())
    parts = cost.parameters_by_part(models()["lm"])
    assert parts["embedding"] == 50 * 128
    assert "output" not in parts  # it is the embedding's table


def test_bytes_of_caches_and_state() -> None:
    lm, transformer = models()["lm"], models()["transformer"]
    assert cost.cache_bytes(lm) == 4 * 2 * 128 * 4
    assert cost.cache_bytes(transformer) == 4 * 2 * 128 * 4  # the decoder's alone
    windows = LanguageModel.from_preset("tiny", 50, attention={"pattern": ["window(3)", "full"], "kv_heads": 2})
    assert cost.cache_bytes(windows, 8) == (2 * 4 + 2 * 8) * 2 * 64 * 4 / 8  # four layers, two heads of keys
    count = sum(p.numel() for p in lm.parameters())
    each = {
        16: TrainingConfig(),
        20: TrainingConfig(ema=0.99),
        8: TrainingConfig(optimiser=AdafactorConfig()),  # hardly any state
    }
    for expected, settings in each.items():
        assert cost.state_bytes(lm, settings) == expected * count


def test_activations_are_what_a_backward_pass_needs() -> None:
    """x for the weight's gradient, and the ReLU's output; once, though two products read the same x."""
    first, second = torch.nn.Linear(8, 16), torch.nn.Linear(8, 16)
    model, x = torch.nn.ModuleList([first, second]), torch.randn(4, 8)
    kept = cost.activation_bytes(model, lambda: first(x).relu() + second(x))
    assert kept == 4 * 4 * 8 + 4 * 4 * 16
