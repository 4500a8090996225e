"""Labels, numbers and tags are measured as the field does: against formulas written out, and known cases."""

import builtins
from typing import Any

import numpy as np
import pytest

from regard.errors import RegardError
from regard.evaluation.labels import class_metrics, number_metrics, require_packages, tag_metrics


def values(measured: dict[str, dict[str, Any]]) -> dict[str, float]:
    assert all(entry["signature"] for entry in measured.values())
    return {name: entry["value"] for name, entry in measured.items()}


def test_two_classes() -> None:
    g = np.random.default_rng(0)
    right, said = g.integers(0, 2, 200), g.integers(0, 2, 200)
    said[:90] = right[:90]
    tp, fp = (right & said).sum(), ((1 - right) & said).sum()
    fn, tn = (right & (1 - said)).sum(), ((1 - right) & (1 - said)).sum()
    found = values(class_metrics([str(n) for n in right], [str(n) for n in said], ["0", "1"]))
    assert found["accuracy"] == pytest.approx(100 * (tp + tn) / 200, abs=1e-3)
    assert found["f1"] == pytest.approx(100 * 2 * tp / (2 * tp + fp + fn), abs=1e-3)
    root = np.sqrt(float((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)))
    assert found["matthews"] == pytest.approx(100 * (tp * tn - fp * fn) / root, abs=1e-3)


def test_more_classes_and_one_that_is_never_said() -> None:
    right, said = list("aabbcc"), list("aabbaa")
    found = values(class_metrics(right, said, ["a", "b", "c"]))
    assert found["accuracy"] == pytest.approx(66.6667)
    assert found["f1"] == pytest.approx(100 * (2 / 3 + 1 + 0) / 3, abs=1e-3)
    assert values(class_metrics(["a", "b"], ["a", "a"], ["a", "b"]))["matthews"] == 0


def test_numbers() -> None:
    g = np.random.default_rng(1)
    x = g.normal(size=50)
    y = x**3 + 0.1 * g.normal(size=50)
    found = values(number_metrics(x.tolist(), y.tolist()))
    assert found["pearson"] == pytest.approx(100 * np.corrcoef(x, y)[0, 1], abs=1e-3)
    ranks = [a.argsort().argsort() for a in (x, y)]
    assert found["spearman"] == pytest.approx(100 * np.corrcoef(*ranks)[0, 1], abs=1e-3)
    assert values(number_metrics([1.0, 2.0], [3.0, 3.0])) == {"pearson": 0, "spearman": 0}  # a constant has none
    assert values(number_metrics([1.0], [2.0])) == {"pearson": 0, "spearman": 0}


def test_entities_count_as_a_whole() -> None:
    right = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-ORG"]]
    said = [["B-PER", "O", "O", "B-LOC"], ["B-ORG", "I-ORG"]]  # one of three is right, of three that were said
    found = values(tag_metrics(right, said, entities=True))
    assert found == {"accuracy": 50.0, "precision": 33.3333, "recall": 33.3333, "f1": 33.3333}
    assert values(tag_metrics([["NN", "VB"]], [["NN", "NN"]], entities=False)) == {"accuracy": 50}
    assert values(tag_metrics([["O"]], [["O"]], entities=True))["f1"] == 0


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "seqeval":
            raise ImportError(name)
        return real(name, *rest, **more)

    import importlib

    monkeypatch.setattr(importlib, "import_module", without)
    require_packages(["scikit-learn"])
    with pytest.raises(RegardError, match=r"needs the package seqeval; run pip install \"regard\[metrics\]\""):
        require_packages(["seqeval"])
