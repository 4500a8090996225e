"""Sequence distillation (Kim and Rush 2016): a student learns from a teacher's translations."""
