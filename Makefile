# PYTHON only builds .venv; every other command runs inside it.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP_QUIET ?= -qq
PIP := $(BIN)/pip install $(PIP_QUIET) --disable-pip-version-check -c constraints.txt

# Plots are files here, never windows.
export MPLBACKEND := Agg

.PHONY: help setup demo test check bench docs clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 10

setup: $(READY)  ## build .venv with the versions of constraints.txt

demo: $(READY)  ## fit a model on digits, evaluate it on known and novel ones, write a report
	$(BIN)/python examples/own_data.py

test: check  ## check, then run all tests
	$(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal

check: $(READY)  ## lint, format, types and the import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src
	$(BIN)/lint-imports

# glibc keeps freed memory, for all rivals alike: else page faults come and go at random and drown what is measured.
STEADY := MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=8589934592

bench: $(READY)  ## measure speed; results go to benchmarks/results (with TINY=path also on Tiny-ImageNet)
	$(STEADY) OPENRADIAL_CACHE=$(VENV)/openradial-native $(BIN)/python -m benchmarks.run
	$(BIN)/python -m benchmarks.loading $(if $(TINY),--tiny $(TINY))
	$(BIN)/python -m benchmarks.small_training
	$(BIN)/python -m benchmarks.training
	$(BIN)/python -m benchmarks.heads
	$(BIN)/python -m benchmarks.metrics
	$(BIN)/python -m benchmarks.bayes --only speed
	$(BIN)/python -m benchmarks.estimator
	$(BIN)/python -m benchmarks.service

docs: $(READY)  ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:  ## remove .venv, caches and everything that was built
	rm -rf $(VENV) site demo build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A changed lock means a new environment; a changed pyproject.toml only a new install into it.
# The mark is removed first and written last, so an interrupted set-up starts afresh.
$(READY): constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("openradial needs Python 3.11 or newer: make setup PYTHON=/path/to/python")'
	@echo "Setting up $(VENV) (about two minutes)"
	@if ! [ $@ -nt constraints.txt ]; then rm -rf $(VENV) && $(PYTHON) -m venv $(VENV); fi
	@rm -f $@
	@$(PIP) hatchling editables
	@$(PIP) --no-build-isolation -e ".[dev]"
	@command -v chromium > /dev/null || (apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium) > /dev/null 2>&1 \
		|| echo "chromium is not there and apt cannot install it: tests in a browser will be skipped"
	@touch $@
