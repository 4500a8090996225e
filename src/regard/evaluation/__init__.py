"""Metrics by the field's own libraries, with their signatures. Stands alone: knows texts, not models."""

from regard.evaluation.metrics import Metric, text_metrics

__all__ = ["Metric", "text_metrics"]
