"""Corpora, their prepared form, batches and the loader. Knows no models and no tasks."""
