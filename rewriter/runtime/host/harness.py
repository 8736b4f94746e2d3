"""The functions of a wrapper that make example inputs (torch/_inductor/codegen/wrapper.py)."""

from __future__ import annotations

MAKE_INPUTS = "get_args"  # returns the inputs, since torch 2.9
BENCHMARK = "benchmark_compiled_module"  # makes the inputs and runs the wrapper; before torch 2.9
HARNESSES = (MAKE_INPUTS, BENCHMARK)
