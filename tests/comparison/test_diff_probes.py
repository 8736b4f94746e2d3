"""What is in a file beyond its original must be what `instrument` writes, or `diff` says so."""

from __future__ import annotations

import json
import random
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import rewriter
from artifacts import get
from rewriter.artifact.types import Wrapper
from rewriter.artifact.wrapper_file import open_known
from rewriter.cli import main
from rewriter.comparison.artifacts.types import Difference
from rewriter.core import markers
from rewriter.core.errors import BAD_INPUT, DIFFERS, OK
from rewriter.instrumentation import probe_check
from rewriter.version import __version__

pytestmark = pytest.mark.properties

# A Python wrapper, C++ in a raw and in another Python string, and C++.
NAMES = (
    "cpu-torch2.13/mlp",
    "cpu-torch2.13/mlp cpp_wrapper",
    "cpu-torch2.6/mlp cpp_wrapper",
    "cpu-torch2.13/mlp aoti",
)
OPTIONS: list[dict[str, Any]] = [
    {},
    {"probe": "names,print,save", "when": "both", "values": True},
    {"kernels": ["cpp_*", '\'\'\'"""\\)x"', "größe %,"], "launches": [range(9), 10]},
    {"format": "upstream", "kernels": "*"},
    {"probe": "inputs,hash"},
]
EXAMPLES = 12  # flipped bytes for each file


def probed(
    name: str, folder: Path, *, standalone: bool = False, **options: Any
) -> tuple[Path, Path]:
    fixture = get(name)
    plain = folder / fixture.path.name
    plain.write_bytes(fixture.data)
    options = dict(options)
    selection = rewriter.select(options.pop("probe", "print"), **options)
    result = rewriter.instrument(plain, selection, standalone=standalone)
    instrumented = folder / f"probed{plain.suffix}"
    instrumented.write_bytes(result.source)
    return plain, instrumented


def inserted(wrapper: Wrapper) -> list[int]:
    """The offsets of all bytes that instrument put in."""
    kept, offset, found = set(wrapper.restored.kept), 0, []
    for number, line in enumerate(markers.lines(wrapper.source), 1):
        if number not in kept:
            found += range(offset, offset + len(line))
        offset += len(line)
    return found


def verdict(plain: Path, data: bytes) -> str:
    """The verdict on changed bytes: `error` where they are no wrapper any more."""
    path = plain.with_name(f"changed{plain.suffix}")
    path.write_bytes(data)
    try:
        return rewriter.diff(plain, path).verdict
    except rewriter.RewriterError:
        return "error"


@pytest.mark.parametrize(
    ("name", "options"), [*product(NAMES, OPTIONS), (NAMES[0], {"standalone": True})], ids=str
)
def test_what_instrument_writes_is_verified(
    name: str, options: dict[str, Any], tmp_path: Path
) -> None:
    plain, path = probed(name, tmp_path, **options)
    found = rewriter.diff(plain, path)
    assert found.verdict == "instrumented"
    probing = found.wrappers[0].probing_b
    assert probing is not None
    assert probing.check.state == "verified"


@pytest.mark.parametrize("standalone", [False, True], ids=["imports", "standalone"])
@pytest.mark.parametrize("name", NAMES)
def test_any_byte_of_the_probes_counts(name: str, standalone: bool, tmp_path: Path) -> None:
    if standalone and name != NAMES[0]:
        pytest.skip("C++ is self-contained")
    flip(name, tmp_path, EXAMPLES, standalone=standalone)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_very_many_bytes_of_the_probes_count(name: str, tmp_path: Path) -> None:
    flip(name, tmp_path, 2000, standalone=name == NAMES[0])


def flip(name: str, folder: Path, count: int, **options: Any) -> None:
    plain, path = probed(name, folder, **options)
    data = path.read_bytes()
    (wrapper,) = rewriter.open(path).wrappers
    places = inserted(wrapper)
    draw = random.Random(name)
    for offset in draw.sample(places, min(count, len(places))):
        byte = data[offset] ^ 1 << draw.randrange(7)
        changed = data[:offset] + bytes([byte]) + data[offset + 1 :]
        assert verdict(plain, changed) not in ("identical", "instrumented"), (offset, byte)


def changed(name: str, folder: Path, old: bytes, new: bytes) -> tuple[Path, Difference]:
    plain, path = probed(name, folder)
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))
    return path, rewriter.diff(plain, path)


def test_a_changed_runtime_is_named_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, old = NAMES[1], b"struct Call {"
    path, found = changed(name, tmp_path, old, b"struct Cull {")
    assert found.verdict == "different"
    line = path.read_bytes().split(b"struct Cull {")[0].count(b"\n") + 1
    plain = tmp_path / "output_code.py"
    assert main(["diff", str(plain), str(path)]) == DIFFERS
    said = capsys.readouterr().out
    assert said.startswith("different: the probes are not what instrument writes\n")
    assert f"line {line} is 'struct Cull {{" in said
    assert "and instrument writes 'struct Call {" in said


def test_a_line_more_in_the_block_or_with_a_mark(tmp_path: Path) -> None:
    _, path = probed(NAMES[0], tmp_path)
    tag = re.search(rb"# rewriter:[0-9a-f]{8}", path.read_bytes())
    assert tag
    for number, (old, new) in enumerate(
        [
            (b"import torch\n", b"import torch\nimport evil  " + tag[0] + b"\n"),
            (b"_rw.after(0", b"_rw.after(1"),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert changed(NAMES[0], folder, old, new)[1].verdict == "different"


def test_of_another_version_nobody_can_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, found = changed(
        NAMES[0], tmp_path, b"rewriter " + __version__.encode(), b"rewriter 0.0.9"
    )
    assert found.verdict == "unverified"
    assert main(["diff", str(tmp_path / "output_code.py"), str(path)]) == DIFFERS
    said = capsys.readouterr().out
    assert said.startswith("unverified: the same without the probes, which could not be checked\n")
    assert "  note: the probes of B are not checked: 0.0.9 wrote them" in said


def test_files_that_do_not_say_how_they_were_made(tmp_path: Path) -> None:
    """As 0.1.0 wrote them at first."""
    for name in NAMES[:2]:
        plain, path = probed(name, tmp_path)
        data = re.sub(rb"(?:#|//) Options: [^\n]*\n", b"", path.read_bytes())
        path.write_bytes(data)
        assert rewriter.diff(plain, path).verdict == "unverified"
        assert rewriter.strip(path).source == plain.read_bytes()
        assert rewriter.strip(path).exact


def test_operators_beside_a_wrapper_count(tmp_path: Path) -> None:
    fixture = get("cpu-torch2.13/customop aoti")
    plain = tmp_path / "wrapper.cpp"
    plain.write_bytes(fixture.data)
    (tmp_path / "wrapper.json").write_bytes(fixture.path.with_suffix(".json").read_bytes())
    assert main(["instrument", str(plain)]) == OK
    path = tmp_path / "wrapper.instrumented.cpp"
    assert rewriter.diff(plain, path).verdict == "instrumented"
    alone = probe_check.check(open_known(path, path.name, path.read_bytes(), "cpp"))
    assert alone is not None
    assert alone.state == "verified"


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, path = probed(NAMES[0], tmp_path)
    assert main(["diff", str(plain), str(path), "--json"]) == OK
    content = json.loads(capsys.readouterr().out)
    assert content["wrappers"][0]["probes_b"]["check"] == {"state": "verified", "reason": ""}


def test_strip_checks_the_probes_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, path = probed(NAMES[0], tmp_path)
    for file, said in ((plain, "has no probes"), (path, "the probes are what instrument writes")):
        assert main(["strip", str(file), "--check-probes"]) == OK
        assert said in capsys.readouterr().err
    path.write_bytes(path.read_bytes().replace(b"_rw.after(0", b"_rw.after(1"))
    assert main(["strip", str(path), "--check-probes"]) == DIFFERS
    assert "the probes are not what instrument writes: line " in capsys.readouterr().err
    assert sorted(one.name for one in tmp_path.iterdir()) == ["output_code.py", "probed.py"]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b" with print,", b" with primt,", "unknown probe 'primt'"),
        (b"Instrumented by", b"instrumented by", "the line that begins them is missing or edited"),
    ],
    ids=["a probe", "the line"],
)
@pytest.mark.parametrize("name", NAMES)
def test_the_first_line_was_edited(
    name: str, old: bytes, new: bytes, why: str, tmp_path: Path, capsys: Any
) -> None:
    """The options behind it are known: a file with probes never passes as a plain one."""
    plain, path = probed(name, tmp_path)
    assert path.read_bytes().count(old) == 1
    path.write_bytes(path.read_bytes().replace(old, new))
    assert main(["strip", str(path), "--check-probes"]) == DIFFERS
    assert why in capsys.readouterr().err
    assert main(["strip", str(plain), "--check-probes"]) == OK


@pytest.mark.parametrize("command", ["instrument", "strip"])
@pytest.mark.parametrize("name", NAMES)
def test_without_its_first_line_a_file_is_refused(
    name: str, command: str, tmp_path: Path, capsys: Any
) -> None:
    """It is no plain file: probes would be nested, or stay in what `strip` calls restored."""
    _, path = probed(name, tmp_path)
    edited = path.read_bytes().replace(b"Instrumented by", b"instrumented by")
    path.write_bytes(edited)
    before = sorted(tmp_path.iterdir())
    for options in (["-o", str(tmp_path / "out" / path.name)], ["--in-place"], ["--check"]):
        assert main([command, str(path), *options]) == BAD_INPUT
        output = capsys.readouterr()
        assert "error[edited-since]" in output.err
        assert f"{path}:" in output.err
        assert not output.out
    assert (path.read_bytes(), sorted(tmp_path.iterdir())) == (edited, before)
