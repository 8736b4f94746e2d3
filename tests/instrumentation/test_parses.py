"""How often a C++ wrapper is parsed: once to find its launches, once to check the result."""

from __future__ import annotations

import pytest
import tree_sitter

import rewriter
from artifacts import get


@pytest.mark.parametrize("name", ["cpu-torch2.13/mlp aoti", "cuda-torch2.11/gpt aoti"])
def test_nothing_is_parsed_more_than_twice(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    entries: set[int] = set()
    real = tree_sitter.Parser

    def parser(
        language: tree_sitter.Language, *, included_ranges: list[tree_sitter.Range]
    ) -> tree_sitter.Parser:
        parsed.append(sum(one.end_byte - one.start_byte for one in included_ranges))
        entries.add(included_ranges[0].start_byte)
        return real(language, included_ranges=included_ranges)

    monkeypatch.setattr(tree_sitter, "Parser", parser)
    fixture = get(name)
    result = rewriter.instrument(fixture.path, rewriter.select("print", when="both"))
    assert result.plan.probed
    # Each entry stands at one place in the plain file, and at another in the result.
    assert len(parsed) == len(entries)
    half = len(parsed) // 2
    assert sum(parsed[:half]) <= len(fixture.data)
    assert sum(parsed[half:]) <= len(result.source)
