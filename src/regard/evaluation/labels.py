"""Metrics of predicted labels, numbers and tags, by scikit-learn, scipy and seqeval; in percent, as GLUE reports them.

The libraries come with regard[metrics] and are imported when something is measured.
"""

import importlib
import importlib.metadata
import warnings
from collections.abc import Sequence
from typing import Any

from regard.errors import RegardError
from regard.reporting import Json

Metrics = dict[str, Json]


def import_library(name: str, package: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise RegardError(f'measuring this needs the package {package}; run pip install "regard[metrics]"') from None


def require_packages(packages: Sequence[str]) -> None:
    """Raise RegardError for a missing package: before training, not after it."""
    for package in packages:
        import_library({"scikit-learn": "sklearn"}.get(package, package), package)


def _signature(package: str) -> str:
    return f"{package} {importlib.metadata.version(package)}"


def _entries(values: dict[str, float], signatures: dict[str, str]) -> Metrics:
    """In percent; what is not defined, such as a correlation with a constant, is 0."""
    return {
        name: {"value": round(100 * float(value), 4) if value == value else 0.0, "signature": signatures[name]}
        for name, value in values.items()
    }


def class_metrics(references: Sequence[str], predictions: Sequence[str], labels: Sequence[str]) -> Metrics:
    """Accuracy, F1 and Matthews' correlation. Of two labels F1 is that of the last (GLUE's "1"), of more their mean."""
    metrics = import_library("sklearn.metrics", "scikit-learn")
    f1: Json = {"average": "macro", "labels": list(labels)}
    of = "mean over labels"
    if len(labels) == 2:
        f1, of = {"average": "binary", "pos_label": labels[-1]}, f"of {labels[-1]}"
    with warnings.catch_warnings(action="ignore"):  # labels that were never predicted
        values = {
            "accuracy": metrics.accuracy_score(references, predictions),
            "f1": metrics.f1_score(references, predictions, zero_division=0, **f1),
            "matthews": metrics.matthews_corrcoef(references, predictions),
        }
    by = _signature("scikit-learn")
    return _entries(values, {"accuracy": by, "f1": f"{by}, {of}", "matthews": f"{by}, × 100"})


def accuracy(references: Sequence[int], predictions: Sequence[int]) -> Metrics:
    metrics = import_library("sklearn.metrics", "scikit-learn")
    return _entries(
        {"accuracy": metrics.accuracy_score(references, predictions)}, {"accuracy": _signature("scikit-learn")}
    )


def number_metrics(references: Sequence[float], predictions: Sequence[float]) -> Metrics:
    """Pearson's and Spearman's correlation."""
    stats = import_library("scipy.stats", "scipy")
    values = {"pearson": 0.0, "spearman": 0.0}
    if len(references) > 1:
        with warnings.catch_warnings(action="ignore"):  # constant input has no correlation
            values = {
                "pearson": stats.pearsonr(references, predictions)[0],
                "spearman": stats.spearmanr(references, predictions)[0],
            }
    return _entries(values, dict.fromkeys(values, f"{_signature('scipy')}, × 100"))


def tag_metrics(references: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]], entities: bool) -> Metrics:
    """Accuracy of single tags; of BIO tags also precision, recall and F1 of whole entities, as in conlleval."""
    metrics = import_library("seqeval.metrics", "seqeval")
    a, b = [list(row) for row in references], [list(row) for row in predictions]
    values = {"accuracy": metrics.accuracy_score(a, b)}
    if entities:
        with warnings.catch_warnings(action="ignore"):  # no entity predicted, or none there
            values |= {
                "precision": metrics.precision_score(a, b, zero_division=0),
                "recall": metrics.recall_score(a, b, zero_division=0),
                "f1": metrics.f1_score(a, b, zero_division=0),
            }
    by = _signature("seqeval")
    return _entries(values, dict.fromkeys(values, f"{by}, entities as conlleval") | {"accuracy": f"{by}, of words"})
