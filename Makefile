# From a fresh clone: `make demo` or `make test`. Each sets up what it needs, once.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Tested versions of PyTorch; without them the newest: `make demo PINS=`
PINS   ?= -c constraints.txt
# Where else to look for packages. `INDEX=cpu` gets the CPU build of PyTorch (200 MB) on Linux, where the packages on
# PyPI are the CUDA build (several GB); or give the address of an index of your own.
INDEX  ?=
CPU    := https://download.pytorch.org/whl/cpu
EXTRA  := $(if $(INDEX),--extra-index-url $(if $(filter cpu,$(INDEX)),$(CPU),$(INDEX)))
PIP    := $(BIN)/python -m pip install --disable-pip-version-check --quiet $(EXTRA)
# A test has 300 seconds (pyproject.toml). What is stuck where Python's own alarm cannot reach is ended by this one: its
# worker goes, and with it the run. One process a core, one thread each: small networks do not gain from more.
LIMITS := -o faulthandler_timeout=420 -o faulthandler_exit_on_timeout=true
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest

.PHONY: setup demo test gate check bench slow fuzz docs docs-serve clean

setup: $(VENV)/.dev

demo: $(VENV)/.core
	$(BIN)/foveate demo

test: $(VENV)/.dev
	$(PYTEST) -n auto --dist loadfile $(LIMITS)

# the second stage of CI: Ray with two worker processes (which must run here), the other exports, painting in the app
gate: $(VENV)/.dev
	FOVEATE_GATE=1 $(PYTEST) tests -m gate -n 2 --dist loadfile $(LIMITS)

slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m "slow or gate"

# thousands of bad inputs over every verb and format, with counts by group; a sample is part of `make test`
fuzz: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --show 20

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_imports.py

# the documentation site, strictly (a dead link or a name without an entry is an error), into site/: opens offline
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

docs-serve: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve

# every speed as a ratio in one table, in about 20 minutes; a second call takes what is missing
bench: $(VENV)/.dev
	$(BIN)/foveate bench speed

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
	rm -rf $(VENV) build dist site src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
