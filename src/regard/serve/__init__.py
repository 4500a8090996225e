"""Trained models behind HTTP: one process that talks to clients, and worker processes that own the models."""
