# Entry points for developing; `make setup` comes first. CI runs `setup`, `check` and `test`.

BIN := .venv/bin
# Tests that compile, or need a device or a browser.
NOT_UNIT := tests/real tests/gpu tests/browser benchmarks
# Files that are marked as a whole are not even imported: they are a quarter of all lines.
MARKED = $(shell grep -rlE '^pytestmark = pytest\.mark\.(properties|programs)' tests)

.PHONY: help setup format layers check unit test exhaustive fuzz bench gpu docs

help:  ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup:  ## .venv with the project and what developing it needs
	.ci/setup

format:  ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

check:  ## format, style and types, as CI checks them
	.ci/check

layers:  ## the contracts between the rooms, and what breaks them
	$(BIN)/lint-imports

unit:  ## tests of single modules: a minute and a half on 2 cores
	.ci/test $(NOT_UNIT:%=--ignore=%) $(MARKED:%=--ignore=%) -m "not properties and not programs and not exhaustive and not benchmark and not fuzz"

test:  ## all tests but the exhaustive ones, fuzzers' long runs and benchmarks
	.ci/test

exhaustive:  ## what is sampled in `test`, in full
	.ci/test -m exhaustive

fuzz:  ## the fuzzers' long runs: half an hour and more each
	$(BIN)/pytest -m fuzz

bench:  ## ratios of time against plain
	$(BIN)/pytest -m benchmark

gpu:  ## tests that need a CUDA device
	$(BIN)/pytest -m gpu

docs:  ## the site, into build/site
	$(BIN)/mkdocs build --strict --site-dir build/site
