"""Weights and configs of other libraries, in and out. One file a family; `keys.py` is the engine."""
