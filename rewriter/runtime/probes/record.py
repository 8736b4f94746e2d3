"""Records the last launches in a ring that outlives the process: their values, and marks.

It prints nothing. Its rows are those of `hash`; the marks say how far each thread got.
"""

from . import Probe

PROBE = Probe(
    summary=(
        "keep the last launches, with statistics and fingerprints, beyond the end of the program"
    ),
    when="after",
    of_results=True,
    reads_values=True,
    measures=True,
    saves=True,
    marks=True,
)
