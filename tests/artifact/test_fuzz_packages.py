"""Mutated packages and containers through every command that reads them: refused, or right."""

from __future__ import annotations

import json
import random
import struct
import zipfile
import zlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import pytest

import fuzzing
import mutators
from artifacts import ARTIFACTS, get
from fuzzing import Case
from test_package_container import MODEL, STEM, WRAPPER, Entry, members, zipped

pytestmark = pytest.mark.properties

_REAL = (
    ARTIFACTS / "cuda-torch2.11/mlp/package/model.pt2",
    ARTIFACTS / "cuda-torch2.11/customop/package/model.pt2",
)
_OPERATORS = get("cpu-torch2.13/mixed_arguments aoti").path.parent
_NAMES = (
    "../x", "/x", "a/../../x", "C:x", "", ".", "..", "x\\y", "x\0y", "a" * 5000, "\ud83d\ude00",
    MODEL, f"{MODEL}x.cpp", f"{MODEL}X.WRAPPER.CPP", WRAPPER.upper(), f"{MODEL}../x.cpp",
    f"{STEM}.json",
    "model/rewriter/manifest.json", "model/rewriter/original.directory", "model/data/weights/w",
    "model/data/aotinductor/other/x.wrapper.cpp", "data/aotinductor/model/x.wrapper.cpp",
    f"{MODEL}weights_config.json", f"{MODEL}x.blob", f"{MODEL}\u202ex.cpp", f"{MODEL}\x1b[31m.cpp",
)  # fmt: skip
_JSON = (
    b"", b"[]", b"{}", b"null", b"[" * 200_000, b'{"a":' * 100_000, b'{"a": NaN}', b'{"a": 1e999}',
    b'{"a": "\\ud800"}', b'{"a": 1, "a": 2}', b'{"AOTI_DEVICE_KEY": 1}', b'{"nodes": 1}',
    b'{"nodes": [1]}', b'{"nodes": [{"node": 1}]}', b'{"nodes": [{"node": {"inputs": 1}}]}',
    b'{"nodes": [{"node": {"target": "a", "inputs": [{"arg": {"as_int": '
    + b"1" * 5000 + b"}}]}}]}",
    b'{"nodes": [{"node": {"target": [], "inputs": [{"arg": {"as_float": "inf"}}]}}]}',
    b'{"AOTI_CPU_ISA": "\\u001b[31m", "AOTI_MACHINE": [1], "AOTI_PLATFORM": "'
    + b"a" * 9999 + b'"}',
    b'{"format": "rewriter.package", "version": 1}', b"\xff\xfe{}", b"\xef\xbb\xbf{}",
    b'{"format": "rewriter.package", "version": 1, "models": {"model": []}, "original": 1}',
)  # fmt: skip
_COMMAND = b"\n// Compile cmd\n// "
_COMMANDS = (
    b"g++ " + b"-I/a " * 1000, b"g++ '", b" " * 100_000 + b"x", b"g++ " + b"''" * 50_000,
    b"/bin/sh -c x",
    b"g++ -I", b"g++ -wrapper /bin/sh,-c,x a.cpp", b"g++ " + b"\\" * 9999, b"g++ -include a -o",
    b"\xff",
)  # fmt: skip


@lru_cache(maxsize=1)
def _with_operators() -> tuple[Entry, ...]:
    """A package whose wrapper calls custom operators."""
    first, second, third, *more = members()
    wrapper = Entry(first.name, (_OPERATORS / "wrapper.cpp").read_bytes())
    operators = Entry(f"{STEM}.json", (_OPERATORS / "wrapper.json").read_bytes())
    return (wrapper, second, third, operators, *more)


def fuzz_package(case: Case) -> None:
    """Make a package with something wrong, and hand it to every command."""
    choices = case.random
    path = case.write("model.pt2", _package(choices))
    if choices.random() < 0.15:
        path = _unpacked(case, path)
    original = _bytes(path)
    case.run("list", path, *choices.choice(((), ("--json",))))
    if choices.random() < 0.5:
        _json(case, "doctor", path)
    out = case.folder / "out"
    done = case.run("instrument", path, "--no-rebuild", "-o", out, "--probe", "print")
    if done.code == 0 and out.is_dir():
        case.run("list", out)
        case.run("strip", out, "-o", case.folder / "restored")
        case.expect(case.outcomes[-1].code == 0, "strip refuses what instrument wrote")
        if isinstance(original, bytes):  # a directory comes back as a package
            case.expect(_bytes(case.folder / "restored") == original, "strip is not exact")
        _mutate_sources(case, out)
    case.run("strip", path, "-o", case.folder / "stripped.pt2")
    case.run("diff", path, choices.choice((path, _REAL[0])), *choices.choice(((), ("--json",))))
    case.expect(_bytes(path) == original, "the package changed")


def _mutate_sources(case: Case, out: Path) -> None:
    """What `--no-rebuild` wrote, edited by somebody."""
    files = [path for path in sorted(out.rglob("*")) if path.suffix in (".json", ".cpp")]
    path = case.random.choice(files)
    data = path.read_bytes()
    if path.suffix == ".json" and case.random.random() < 0.5:
        path.write_bytes(case.random.choice(_JSON))
    else:
        path.write_bytes(mutators.mutate(case.random, data))
    case.run("list", out)
    case.run("strip", out, "-o", case.folder / "again")
    case.run("diff", out, out)


def _json(case: Case, *argv: str | Path) -> None:
    done = case.run(*argv, "--json")
    if done.code < 2:
        json.loads(done.output)


def _bytes(path: Path) -> dict[str, bytes] | bytes:
    return fuzzing.snapshot(path) if path.is_dir() else path.read_bytes()


def _package(choices: random.Random) -> bytes:
    """The bytes of a package: sound members, some exchanged, and the container damaged or not."""
    if choices.random() < 0.1:
        return _damaged(choices, choices.choice(_REAL).read_bytes())
    entries = list(choices.choice((members(), members(library=False), list(_with_operators()))))
    for _ in range(choices.choice((0, 1, 1, 2, 3))):
        _change(choices, entries)
    data = zipped(entries, comment=choices.choice((b"", b"", b"", b"x" * 100, b"PK\5\6" * 20)))
    return _damaged(choices, data) if choices.random() < 0.25 else data


def _change(choices: random.Random, entries: list[Entry]) -> None:
    at = choices.randrange(len(entries))
    old = entries[at]
    data = old.data
    if old.name.endswith(".cpp"):
        data = choices.choice((
            lambda: mutators.mutate(choices, data),
            lambda: data + _COMMAND + choices.choice(_COMMANDS) + b"\n",
            lambda: data[: choices.randrange(len(data) + 1)],
        ))()  # fmt: skip
    elif old.name.endswith(".json"):
        data = choices.choice((choices.choice(_JSON), mutators.mutate(choices, data)))
    claims = (0, 1, len(data) - 1, len(data) + 1, 1 << 20, (1 << 31) - 1, (1 << 32) - 2)
    acts: tuple[Callable[[], Entry | None], ...] = (
        *[lambda: _as(old, data=data)] * 20,
        lambda: _as(old, name=choices.choice(_NAMES)),
        lambda: _as(old, data=data, method=zipfile.ZIP_DEFLATED),
        lambda: _as(old, data=bytes(5_000_000), method=zipfile.ZIP_DEFLATED),
        lambda: _as(old, method=choices.choice((0, 8, 12, 14, 99))),
        lambda: _as(old, flags=choices.choice((0, 1, 8, 0x800, 0xFFFF))),
        lambda: _as(old, size=choices.choice(claims)),
        lambda: _as(old, packed=choices.choice(claims)),
        lambda: _as(old, at=choices.choice(claims)),
        lambda: _as(old, mode=choices.choice((0, 0o120777, 0o40755, 0o177777, 0o10644))),
        lambda: _as(old, raw=choices.choice((b"\xff\xfe", b"a\0b", b"/x", b"x" * 60_000, b""))),
        lambda: _as(old, local=choices.choice((b"other", b"", b"x" * 1000))),
        lambda: None,
    )
    new = choices.choice(acts)()
    if new is None:
        del entries[at]
    elif choices.random() < 0.15:
        entries.insert(choices.randrange(len(entries)), new)
    else:
        entries[at] = new
    if not entries:
        entries.append(old)


def _as(old: Entry, **changes: object) -> Entry:
    fields = {name: getattr(old, name) for name in old.__dataclass_fields__}
    found = Entry(**{**fields, **changes})  # type: ignore[arg-type]
    if found.raw is None and not found.name.isascii():
        return Entry(**{**fields, **changes, "raw": found.name.encode("utf-8", "replace")})  # type: ignore[arg-type]
    return found


def _damaged(choices: random.Random, data: bytes) -> bytes:
    """Bytes flipped, cut or exchanged, most of them where the structure of the file is."""
    marks = [at for mark in (b"PK\1\2", b"PK\3\4", b"PK\5\6") for at in _all(data, mark)]
    out = bytearray(data)
    for _ in range(choices.choice((1, 1, 2, 5))):
        act = choices.random()
        at = choices.randrange(len(out))
        if marks and choices.random() < 0.8:
            at = min(len(out) - 1, choices.choice(marks) + choices.randrange(46))
        if act < 0.5:
            out[at] = choices.randrange(256)
        elif act < 0.7:
            width, bound = choices.choice((("<H", 1 << 16), ("<L", 1 << 32)))
            value = choices.choice((0, 1, bound - 1, bound // 2, choices.randrange(bound)))
            out[at : at + struct.calcsize(width)] = struct.pack(width, value)
        elif act < 0.8:
            del out[at : at + choices.randint(1, 2000)]
        elif act < 0.9:
            out[at:at] = out[: choices.randint(1, 2000)]
        else:
            out += choices.choice((b"x" * 70_000, bytes(data[-200:]), zlib.compress(bytes(100))))
        if not out:
            return b"PK"
    return bytes(out)


def _all(data: bytes, mark: bytes) -> list[int]:
    found, at = [], data.find(mark)
    while at >= 0:
        found.append(at)
        at = data.find(mark, at + 1)
    return found


def _unpacked(case: Case, path: Path) -> Path:
    """The package as a directory, where it can be unpacked at all."""
    folder = case.folder / "unpacked"
    try:
        with zipfile.ZipFile(path) as file:
            file.extractall(folder)
    except Exception:
        return path
    path.unlink()
    return folder


test_mutated_packages = fuzzing.seeded_test("packages", fuzz_package, few=8, many=500)
