# Each target first makes .venv from requirements.lock, once; after that nothing is installed or looked up.
# Settings of `make sim` go on the command line: make sim POLICY=fifo TRACE=philly CLUSTER=v100:32x8 SEED=1

POLICY ?= hetero
TRACE ?= philly
BIN := .venv/bin
STAMP := .venv/.complete

# Options that are empty stay off the command line, so that the program's own defaults hold.
SIM_OPTIONS = $(if $(FORMAT),--format "$(FORMAT)") $(if $(CLUSTER),--cluster "$(CLUSTER)") \
  $(if $(JOBS),--jobs "$(JOBS)") $(if $(SEED),--seed "$(SEED)") $(if $(LOAD),--load "$(LOAD)") \
  $(if $(OUT),--out "$(OUT)")

.DEFAULT_GOAL := help
.PHONY: help sim test lint index bench bench-parts figures lock clean

help: ## list the targets
	@echo 'usage: make TARGET [NAME=value ...]'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 14
	@echo 'settings of sim: POLICY= TRACE= CLUSTER= FORMAT= JOBS= SEED= LOAD= OUT= ARGS='

sim: $(STAMP) ## simulate one trace under one policy (POLICY=hetero TRACE=philly)
	@$(BIN)/hetsim run --policy "$(POLICY)" --trace "$(TRACE)" $(SIM_OPTIONS) $(ARGS)

# As many processes as there are cores; one that has nothing left takes tests of another.
test: $(STAMP) ## run the tests (ARGS= goes to pytest; ARGS="-n0 ..." runs them in one process)
	@$(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

.PHONY: test-quick
test-quick: $(STAMP) ## run a first layer of them: nothing slow, of each test two parameters (docs/contributing.md)
	@$(BIN)/python -m pytest --quick -n auto --dist worksteal $(ARGS)

# PyTorch is an extra, and large: it is installed apart, once, and nothing but these tests sees it.
TORCH ?= torch==2.13.0
.PHONY: test-torch
test-torch: $(STAMP) ## run the tests that need PyTorch (TORCH= names another version)
	@test -e .venv/torch/.complete || { \
	  echo 'Installing $(TORCH) into .venv/torch (once; takes some minutes) ...' >&2; rm -rf .venv/torch; \
	  $(BIN)/python -m pip install -qq --disable-pip-version-check --no-input --target .venv/torch '$(TORCH)' && \
	  touch .venv/torch/.complete; }
	@PYTHONPATH=.venv/torch $(BIN)/python -c 'import torch'
	@PYTHONPATH=.venv/torch $(BIN)/python -m pytest tests/torch $(ARGS)

lint: $(STAMP) ## check style, types, the direction of imports and the laws of the house
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m house.check

index: $(STAMP) ## write docs/files.md anew, what each file holds
	@$(BIN)/python -m house.index > docs/files.md.new && mv docs/files.md.new docs/files.md

bench: $(STAMP) ## measure whole runs (AGAINST=revision: beside it; ARGS=--all: every row, ARGS=--help: all options)
	@$(BIN)/python -m benchmarks $(if $(AGAINST),--against "$(AGAINST)") $(ARGS)

bench-parts: $(STAMP) ## measure what surrounds a run: reading, generating, planning, analysis (ARGS= goes to pytest)
	@$(BIN)/python -m pytest benchmarks -o python_files='bench_*.py test_*.py' --benchmark-only $(ARGS)

figures: $(STAMP) ## make the figures of experiments/, what is done is kept (RUNS=runs: instead those of runs)
	@$(BIN)/hetsim $(if $(RUNS),figures --force "$(RUNS)",reproduce experiments) $(if $(OUT),--out "$(OUT)") $(ARGS)

# The oldest Python that is supported resolves, so that what only it needs is in the lock too.
lock: $(STAMP) ## write requirements.lock from pyproject.toml (ARGS=--upgrade: newest versions)
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) and "make lock needs a .venv of Python 3.11")'
	@PIP_CONFIG_FILE=/dev/null PIP_FIND_LINKS= PIP_EXTRA_INDEX_URL= CUSTOM_COMPILE_COMMAND='make lock' \
	  $(BIN)/pip-compile --quiet --no-config --extra dev --build-deps-for editable --allow-unsafe \
	  --generate-hashes --strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
	  --output-file requirements.lock $(ARGS) pyproject.toml

clean: ## remove the environment, caches and build products (runs and figures stay)
	@rm -rf .venv dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks \
	  .coverage htmlcov
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# .venv/.building marks an environment that is not whole; one that is found at the start is made anew.
$(STAMP): requirements.lock pyproject.toml
	@set -e; \
	if [ -e .venv/.building ] || ! $(BIN)/python -c 'import pip' 2>/dev/null; then \
	  python=; \
	  for candidate in $(PYTHON) python3.13 python3.12 python3.11 python3; do \
	    if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	      python=$$candidate; break; \
	    fi; \
	  done; \
	  if [ -z "$$python" ]; then \
	    echo 'hetsim needs Python 3.11 or newer with its venv module; none was found as python3.13, python3.12,' \
	      'python3.11 or python3. Install one, or name it: make PYTHON=/path/to/python3' >&2; \
	    exit 2; \
	  fi; \
	  trap 'rm -rf .venv; echo "The environment was not finished and is removed; run make again." >&2; exit 2' \
	    INT TERM HUP; \
	  trap 'test -e $(STAMP) || rm -rf .venv' EXIT; \
	  echo "Making .venv with $$("$$python" -V) (once; takes a minute or two) ..." >&2; \
	  rm -rf .venv; mkdir .venv; touch .venv/.building; \
	  "$$python" -m venv .venv; \
	else \
	  echo 'Bringing .venv up to requirements.lock ...' >&2; \
	  touch .venv/.building; rm -f $(STAMP); \
	fi; \
	$(BIN)/python -m pip install -qq --disable-pip-version-check --no-input --require-hashes -r requirements.lock; \
	$(BIN)/python -m pip install -qq --disable-pip-version-check --no-input --no-deps --no-build-isolation -e .; \
	rm -f .venv/.building; touch $(STAMP)
