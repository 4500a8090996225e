# Everything happens in .venv; the first target that needs it makes it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: try quickstart wheels test quick test-all lint lock docs bench gpu clean

# The models that are here, in a page or in the terminal. ARGS=--terminal, ARGS="--page --port 8080"
try: $(VENV)/.serve
	@$(BIN)/regard try $(ARGS)

quickstart: $(VENV)/.core
	$(BIN)/regard quickstart

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

# What one runs while writing: parts and models, no whole commands, no docs, no browser, at most two minutes.
quick: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow" tests/nn tests/text tests/data tests/decoding tests/evaluation \
		tests/examples tests/training tests/test_*.py --deselect tests/test_benchmarks.py --deselect tests/test_gpu_run.py \
		--deselect tests/test_docs.py --deselect tests/test_library_docs.py

# Everything, the slow tests too; a pass is recorded in tests/last_pass.json, which is committed.
test-all: $(VENV)/.dev
	$(BIN)/python tests/run_all.py

lint: $(VENV)/.dev
	$(BIN)/ruff check src tests benchmarks tools
	$(BIN)/mypy

# regard and regard-models, in dist; the second has the models of models/.
wheels: $(VENV)/bin/python
	$(PIP) wheel -q --no-deps -w dist . ./models

# requirements.lock: constraints.txt with the sha256 of every file; needs a network.
lock: $(VENV)/.dev
	$(BIN)/python tools/lock.py

# The guides in both languages and an API reference from docstrings, in build/site.
docs: $(VENV)/.docs
	$(BIN)/mkdocs build --strict --quiet

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

$(VENV)/.serve: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install -q -c constraints.txt -e ".[serve]"
	touch $@ $(VENV)/.core

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install -q -c constraints.txt -e ".[dev]"
	touch $@ $(VENV)/.core $(VENV)/.serve

$(VENV)/.docs: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install -q -c constraints.txt -e ".[docs]"
	touch $@

clean:
	rm -rf $(VENV) runs build dist
