# PYTHON only builds .venv; every other command runs inside it.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
INSTALL := $(BIN)/python tools/install.py constraints.txt

# Plots are files here, never windows.
export MPLBACKEND := Agg

# Containers often forbid it, but tests that are compiled once start seconds earlier.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup browser demo test coverage quick fuzz faults soak licences audit test-cpus check bench paper paper-full docs clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 12

setup: $(READY)  ## build .venv with the versions of constraints.txt

browser:  ## install chromium with apt, for the tests in a browser (needs root)
	@command -v chromium > /dev/null || { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium; }

demo: $(READY)  ## fit a model on sentences, evaluate it on known and novel ones, write a report
	$(BIN)/python examples/sentences.py

PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal

test: check  ## check, then run all tests
	$(PYTEST)

coverage: $(READY)  ## run all tests and print which lines of src they reach: half as long again as `make test`
	$(PYTEST) -q --cov

quick: $(READY)  ## run the fast tests: no browser, compiler or second process, and none of tests/slow.txt
	$(PYTEST) -q -m "not (slow or browser or distributed or compile)"

fuzz: $(READY)  ## a million executions: Hypothesis tests, parsers of bytes, endpoints (FUZZ="idx --runs 1000" for a part)
	@[ .fuzz/.ready -nt constraints-fuzz.txt ] || { rm -rf .fuzz && $(BIN)/python tools/install.py constraints-fuzz.txt \
		--no-deps --target .fuzz -r constraints-fuzz.txt && touch .fuzz/.ready; }
	PYTHONPATH=$(CURDIR)/.fuzz $(BIN)/python tests/fuzz/run.py $(FUZZ)

faults: $(READY)  ## kill -9, full and read-only disks, mirrors that misbehave, a killed rank (needs root for the disks)
	$(BIN)/python tests/faults/run.py $(FAULTS)

soak: $(READY)  ## 30 minutes of valid and hostile requests to the service (MINUTES=1 for a short one)
	$(BIN)/python -m benchmarks.soak $(if $(MINUTES),--minutes $(MINUTES))

licences: $(READY)  ## list the licences of all packages in docs/licences.md
	$(BIN)/python tools/licences.py

audit: $(READY)  ## compare the installed packages with constraints.txt, their requirements and their checksums
	$(BIN)/python tools/audit.py

test-cpus: $(READY)  ## run the numerical tests as older CPUs, other kernels and other numbers of threads would
	$(BIN)/python tests/cpus.py

check: $(READY)  ## lint, format, types and the import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports

# glibc keeps freed memory, for all rivals alike: else page faults come and go at random and drown what is measured.
STEADY := MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=8589934592

bench: $(READY)  ## measure speed; results go to benchmarks/results (with TINY=path also on Tiny-ImageNet)
	$(STEADY) $(BIN)/python -m benchmarks.run
	$(BIN)/python -m benchmarks.loading $(if $(TINY),--tiny $(TINY))
	$(BIN)/python -m benchmarks.small_training
	$(BIN)/python -m benchmarks.training
	$(BIN)/python -m benchmarks.heads
	$(BIN)/python -m benchmarks.metrics
	$(BIN)/python -m benchmarks.bayes --only speed
	$(BIN)/python -m benchmarks.estimator
	$(BIN)/python -m benchmarks.closed_form
	$(BIN)/python -m benchmarks.table_columns
	$(BIN)/python -m benchmarks.mixed_tables
	$(BIN)/python -m benchmarks.service

PAPER_OUT := reproduction

paper: $(READY)  ## reproduce the paper in quick mode (minutes); results go to reproduction-quick
	$(BIN)/python -m paper all --quick --jobs 2 --out $(PAPER_OUT)-quick --resume

paper-full: $(READY)  ## reproduce the paper with its settings (about 2.5 hours on two cores); results go to reproduction
	$(BIN)/python -m paper all --jobs 2 --out $(PAPER_OUT) --resume

docs: $(READY)  ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:  ## remove .venv, caches and everything that was built
	rm -rf $(VENV) .fuzz site demo build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A changed lock means a new environment; a changed pyproject.toml only a new install into it.
# The mark is removed first and written last, so an interrupted set-up starts afresh.
$(READY): constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("openradial needs Python 3.11 or newer: make setup PYTHON=/path/to/python")'
	@if ! [ $@ -nt constraints.txt ]; then \
		echo "1/2 Creating $(VENV) with $$($(PYTHON) --version)" && rm -rf $(VENV) && $(PYTHON) -m venv $(VENV); fi
	@rm -f $@
	@echo "2/2 Installing openradial and the packages of constraints.txt into $(VENV) (about two minutes)"
	@$(INSTALL) hatchling editables
	@$(INSTALL) --no-build-isolation -e ".[dev]"
	@touch $@
