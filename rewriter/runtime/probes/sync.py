"""Waits for the device before and after each launch, so that a fault shows at its launch."""

from . import Probe

PROBE = Probe(
    summary="wait for the device around each launch, so that its faults surface there",
    reads_values=True,
    prompt=True,
)
