# Everything happens in .venv; the first target that needs it makes it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: quickstart test lint bench gpu clean

quickstart: $(VENV)/.core
	$(BIN)/regard quickstart

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(VENV)/.dev
	$(BIN)/ruff check src tests benchmarks tools
	$(BIN)/mypy

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/all.py --device cpu

# On a machine with a GPU, with its own Python: at most 8 minutes; 3 for one area. ONLY=decoding, COMMIT=…, ARGS=…
gpu:
	PYTHONPATH=src $(PYTHON) tests/gpu/run.py $(if $(ONLY),--only $(ONLY)) $(if $(COMMIT),--commit $(COMMIT)) $(ARGS)

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
