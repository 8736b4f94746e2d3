"""Insertions go where they say, and come out again."""

from __future__ import annotations

import pytest

from rewriter import edit, markers
from rewriter.errors import FAILED, RewriterError
from rewriter.types import Insertion


def test_insertions_keep_their_order() -> None:
    insertions = [Insertion(4, b"B", "b"), Insertion(0, b"A", "a"), Insertion(4, b"C", "c")]
    assert edit.apply(b"1234", insertions) == b"A1234BC"
    assert edit.apply(b"", []) == b""


@pytest.mark.parametrize("offset", [-1, 5])
def test_an_insertion_outside_the_file_names_its_author(offset: int) -> None:
    with pytest.raises(ValueError, match="#3 before k"):
        edit.apply(b"1234", [Insertion(offset, b"x", "#3 before k")])


def test_a_plain_file_comes_back_as_it_is() -> None:
    data = b"x = 1\r\ny = '''\n# rewriter:12345678\n'''\rz = 2"
    assert edit.strip(data) == (data, [1, 2, 3, 4, 5], True)


def test_a_tag_is_never_in_the_file() -> None:
    data = b"nothing"
    for _ in range(5):
        tag = markers.draw_tag(data)
        assert tag.encode() not in data
        data += b"  # rewriter:" + tag.encode() + b"\n"


def test_verification_refuses_what_does_not_parse() -> None:
    with pytest.raises(RewriterError, match="does not parse: line 2") as caught:
        edit.verify_python("w.py", b"x = 1\n", b"x = 1\n)\n")
    assert caught.value.code == FAILED


def test_verification_refuses_what_does_not_come_back() -> None:
    with pytest.raises(RewriterError, match="would not give back") as caught:
        edit.verify_python("w.py", b"x = 1\n", b"x = 2\n")
    assert caught.value.code == FAILED
