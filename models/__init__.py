"""Trained models that `regard` knows by name: a folder each."""
