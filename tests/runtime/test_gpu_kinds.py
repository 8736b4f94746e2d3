"""The runtime reads the kinds of launches that run on a GPU without a parser of TOML."""

from __future__ import annotations

from rewriter.locate.vocabulary import vocabulary
from rewriter.runtime.gpu_kinds import gpu_kinds


def test_the_runtime_has_the_gpu_kinds_of_the_grammar() -> None:
    declared = {name for name, kind in vocabulary().kinds.items() if kind.runs == "gpu"}
    assert {*gpu_kinds()} == declared, 'grammars/names.toml: a line begins `NAME = { runs = "gpu"`'
    assert "cpp" not in declared
