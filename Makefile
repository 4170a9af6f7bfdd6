# Every target sets up .venv when it is missing or when the requirements changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-gpu faults lint types bench docs clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test,dev]'
	@touch $@

demo: $(READY)  ## Run all three phases on the built-in corpus and write a report page
	$(BIN)/metaxlm demo

test: $(READY)  ## Run the test suite
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test-slow: $(READY)  ## Run the tests that take longer: demo sizes, three seeds, many kills
	$(BIN)/python -m pytest -m slow

test-gpu: $(READY)  ## Run the tests that need a CUDA device, and the kernels' tests
	$(BIN)/python -m pytest -m gpu tests
	$(BIN)/python -m pytest tests/model/test_kernels.py

faults: $(READY)  ## Kill, fill, fail and flip: every fault that a training must survive
	$(BIN)/python -m pytest tests/faults -m "" -rP -n 2 --dist worksteal

lint: $(READY)  ## Check style, formatting and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(READY)  ## Check types
	$(BIN)/mypy

bench: $(READY)  ## Measure ours and the peers side by side
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python benchmarks/pretraining.py
	$(BIN)/python benchmarks/feed.py
	$(BIN)/python benchmarks/distillation.py
	$(BIN)/python benchmarks/finetuning.py --builtin
	$(BIN)/python benchmarks/embedding.py --builtin
	$(BIN)/python benchmarks/retrieval.py --size 20000
	$(BIN)/python benchmarks/alignment.py --builtin
	$(BIN)/python benchmarks/corpus.py peer
	$(BIN)/python benchmarks/wikitext.py

docs: $(READY)  ## Build the documentation site into site/; a broken link fails
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	$(BIN)/python docs/build.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:  ## Remove what the targets made
	rm -rf $(VENV) site build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache
