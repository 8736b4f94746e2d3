"""The reader of pickles: strings by their keys, others in their place, and nothing executed."""

from __future__ import annotations

import os
import pickle
import pickletools
import struct
from collections import Counter, OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewriter.core import limits
from rewriter.core.errors import RewriterError
from rewriter.core.pickle_reader import read
from rewriter.core.pickle_strings import splice, strings

KEY = "source_code"


@dataclass
class State:
    """An object whose state is a dictionary, as those of torch's cache are."""

    source_code: str
    other: Any = None


class Hostile:
    """An object whose pickle runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


def _values(data: bytes) -> list[str]:
    return [one.value for one in strings(data, [KEY])]


def _expected(value: Any) -> list[str]:
    """What stands under the key, anywhere in a value; bytes are pickles if they begin as one."""
    if isinstance(value, State):
        return _expected(vars(value))
    if isinstance(value, bytes):
        return _expected(pickle.loads(value)) if value[:1] == b"\x80" else []
    if isinstance(value, dict):
        own = [value[KEY]] if isinstance(value.get(KEY), str) else []
        return own + [found for one in value.values() for found in _expected(one)]
    if isinstance(value, list | tuple):
        return [found for one in value for found in _expected(one)]
    return []


def _replaced(value: Any, new: dict[str, str]) -> Any:
    """The same value with other texts under the key; in nested pickles, too."""
    if isinstance(value, State):
        return State(**_replaced(vars(value), new))
    if isinstance(value, bytes):
        if value[:1] != b"\x80":
            return value
        return pickle.dumps(_replaced(pickle.loads(value), new), value[1])
    if isinstance(value, dict):
        return {
            key: new[one] if key == KEY and isinstance(one, str) else _replaced(one, new)
            for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)(_replaced(one, new) for one in value)
    return value


_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(min_size=2, max_size=300)  # Python has shorter ones once, for all that use them
    | st.binary(max_size=300).filter(lambda data: data[:1] != b"\x80")
)
# Each is an object of its own: a string that is shared is written once, and replaced for all.
_LENGTHS = [2, 100, 30_000]  # of a byte, of more, and of more than a frame has
_TEXTS = st.builds(str.__mul__, st.text("äx", min_size=2, max_size=3), st.sampled_from(_LENGTHS))
_PROTOCOLS = st.integers(2, 5)


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = st.just(KEY) | st.text(min_size=2, max_size=3)
    return (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(keys, inner | _TEXTS, max_size=4)
        | st.builds(State, _TEXTS, inner)
        | st.builds(pickle.dumps, inner, st.integers(3, 5))
    )


_VALUES = st.recursive(_LEAVES, _nested, max_leaves=12)


@settings(max_examples=40, deadline=None)
@given(_VALUES, _PROTOCOLS, _TEXTS)
def test_what_stands_under_a_key_is_read_and_replaced_as_python_does(
    value: Any, protocol: int, text: str
) -> None:
    data = pickle.dumps(value, protocol)
    assert splice(data, {}) == data
    there = strings(data, [KEY])
    if protocol == 2:  # which has bytes as text, so that nothing is nested
        return
    assert Counter(one.value for one in there) >= Counter(set(_expected(value)))
    assert {one.value for one in there} == set(_expected(value))
    new = {one.value: f"{text}{one.value}" for one in there}
    patched = splice(data, {one.start: new[one.value] for one in there})
    assert _loaded(patched) == _loaded(pickle.dumps(_replaced(value, new), protocol))
    again = {one.start: one.value for one in strings(patched, [KEY])}
    back = {after: before for before, after in new.items()}
    assert splice(patched, {start: back[text] for start, text in again.items()}) == data
    for _ in pickletools.genops(patched):
        pass


def _loaded(value: Any) -> Any:
    """A value with what is in its pickles: their frames need not be those that Python writes."""
    if isinstance(value, bytes):
        return _loaded(pickle.loads(value)) if value[:1] == b"\x80" else value
    if isinstance(value, State):
        return State(**_loaded(vars(value)))
    if isinstance(value, dict):
        return {key: _loaded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_loaded(one) for one in value)
    return value


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize(
    ("value", "found"),
    [
        ([KEY, "x", (KEY, "y")], []),
        ({"key": KEY, "value": "x"}, []),
        ([State("one"), State("two" * 200)], ["one", "two" * 200]),
        (OrderedDict(source_code="x"), ["x"]),
    ],
    ids=["lists", "a value", "objects", "an ordered dictionary"],
)
def test_strings_stand_under_a_key_of_a_dictionary(
    value: Any, found: list[str], protocol: int
) -> None:
    assert _values(pickle.dumps(value, protocol)) == found


def test_a_shared_string_appears_for_each_and_is_replaced_for_all() -> None:
    text = "shared " * 10
    data = pickle.dumps([{KEY: text}, {KEY: text}])
    there = strings(data, [KEY])
    assert there == there[:1] * 2
    assert pickle.loads(splice(data, {there[0].start: "new"})) == [{KEY: "new"}, {KEY: "new"}]


def test_bytes_that_begin_as_a_pickle_by_chance_stay() -> None:
    data = pickle.dumps({KEY: "x", "blob": b"\x80\x04 no pickle at all."})
    assert _values(data) == ["x"]
    assert splice(data, {strings(data, [KEY])[0].start: "y" * 300}) == pickle.dumps(
        {KEY: "y" * 300, "blob": b"\x80\x04 no pickle at all."}
    )


def test_nothing_is_executed_and_names_are_known(tmp_path: Path) -> None:
    canary = tmp_path / "executed"
    inside = pickle.dumps(Hostile(f"touch {canary}"))
    read_back = read(pickle.dumps({KEY: "x", "inside": inside}))
    assert [(one.module, one.name) for p in read_back.walk() for one in p.names] == [
        (os.system.__module__, "system")
    ]
    assert not canary.exists()


@pytest.mark.parametrize("first", ["c\xe9\nx\n0", "I0x10\n0"], ids=["letters", "a number"])
def test_what_python_alone_reads_hides_no_name(first: str) -> None:
    inside = b"\x80\x03" + first.encode() + b"cos\nsystem\n."
    with pytest.raises(RewriterError, match="damaged"):
        read(pickle.dumps(inside))


_SOUND = pickle.dumps({KEY: "text " * 60, "inside": pickle.dumps(State("x"))}, 4)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        pytest.param(b"", "begin", id="empty"),
        pytest.param(b"PK\x03\x04", "begin", id="a zip file"),
        pytest.param(pickle.dumps({KEY: "x"}, 0), "begin", id="protocol 0"),
        pytest.param(b"\x80\x06N.", "begin", id="protocol 6"),
        pytest.param(_SOUND + b"more", "after its end", id="bytes after the end"),
        pytest.param(b"\x80\x04\xffN.", "opcode .* unknown", id="no opcode"),
        pytest.param(b"\x80\x04h\x00.", "memo", id="an empty memo"),
        pytest.param(b"\x80\x04u.", "no mark", id="items without a mark"),
        pytest.param(b"\x80\x04}s.", "more values than there are", id="an item that is not there"),
        pytest.param(b"\x80\x04}(Nu.", "without a value", id="a key alone"),
        pytest.param(b"\x80\x04(N.", "one object", id="a mark that is left"),
        pytest.param(b"\x80\x04N\x94NN.", "one object", id="several objects"),
        pytest.param(b"\x80\x04NN\x93.", "no string", id="a computed name"),
        pytest.param(b"\x80\x04\x95\xff\0\0\0\0\0\0\0N.", "beyond", id="a long frame"),
        pytest.param(b"\x80\x04\x95\2\0\0\0\0\0\0\0X\2\0\0\0ab.", "within", id="a short frame"),
        pytest.param(b"\x80\x04B\xff\xff\xff\x7fab.", "only 3 remain", id="long bytes"),
        pytest.param(b"\x80\x04X\1\0\0", "not enough data", id="a length that is cut"),
        pytest.param(b"\x80\x04\x8c\x03a\xffc.", "utf-8", id="a string that is not UTF-8"),
        pytest.param(b"\x80\x04cos\nsystem.", "no newline", id="a name without an end"),
        pytest.param(
            pickle.dumps({"inside": pickle.dumps(State("x"), 4)[:-2] + b"\xff."}, 4),
            "opcode .* unknown",
            id="a damaged pickle inside",
        ),
    ],
)
def test_what_python_would_not_read_is_an_error(data: bytes, problem: str) -> None:
    with pytest.raises(RewriterError, match=problem) as caught:
        strings(data, [KEY])
    assert (caught.value.slug, caught.value.code) == ("damaged-pickle", 2)


def test_every_truncated_pickle_is_an_error() -> None:
    for length in range(len(_SOUND)):
        with pytest.raises(RewriterError):
            strings(_SOUND[:length], [KEY])


def test_flipped_bytes_are_read_or_refused() -> None:
    for at in range(len(_SOUND)):
        data = bytearray(_SOUND)
        data[at] ^= 1 << at % 8
        with suppress(RewriterError):
            assert splice(bytes(data), {}) == bytes(data)
            strings(bytes(data), [KEY])


def test_depth_and_number_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pickle.dumps("x")
    for _ in range(limits.PICKLE_NESTING + 1):
        data = pickle.dumps(data)
    with pytest.raises(RewriterError, match="in one another"):
        read(data)
    monkeypatch.setattr(limits, "PICKLE_OPCODES", 10)
    with pytest.raises(RewriterError, match="opcodes"):
        read(pickle.dumps([None] * 20))
    monkeypatch.setattr(limits, "PICKLE_BYTES", 10)
    with pytest.raises(RewriterError, match="bytes"):
        read(pickle.dumps("a long string"))


def test_no_string_at_an_offset_is_an_error() -> None:
    with pytest.raises(ValueError, match="offset 1"):
        splice(_SOUND, {1: "x"})


def test_frames_and_lengths_grow_as_far_as_they_enclose() -> None:
    data = pickle.dumps({KEY: "a" * 10, "b": pickle.dumps([State("c" * 10)], 4)}, 4)
    first, second = strings(data, [KEY])
    patched = splice(data, {second.start: "d" * 70_000})
    outer = read(patched)
    assert struct.unpack("<Q", patched[3:11])[0] == len(patched) - 11
    assert [one.protocol for one in outer.walk()] == [4, 4]
    assert _values(patched) == [first.value, "d" * 70_000]
