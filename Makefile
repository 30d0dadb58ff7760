# fixcost: `make bench` measures, `make test` proves the suite right; both set up .venv themselves.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3.11
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
LOCK := requirements/cpu.lock
IN_VENV := .venv/bin/python -m

.PHONY: help setup bench dashboard history test validate vendor lint format lock clean

help: ## List what can be made
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 16

setup: .venv/complete ## Install everything into .venv, exactly as locked

# torch comes first: where no configured index has its CPU build, PyTorch's own does. Nothing else
# is looked up there. Byte code is made afterwards, on all cores.
.venv/complete: $(LOCK) pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
	  { echo "fixcost needs Python 3.11 (make PYTHON=/path/to/python3.11)." >&2; exit 2; }
	@$(PYTHON) -m venv .venv || \
	  { echo "Python's venv module is missing (on Debian: python3.11-venv)." >&2; exit 2; }
	@echo "Installing into .venv; this takes a minute or two."
	@torch=$$(grep '^torch==' $(LOCK)); \
	  $(IN_VENV) pip install --no-deps --no-compile "$$torch" 2>.venv/torch.log || \
	  $(IN_VENV) pip install --no-deps --no-compile --index-url $(TORCH_INDEX) "$$torch"
	@$(IN_VENV) pip install --no-deps --no-compile -r $(LOCK)
	@$(IN_VENV) pip install --no-deps --no-build-isolation --quiet --editable .
	@echo "Compiling byte code."
	@$(IN_VENV) compileall -q -j 0 .venv/lib >.venv/compile.log 2>&1 || true
	@touch $@

bench: .venv/complete ## Measure both branches and say what the fix costs
	@.venv/bin/fixcost bench

dashboard: .venv/complete ## Publish what was measured, serve it and print its address
	@.venv/bin/fixcost dashboard

history: .venv/complete ## Measure every known vLLM release that is not measured yet (20 to 25 minutes)
	@.venv/bin/fixcost history add

test: .venv/complete lint ## Run every check and every test
	$(IN_VENV) pytest --benchmark-disable

validate: .venv/complete ## Show what the instrument can do (15 minutes); writes docs/validation.md
	@$(IN_VENV) validation

vendor: ## Take the libraries of asv's pages from their npm packages anew
	scripts/vendor.sh

lint: .venv/complete ## Check style and types
	$(IN_VENV) ruff check .
	$(IN_VENV) ruff format --check .
	$(IN_VENV) mypy

format: .venv/complete ## Format the code
	$(IN_VENV) ruff format .
	$(IN_VENV) ruff check --fix .

# PyPI's builds of the four left out are not needed and break beside the CPU build of torch.
lock: ## Choose the newest versions that fit and write them to requirements/cpu.lock
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet pip-tools
	CUSTOM_COMPILE_COMMAND="make lock" .venv-lock/bin/python -m piptools compile --quiet --upgrade \
	  --extra cpu --extra dev --strip-extras --no-emit-find-links --no-emit-index-url \
	  --unsafe-package torchvision --unsafe-package torchaudio --unsafe-package torchcodec \
	  --unsafe-package triton --output-file $(LOCK) pyproject.toml

clean: ## Remove the environment and everything measured that is not committed
	rm -rf .venv .venv-lock .asv .subject sweeps
