"""The functions of a wrapper that make example inputs (torch/_inductor/codegen/wrapper.py)."""

from __future__ import annotations

MAKE_INPUTS = "get_args"  # returns them, since torch 2.9
BENCHMARK = "benchmark_compiled_module"  # makes them and runs the wrapper on them, before
HARNESSES = (MAKE_INPUTS, BENCHMARK)
