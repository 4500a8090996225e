"""What reads text finds no memory at its first batch: it goes on with half as much, gives the same, and says so."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard import recipe as recipes
from regard.decoding import Beam
from regard.decoding.engine import LESS as LESS_SEQUENCES
from regard.decoding.slots import SlotBatch
from regard.examples.batching import LESS, LESS_TOKENS
from regard.reporting import say_once
from regard.run import train_recipe
from tests.tasks import bert_toy, lm_toy

TEXTS = [" ".join(f"w{(n * k) % 20}" for k in range(1, 2 + n % 7)) for n in range(12)]


def full_at_first(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[int]:
    """The first call finds the memory full; how many there were."""
    calls: list[int] = []
    plain = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        calls.append(len(calls))
        if len(calls) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return plain(*arguments, **options)

    monkeypatch.setattr(owner, name, call)
    say_once.cache_clear()
    return calls


def test_pairs_and_translations(
    toy_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, pairs = regard.load(toy_run, "cpu"), [(text, text.upper()) for text in TEXTS]
    scores, translations = model.score(pairs), model.translate(TEXTS, Beam(size=2))
    with monkeypatch.context() as patch:
        calls = full_at_first(patch, model.model, "forward")
        assert [s for s, _ in model.score(pairs)] == pytest.approx([s for s, _ in scores], abs=1e-4)
        assert len(calls) == 3
        assert capsys.readouterr().err == f"regard: {LESS_TOKENS}\n"
    full_at_first(monkeypatch, SlotBatch, "advance")
    assert model.translate(TEXTS, Beam(size=2)) == translations
    assert capsys.readouterr().err == f"regard: {LESS_SEQUENCES}\n"


def trained(made: dict[str, Any], folder: Path) -> Any:
    made["training"] |= {"steps": 2}
    train_recipe(recipes.load_recipe(made), folder / "run", "cpu")
    return regard.load(folder / "run", "cpu")


@pytest.mark.parametrize("memory", [0, 8])
def test_texts(
    memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lm_toy.write_text(tmp_path)
    made = lm_toy.recipe(tmp_path, boundaries="marked" if memory else "kept")
    made["model"] |= {"memory": memory, "position": "transformer_xl" if memory else "sinusoidal"}
    model = trained(made, tmp_path)
    texts = ["the cat sat on a mat", "a dog", "the dog ran"]
    expected = model.score(texts)
    capsys.readouterr()
    full_at_first(monkeypatch, model.model, "forward")
    assert np.allclose(model.score(texts), expected, atol=1e-4)
    assert capsys.readouterr().err == f"regard: {LESS}\n"


def probabilities(model: Any) -> list[float]:
    filled = model.fill(["cat [MASK] .", "a [MASK]"])
    return [guess.probability for line in filled for gap in line for guess in gap]


@pytest.mark.parametrize("ask", [probabilities, lambda model: model.embed(["cat .", "a dog"])])
def test_gaps_and_vectors(
    ask: Callable[[Any], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bert_toy.write_text(tmp_path)
    model = trained(bert_toy.recipe(tmp_path), tmp_path)
    expected = ask(model)
    capsys.readouterr()
    full_at_first(monkeypatch, model.model.body, "hidden_states")
    assert np.allclose(ask(model), expected, atol=1e-4)
    assert capsys.readouterr().err == f"regard: {LESS_TOKENS}\n"
