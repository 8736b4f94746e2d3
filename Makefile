# Entry points for developing; `make setup` comes first. CI runs `setup`, `check` and `test`.

BIN := .venv/bin
WORKERS ?= 2
# By file, since what is made for one is shared by its tests; in the order of tests/conftest.py,
# which has those that take longest first.
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
NOT_UNIT := real gpu browser bench

.PHONY: help setup format lint types layers check unit test exhaustive fuzz bench gpu docs

help:  ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup:  ## .venv with the project and what developing it needs
	.ci/setup

format:  ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint:  ## format and style, as CI checks them
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types:  ## mypy, strict
	$(BIN)/mypy

layers:  ## the rooms and the arrows between them
	$(BIN)/pytest -q -s tests/core/test_layers.py

check: lint types  ## all checks that run no test

unit:  ## tests that compile nothing and start few programs
	$(PYTEST) -q $(NOT_UNIT:%=--ignore=tests/%)

test:  ## all tests but the exhaustive ones, fuzzers' long runs and benchmarks
	$(PYTEST) -q

exhaustive:  ## what is sampled in `test`, in full
	$(PYTEST) -q -m exhaustive

fuzz:  ## the fuzzers' long runs: half an hour and more each
	$(BIN)/pytest -m fuzz

bench:  ## ratios of time against plain
	$(BIN)/pytest -m benchmark

gpu:  ## tests that need a CUDA device
	$(BIN)/pytest -m gpu

docs:  ## the site, into build/site
	$(BIN)/mkdocs build --strict --site-dir build/site
