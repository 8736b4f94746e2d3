"""Counts NaN, infinities, and 16-bit numbers near their limit; prints the tensors that have any."""

from . import Probe

PROBE = Probe(
    summary=(
        "count NaN, infinities, and values near the limit of 16-bit types; print tensors with any"
    ),
    of_results=True,
    reads_values=True,
    idle=True,
    measures=True,
)
