"""Values of pickles, read without loading them."""

from __future__ import annotations

import collections
import pickle
import pickletools
from typing import Any

import pytest

from rewriter.core import pickle_values
from rewriter.core.pickle_values import Made, PickleError, objects, read


class Thing:
    """Something with a state."""

    def __init__(self, **state: Any) -> None:
        self.__dict__.update(state)


PLAIN = [
    None,
    True,
    -(2**70),
    1.5,
    "text ü",
    b"bytes",
    [1, [2, "x"], (3, (4,), ())],
    {"a": [1], "b": {"c": None}},
    ("same", "same", ["same"]),
    list(range(3000)),
]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("value", PLAIN, ids=lambda value: type(value).__name__)
def test_plain_values_are_what_loading_gives(value: Any, protocol: int) -> None:
    if isinstance(value, bytes) and protocol < 3:
        pytest.skip("a call of codecs.encode")
    assert read(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_object_is_its_name_and_state(protocol: int) -> None:
    inner = Thing(key="k", count=collections.Counter(a=2))
    value = read(pickle.dumps([Thing(inner=inner, again=inner)], protocol))
    outer = value[0]
    assert isinstance(outer, Made)
    assert outer.get("inner") is outer.get("again")
    assert outer.get("inner").get("key") == "k"
    assert outer.get("missing") is None
    names = [one.name.rpartition(".")[2] for one in objects(value)]
    if protocol >= 2:
        assert names[:2] == ["Thing", "Thing"]


def test_a_list_in_itself_ends() -> None:
    value: list[Any] = []
    value.append(value)
    assert list(objects(read(pickle.dumps(value)))) == []


BROKEN = {
    "empty": b"",
    "text": b"hello\nworld",
    "cut": pickle.dumps(PLAIN)[:-40],
    "long length": b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7fx.",
    "append to a number": b"\x80\x04K\x01K\x02a.",
    "a class of doubled tuples": b"\x80\x04)" + b"2\x86" * 60 + b"2\x93.",
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_what_is_no_pickle(data: bytes) -> None:
    with pytest.raises(PickleError):
        read(data)


def test_a_value_that_is_exponential_in_its_pickle_is_walked_once() -> None:
    value = read(b"\x80\x04)" + b"2\x86" * 60 + b".")
    assert list(objects(value)) == []


def test_every_opcode_is_known() -> None:
    """A new protocol would bring opcodes that must not be taken for values."""
    assert max(one.proto for one in pickletools.opcodes) == 5
    assert pickle_values.read(pickle.dumps(bytearray(b"x"), 5)) == b"x"
