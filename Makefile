# From a fresh clone: `make demo` or `make test`. Each sets up what it needs, once.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# CPU machines keep the pins; on a GPU machine: `make demo PINS=`
PINS   ?= -c constraints.txt
PIP    := $(BIN)/python -m pip install --disable-pip-version-check --quiet

.PHONY: demo test check bench slow fuzz clean

demo: $(VENV)/.core
	$(BIN)/foveate demo

# one process a core, one thread each: small networks do not gain from more
test: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile

slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m slow

# thousands of bad inputs over every verb and format, with counts by group; a sample is part of `make test`
fuzz: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --show 20

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_imports.py

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The stamps make a second call install nothing; they are renewed when what is to be installed changes.
$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) $(PINS) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) $(PINS) -e '.[dev]'
	@touch $@ $(VENV)/.core

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
