# Everything happens in .venv; the first target that needs it makes it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: quickstart test lint bench clean

quickstart: $(VENV)/.core
	$(BIN)/regard quickstart

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(VENV)/.dev
	$(BIN)/ruff check src tests benchmarks tools
	$(BIN)/mypy

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/batches.py
	$(BIN)/python benchmarks/preparing.py
	$(BIN)/python benchmarks/sparse.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install -q -c constraints.txt -e .
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install -q -c constraints.txt -e ".[dev]"
	touch $@ $(VENV)/.core

clean:
	rm -rf $(VENV) runs build dist
