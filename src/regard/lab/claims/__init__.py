"""A file for each claim; the table of them is `lab/registry.py`."""
