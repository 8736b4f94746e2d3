"""Compares the inputs of each call with those that the wrapper was compiled for, before it runs."""

from . import Probe

PROBE = Probe(
    summary="check sizes, strides, dtypes and devices of the inputs at the start of each call",
    when="inputs",
    reads_values=True,
)
