"""Prints the values around launches: dtype, shape, statistics, counts of NaN and infinities."""

from . import Probe

PROBE = Probe(
    summary="print statistics of every tensor and the value of every scalar",
    of_results=True,
    reads_values=True,
    idle=True,
    measures=True,
)
