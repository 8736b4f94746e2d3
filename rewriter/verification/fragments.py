"""What a Triton kernel claims by the fragment of the graph that stands above it."""

from __future__ import annotations

from collections.abc import Mapping

from rewriter.artifact.naming.graph import FxGraph
from rewriter.dump.reading import RunDump
from rewriter.dump.rows import TensorRow
from rewriter.locate.types import Launch
from rewriter.verification.bounded import UncheckedError
from rewriter.verification.types import Checked


def check_fragment(
    graph: FxGraph,
    launch: Launch,
    run: RunDump,
    given: Mapping[str, TensorRow],
    written: Mapping[str, TensorRow],
) -> list[Checked]:
    """Judge the results of a launch. Raises `UncheckedError` where that is too little."""
    raise UncheckedError("not yet")
