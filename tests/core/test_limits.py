"""Bounds on inputs: stated in the documentation, and kept before anything is read at length."""

from __future__ import annotations

import ast
import io
import struct
import zipfile
from pathlib import Path

import pytest

from artifacts import get
from fuzzing import invoke
from rewriter.core import json_text, limits
from rewriter.core.errors import RewriterError
from rewriter.locate.cpp.lexer import require_parsable

ROOT = Path(__file__).parents[2]
AOTI = get("cpu-torch2.13/mlp aoti")
MODEL = "m/data/aotinductor/model/"
# They write for themselves, or read what this program wrote to itself.
_OWN = (
    "runtime/",
    "execution/hook/startup/",
    "core/json_text.py",
    "artifact/package/pack.py",
    "instrumentation/rebuild/build_cache.py",
    "locate/operators.py",
    "reproduction/under/host/",
)
# Hashes the text and reads it nowhere.
_HASHED = "options_line.py"


def test_the_documentation_states_the_bounds() -> None:
    text = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    table = text.partition("## beyond-bounds\n")[2].partition("\n## ")[0]
    for bound in (limits.WRAPPER_BYTES, limits.SOURCES_BYTES, limits.COMMAND_BYTES,
                  limits.PAGE_BYTES, limits.JSON_BYTES, limits.JSON_LINE_BYTES):  # fmt: skip
        assert f"{bound >> 20} MiB" in table
    for count in (limits.MEMBERS, limits.MODELS, limits.NAME_BYTES, limits.ANGLES):
        assert f"{count:,}" in table
    assert f"{limits.JSON_DEPTH} levels" in table


def test_json_is_read_and_written_in_one_place() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted((ROOT / "rewriter").rglob("*.py"))
        if not str(path.relative_to(ROOT / "rewriter")).startswith(_OWN)
        and "json." in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute)
        and node.attr in ("loads", "load", "dumps", "dump")
        and ast.unparse(node.value) == "json"
        and not (node.attr == "dumps" and path.name == _HASHED)
    ]
    assert not found


REFUSED = {
    "deep": (b"[" * 100_000, "nested deeper than 100 levels"),
    "deeper than the bound": (b"[" * 101 + b"]" * 101, "nested deeper than 100 levels"),
    "an object without end": (b'{"a":' * 100_000, "nested deeper"),
    "NaN": (b'{"a": NaN}', "NaN is not JSON"),
    "infinity": (b"[-Infinity]", "-Infinity is not JSON"),
    "a name twice": (b'{"a": 1, "b": 2, "a": 3}', "has 'a' twice"),
    "no UTF-8": (b'"\xff"', "not UTF-8: byte 0xff at 1"),
    "a surrogate in UTF-8": (b'"\xed\xa0\x80"', "not UTF-8"),
    "UTF-16": ("{}".encode("utf-16"), "not UTF-8"),
    "a huge integer": (b"1" * 10_000, "limit"),
    "half of it": (b'{"a": [1', "line 1"),
    "nothing": (b"", "line 1"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_json_is_refused(what: str) -> None:
    data, says = REFUSED[what]
    with pytest.raises(json_text.JsonError, match=says):
        json_text.parse(data)


def test_json_is_read() -> None:
    deep = b"[" * limits.JSON_DEPTH + b"]" * limits.JSON_DEPTH
    assert json_text.parse(deep)[0][0]
    assert json_text.parse(b'["[[[", "]\\"[", {"a": "\\ud83d\\ude00"}]') == [
        "[[[",
        ']"[',
        {"a": "\U0001f600"},
    ]
    assert json_text.parse(b'{"\\udcff": ["a\\ud800"]}') == {"\\udcff": ["a\\ud800"]}
    assert json_text.parse(b"{}" + b" " * 10, size=12) == {}
    with pytest.raises(json_text.JsonError, match="13 bytes; at most 12 are read"):
        json_text.parse(b"{}" + b" " * 11, size=12)
    for other in (b"[]", b"1", b"null", b'"a"'):
        with pytest.raises(json_text.JsonError, match="expected an object, found"):
            json_text.parse_object(other)


def test_numbers_that_are_not_finite_are_strings() -> None:
    nan, inf = float("nan"), float("inf")
    assert json_text.encode({"a": (1.5, inf), "b": [-inf, {"c": nan}]}) == (
        '{"a": [1.5, "inf"], "b": ["-inf", {"c": "nan"}]}'
    )
    assert json_text.encode({"a": [inf, "é"]}, compact=True) == '{"a":["inf","é"]}'


def test_a_member_that_inflates_without_end_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file,
        file.open(f"{MODEL}a.wrapper.cpp", "w") as member,
    ):
        member.write(AOTI.data)
        for _ in range(limits.WRAPPER_BYTES >> 20):
            member.write(bytes(1 << 20))
    for command in ("list", "doctor", "strip"):
        done = invoke([command, str(path)])
        assert (done.code, done.slug) == (2, "beyond-bounds"), done.errors
        assert done.seconds < 5


def _models() -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as file:
        for number in range(limits.MODELS + 1):
            file.writestr(zipfile.ZipInfo(f"m/data/aotinductor/m{number}/x"), b"")
    return written.getvalue()


def _members(count: int, size: int) -> bytes:
    """What a zip file of so many members ends in, whose directory has a size."""
    end = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, 4)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, 4 + size, 1)
    last = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return b"PK\3\4" + bytes(size) + end + locator + last


TOO_MANY = {
    "models": (_models, "251 models"),
    "members": (lambda: _members(100_001, 46 * 100_001), "100,001 members"),
    "names": (lambda: _members(99, 25 << 20), "a directory of 26,214,400 bytes"),
}


@pytest.mark.parametrize("what", TOO_MANY)
def test_a_package_of_too_many_is_refused(what: str, tmp_path: Path) -> None:
    make, says = TOO_MANY[what]
    path = tmp_path / "model.pt2"
    path.write_bytes(make())
    done = invoke(["list", str(path)])
    assert (done.code, done.slug) == (2, "beyond-bounds"), done.errors
    assert says in done.errors


def test_a_long_command_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    with zipfile.ZipFile(path, "w") as file:
        text = AOTI.data + b"\n// Compile cmd\n// g++ " + b"a" * limits.COMMAND_BYTES
        file.writestr(f"{MODEL}a.wrapper.cpp", text)
    done = invoke(["list", str(path)])
    assert (done.code, done.slug) == (2, "beyond-bounds"), done.errors


def test_templates_that_nothing_closes_are_refused() -> None:
    require_parsable("a.cpp", b"x = " + b"a<b>" * 9999)
    require_parsable("a.cpp", b"// " + b"a<" * 9999 + b"\nx;")
    require_parsable("a.cpp", b"a < b;\n" * 9999)
    with pytest.raises(RewriterError, match="9,999 `<` in one statement"):
        require_parsable("a.cpp", b"x = " + b"a<" * 9999)
