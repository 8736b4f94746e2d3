"""The runtime knows the kinds of launches that run on a GPU without reading `grammars/`."""

from __future__ import annotations

from rewriter.locate.vocabulary import vocabulary
from rewriter.runtime.gpu_kinds import GPU_KINDS


def test_the_runtime_has_the_gpu_kinds_of_the_grammar() -> None:
    assert {name for name, kind in vocabulary().kinds.items() if kind.runs == "gpu"} == GPU_KINDS
    assert "cpp" not in GPU_KINDS
