"""Unified diffs are right: `patch` would make the second text of the first."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewriter.core.text_diff import matches, unified

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@\n")
NO_NEWLINE = "\\ No newline at end of file\n"


def lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+$", text)


def patched(before: str, diff: str) -> str:
    """What `patch` makes of a text, with every number in the diff checked."""
    old, written = lines(before), lines(diff)
    assert written[0].startswith("--- ")
    assert written[1].startswith("+++ ")
    result: list[str] = []
    read = 0
    position = 2
    while position < len(written):
        match = _HUNK.fullmatch(written[position])
        assert match, written[position]
        start, length, new_start, new_length = (1 if x is None else int(x) for x in match.groups())
        first = start - (length > 0)
        result += old[read:first]
        read = first
        assert len(result) == new_start - (new_length > 0)
        position += 1
        seen = [0, 0]
        while seen != [length, new_length]:
            sign, line = written[position][0], written[position][1:]
            position += 1
            if written[position : position + 1] == [NO_NEWLINE]:
                line = line.removesuffix("\n")
                position += 1
            if sign in " -":
                assert old[read] == line
                read += 1
                seen[0] += 1
            if sign in " +":
                result.append(line)
                seen[1] += 1
    return "".join([*result, *old[read:]])


texts = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "d\r\n", "\n"]), max_size=25).map("".join)
ends = st.sampled_from(["", "x", "\r"])


@given(texts, ends, texts, ends)
def test_a_diff_leads_from_one_text_to_the_other(a: str, end_a: str, b: str, end_b: str) -> None:
    before, after = a + end_a, b + end_b
    diff = unified(before, after, "a", "b")
    assert (patched(before, diff) if diff else before) == after


@given(texts, texts)
def test_matches_are_equal_and_in_order(a: str, b: str) -> None:
    left, right = lines(a), lines(b)
    found = matches(left, right)
    assert all(left[i] == right[j] for i, j in found)
    assert all(i < k and j < m for (i, j), (k, m) in itertools.pairwise(found))


@pytest.mark.parametrize(
    ("a", "b", "diff"),
    [
        pytest.param("", "", "", id="nothing"),
        pytest.param("x\n", "x\n", "", id="equal"),
        pytest.param("", "x\n", "--- a\n+++ b\n@@ -0,0 +1 @@\n+x\n", id="all new"),
        pytest.param(
            "x", "x\n", f"--- a\n+++ b\n@@ -1 +1 @@\n-x\n{NO_NEWLINE}+x\n", id="a newline"
        ),
        pytest.param("x\r\n", "x\n", "--- a\n+++ b\n@@ -1 +1 @@\n-x\r\n+x\n", id="a line end"),
    ],
)
def test_the_text_of_a_diff(a: str, b: str, diff: str) -> None:
    assert unified(a, b, "a", "b") == diff


def test_changes_far_apart_are_hunks_of_their_own() -> None:
    before = [f"{number}\n" for number in range(30)]
    after = [*before[:5], *before[6:13], "new\n", *before[13:]]
    diff = unified("".join(before), "".join(after), "a", "b")
    assert re.findall("@@.*@@", diff) == ["@@ -3,7 +3,6 @@", "@@ -11,6 +10,7 @@"]
    near = unified("".join(before), "".join([*before[:5], *before[6:11], *before[12:]]), "a", "b")
    assert re.findall("@@.*@@", near) == ["@@ -3,13 +3,11 @@"]
