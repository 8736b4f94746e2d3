"""Times launches: on a GPU by two CUDA events on the stream, elsewhere by the host's clock."""

from . import Probe

PROBE = Probe(
    summary="measure how long each launch runs: CUDA events on a GPU, the clock elsewhere",
    spans=True,
)
