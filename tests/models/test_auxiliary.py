"""What a language model predicts beside its next token while it learns, worked by hand (Al-Rfou 2018, 3)."""

from typing import Any

import numpy as np
import pytest
import torch

from regard import config
from regard.errors import RegardError
from regard.models.batch import FurtherLabels, TextBatch
from regard.models.decoders.auxiliary import lowest_predicting_layer
from regard.models.lm import LanguageModel, LanguageModelBody, LanguageModelConfig

SIZES = {"layers": 3, "size": 8, "inner": 12, "heads": 2, "dropout": 0.0, "position": "learned_per_layer"}
LOSSES = {"layer_losses": True, "targets": 3, "further_weight": 0.25}


def build(**keys: object) -> LanguageModel:
    torch.manual_seed(0)
    model = config.parse_config(LanguageModelConfig, {**SIZES, **keys}).build(11).double().train()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.3)
    return model


def batch(predicting: int | None = 1) -> TextBatch:
    """Two rows of 5; further targets are missing at some places."""
    ids = torch.randint(11, (2, 8), generator=torch.Generator().manual_seed(1))
    further = []
    for ahead, missing in ((2, [4]), (3, [0, 7])):
        places = torch.tensor([n for n in range(10) if n not in missing])
        further.append(FurtherLabels(ids[:, ahead : ahead + 5].flatten()[places], places))
    labels = ids[:, 1:6].flatten()
    return TextBatch(
        ids[:, :5], labels=labels, label_positions=torch.arange(10), further=tuple(further), predicting=predicting
    )


def layer_states(model: LanguageModel, b: TextBatch) -> list[np.ndarray]:
    """What every layer gives, after the norm that the last one's output has."""
    states: list[np.ndarray] = []
    keep = lambda module, args, out: states.append(model.norm(out).detach().numpy().reshape(10, -1))  # noqa: E731
    handles = [layer.register_forward_hook(keep) for layer in model.layers]
    model.hidden(b)
    for handle in handles:
        handle.remove()
    return states


def cross_entropy(states: np.ndarray, weight: np.ndarray, labels: np.ndarray) -> float:
    total = 0.0
    for x, label in zip(states, labels, strict=True):
        scores = weight @ x
        total += np.log(np.exp(scores - scores.max()).sum()) + scores.max() - scores[label]
    return total


@pytest.mark.parametrize("residual", ["pre_norm", "post_norm"])
@pytest.mark.parametrize("predicting", [None, 1, 2, 3])
def test_every_term_by_hand(residual: str, predicting: int | None) -> None:
    model, b = build(**LOSSES, residual=residual), batch(predicting)
    states, expected = layer_states(model, b), 0.0
    for layer in (1, 2, 3):
        if layer < (predicting or 3):
            continue
        for ahead in (1, 2, 3):
            if (layer, ahead) == (3, 1):
                continue  # the model's own
            own = model.auxiliary.outputs[f"layer{layer}_ahead{ahead}"].weight.detach().numpy()  # type: ignore[union-attr]
            labels, places = (b.labels, b.label_positions) if ahead == 1 else b.further[ahead - 2].both
            term = cross_entropy(states[layer - 1][places.numpy()], own, labels.numpy())  # type: ignore[union-attr]
            expected += term * (1.0 if ahead == 1 else 0.25)
    kept: dict[int, torch.Tensor] = {}
    model.hidden(b, states=kept)
    assert model.auxiliary(kept, b, 0.0).item() == pytest.approx(expected, rel=1e-9)  # type: ignore[misc]
    alone = cross_entropy(states[2], model.output.weight.detach().numpy(), b.labels.numpy())  # type: ignore[union-attr]
    assert model(b, None, 0.0).item() == pytest.approx(alone, rel=1e-9)  # what is logged is the next token's


@pytest.mark.parametrize("losses", [{"layer_losses": True}, {"targets": 2}, LOSSES])
def test_gradients_are_those_of_the_sum_of_all_terms(losses: dict[str, Any]) -> None:
    model, b = build(**losses), batch(2)
    kept: dict[int, torch.Tensor] = {}
    x = model.hidden(b, states=kept)
    total = torch.nn.functional.cross_entropy(model.output(x.flatten(0, 1)), b.labels, reduction="sum")
    for name, (layer, ahead) in model.auxiliary.terms.items():  # type: ignore[union-attr]
        if layer >= 2:
            scores = model.auxiliary.outputs[name](kept[layer].flatten(0, 1))  # type: ignore[union-attr]
            labels, places = (b.labels, b.label_positions) if ahead == 1 else b.further[ahead - 2].both
            loss = torch.nn.functional.cross_entropy(scores[places], labels, reduction="sum")
            total = total + loss * (1.0 if ahead == 1 else model.config.further_weight)
    wanted = torch.autograd.grad(total, list(model.parameters()), allow_unused=True)
    model(b, None, 0.0).backward()
    for (name, p), gradient in zip(model.named_parameters(), wanted, strict=True):
        assert p.grad is not None, name  # what no term reaches has a gradient of zero, for all processes
        torch.testing.assert_close(p.grad, torch.zeros_like(p) if gradient is None else gradient)
    if losses.get("layer_losses"):
        assert not model.auxiliary.outputs["layer1_ahead1"].weight.grad.any()  # type: ignore[union-attr]


def test_the_first_layers_learn_from_their_own_predictions() -> None:
    """Where no other term has a gradient, that of layer 1 comes from its own, while it predicts."""
    model = build(layer_losses=True)
    with torch.no_grad():
        model.output.weight.zero_()
        model.auxiliary.outputs["layer2_ahead1"].weight.zero_()  # type: ignore[union-attr]
    for predicting, learns in ((1, True), (2, False)):
        model.zero_grad()
        model(batch(predicting), None, 0.0).backward()
        assert bool(model.layers[0].attention.query.weight.grad.any()) == learns


def test_the_schedule_by_hand() -> None:
    """Of 4 layers in 80 steps, layer l predicts for the first l/8 of them: 10, 20 and 30 steps; the last always."""
    lowest = [lowest_predicting_layer(4, step, 80) for step in range(1, 81)]
    assert lowest == [1] * 10 + [2] * 10 + [3] * 10 + [4] * 50
    assert [lowest_predicting_layer(64, step, 4_000_000) for step in (1, 31_250, 31_251, 62_501)] == [1, 1, 2, 3]
    assert [lowest_predicting_layer(3, step, 7) for step in range(1, 8)] == [1, 1, 2, 3, 3, 3, 3]
    assert [lowest_predicting_layer(1, step, 2) for step in (1, 2)] == [1, 1]


@pytest.mark.parametrize("preset, training, alone", [("char12", 44, 41), ("char64", 235, 219)])
def test_parameter_counts_of_the_paper(preset: str, training: int, alone: int) -> None:
    """Table 2, in millions: 256 characters, and a classifier for each layer and each of two targets."""
    with torch.device("meta"):
        model = config.parse_config(LanguageModelConfig, {"preset": preset}).build(256)
    extra = sum(p.numel() for p in model.auxiliary.parameters())  # type: ignore[union-attr]
    assert extra == (2 * model.config.layers - 1) * 256 * 512
    count = sum(p.numel() for p in model.parameters())
    assert [round(count / 1e6), round((count - extra) / 1e6)] == [training, alone]
    assert all(layer.attention.position.table.shape == (512, 512) for layer in model.layers)
    assert len({id(layer.attention.position) for layer in model.layers}) == model.config.layers


def test_nothing_is_added_where_all_are_off_nor_when_it_measures() -> None:
    plain, model, b = build(), build(**LOSSES).eval(), batch()
    assert plain.auxiliary is None
    model(b, None, 0.0).backward()
    assert all(p.grad is None for p in model.auxiliary.parameters())  # type: ignore[union-attr]
    torch.testing.assert_close(model(b), model.output(model.hidden(b).flatten(0, 1)))


def test_a_body_takes_the_weights_and_leaves_the_classifiers_alone() -> None:
    made = config.parse_config(LanguageModelConfig, {**SIZES, **LOSSES})
    body = made.body(11)
    assert isinstance(body, LanguageModelBody)
    assert body.state_dict().keys() == made.build(11).state_dict().keys()
    assert {n.split(".")[0] for n, p in body.named_parameters() if not p.requires_grad} == {"auxiliary"}


@pytest.mark.parametrize(
    "keys, said",
    [
        ({"targets": 0}, "targets must be at least 1, not 0"),
        ({"further_weight": -1}, "further_weight must be at least 0"),
        ({"layer_losses": True, "norm": "batch"}, "layer_losses needs norm: layer, rms or none"),
        ({"memory": 4}, "learned_per_layer is part of a state"),
    ],
)
def test_what_does_not_go_together_is_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(RegardError, match=said):
        config.parse_config(LanguageModelConfig, {**SIZES, **keys})
