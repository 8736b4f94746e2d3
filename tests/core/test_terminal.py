"""What artifacts hold does not act on a terminal: names, metadata, recorded commands."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import dumps
from artifacts import get
from caches import put_probes
from rewriter import cli
from rewriter.core import terminal
from rewriter.core.terminal import escape, say, say_text, table

ROOT = Path(__file__).parents[2]
# An escape sequence, a C1 control, marks that turn the direction of writing, a forged message.
EVIL = "\x1b[31mred\x9b2J\u202eevil\u2066\x07\rover\nrewriter: FORGED\u2028end"
LINE = EVIL.replace("\n", "").replace("\r", "").replace("\u2028", "")  # where lines are taken apart
PLAIN = get("cpu-torch2.13/mlp")
AOTI = get("cpu-torch2.13/mlp aoti").path.parent

Run = Callable[..., tuple[int, str, str]]


def harmless(text: str) -> None:
    """Nothing acts on a terminal, and no line is anybody's but ours."""
    found = sorted({one for one in text if not (one.isprintable() or one in "\n\t")})
    assert not found, (found, text)
    assert not re.search(r"^rewriter: FORGED", text, re.MULTILINE), text


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def runs(*words: object) -> tuple[int, str, str]:
        code = cli.main([str(word) for word in words])
        out, err = capsys.readouterr()
        harmless(out)
        harmless(err)
        return code, out, err

    return runs


def wrapper_source(name: str = "cpu-torch2.13/mlp") -> bytes:
    """A wrapper with comments, and a call that nobody recognises, of the worst sort."""
    text = get(name).data.decode()
    text = re.sub(r"Source Nodes: \[", f"Source Nodes: [{LINE}, ", text)
    where = text.index("        assert_size_stride(")
    return (text[:where] + f'        unknown("{LINE}")\n' + text[where:]).encode()


@pytest.fixture
def wrappers(tmp_path: Path) -> Path:
    """A directory of wrappers, sound and not, with such names."""
    folder = tmp_path / f"debug{EVIL}"
    folder.mkdir()
    (folder / f"one{EVIL}.py").write_bytes(wrapper_source())
    (folder / "two.py").write_bytes(wrapper_source())
    (folder / f"broken{EVIL}.py").write_bytes(wrapper_source() + f'x = "{LINE}" 1\n'.encode())
    (folder / f"other{EVIL}.pt2").write_bytes(b"PK\3\4 nothing")
    (folder / f"dedicated{EVIL}.log").write_text(log())
    return folder


def log() -> str:
    """A trace log whose first wrapper is elsewhere, and whose second was edited."""
    head = "V1121 15:11:18.209000 1 torch/_inductor/graph.py:1] "
    about = {"inductor_output_code": {"filename": EVIL}, "frame_id": EVIL, "frame_compile_id": 0}
    edited = {**about, "has_payload": hashlib.md5(b"another").hexdigest(), "frame_id": 1}
    text = PLAIN.data.decode().replace("\n", "\n\t")
    return f"{head}{json.dumps(about)}\n{head}{json.dumps(edited)}\n\t{text}\n"


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["list", "--wrapper", f"nothing{EVIL}"],
        ["instrument", "--check"],
        ["instrument", "--check", "--wrapper", "*one*"],
        ["instrument", "--wrapper", "*one*", "--kernels", EVIL],
        ["strip", "--check"],
        ["diff"],
        ["run"],
        ["instrument", "--in-place", "--wrapper", "*one*", "--wrapper", "*two*"],
        ["instrument", "-o", f"out{EVIL}", "--wrapper", "*one*", "--wrapper", "*two*"],
        ["strip", "-o", f"x{EVIL}/{EVIL}", "--wrapper", "*one*"],
        ["triage", "--wrapper", EVIL],
        ["report"],
        ["compare", "--ranks"],
        [EVIL],
        ["list", f"--{EVIL}"],
        ["list", EVIL],
        ["run", "--args", EVIL],
        ["cache", "list", "--dir"],
        ["run", "--dump", EVIL, "--", EVIL],
    ],
    ids=lambda words: escape(" ".join(words)),
)
def test_directories(
    words: list[str], wrappers: Path, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    other = [wrappers] if words[0] == "diff" else []
    words = words if "--" in words or words == ["list", EVIL] else [*words, str(wrappers)]
    _, out, err = run(*words, *other)
    assert out + err
    for option in ("--json",):
        if words[0] in ("list", "diff"):
            run(*words, *other, option)


def test_a_wrapper_and_its_difference(
    wrappers: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = wrappers / f"one{EVIL}.py", wrappers / "two.py"
    two.write_bytes(two.read_bytes().replace(b"beta=1", b"beta=2", 1))
    assert "unknown" in run("list", one)[2]
    run("instrument", one, "--kernels", "nothing")
    # As the text of a file goes to a terminal; a pipe gets it as it is, for `patch`.
    monkeypatch.setattr(terminal, "is_terminal", lambda stream: True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\\x1b[31mred" in run("instrument", one, "--diff")[1]
    assert run("diff", "-u", one, two)[0] == 1
    assert run("instrument", one)[0] == 0
    assert run("strip", one.with_name(f"one{EVIL}.instrumented.py"), "--diff")[0] == 0


def package(path: Path) -> Path:
    """A package whose metadata, model, members and commands are of this sort."""
    root = f"pack/data/aotinductor/model{LINE}/"
    source = (AOTI / "wrapper.cpp").read_text()
    source = re.sub(
        r"(// (?:Compile|Link) cmd\n// )g\+\+", rf"\1/opt/{LINE}/g++ '-D{LINE}'", source
    )
    facts = json.loads((AOTI / "wrapper_metadata.json").read_text())
    named = ("DEVICE_KEY", "PLATFORM", "MACHINE", "CPU_ISA", "COMPUTE_CAPABILITY")
    facts |= {EVIL: EVIL, **{f"AOTI_{name}": EVIL for name in named}}
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("pack/archive_format", "pt2")
        file.writestr("pack/version", "0")
        file.writestr(root + "one.wrapper.cpp", source)
        file.writestr(root + "one.kernel.cpp", (AOTI / "kernel.cpp").read_bytes())
        file.writestr(root + "one_metadata.json", json.dumps(facts))
        file.writestr(root + "one.wrapper.so", b"\x7fELF" + LINE.encode())
        file.writestr(f"pack/data/constants/{LINE}", LINE)
    return path


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["doctor"],
        ["instrument", "--check"],
        ["instrument"],
        ["strip"],
        ["list", "--model", EVIL],
        ["run", "--args", EVIL],
        ["diff"],
    ],
    ids=lambda words: escape(" ".join(words)),
)
def test_packages(words: list[str], tmp_path: Path, run: Run) -> None:
    path = package(tmp_path / f"model{EVIL}.pt2")
    other = []
    if words == ["diff"]:
        other = [shutil.copy(path, tmp_path / "other.pt2")]
        with zipfile.ZipFile(other[0], "a") as file:
            file.writestr(f"pack/extra/{LINE}", LINE)
    _, out, err = run(*words, path, *other)
    assert "\\x1b" in out + err or words == ["list"]  # which names none of it


def test_dumps(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = []
    for number in range(2):
        rows = [dumps.value(EVIL, "in", device=EVIL, mean=number)]
        nan = dumps.value(EVIL, "out", number * 2.0, nan=3, device=EVIL)
        launch = dumps.launch(
            0, EVIL, rows, [nan], source_nodes=[EVIL], origins=[EVIL], kind=EVIL, scope=EVIL
        )
        made.append(
            dumps.write(
                tmp_path / f"dump{number}{EVIL}",
                [launch],
                artifact=f"{EVIL}.py",
                inputs=[dumps.value(EVIL, unexpected=EVIL)],
            )
        )
        dumps.write(made[0], [launch], artifact=f"{EVIL}.py", rank=number + 1, pid=number)
    assert run("report", made[0])[0] == 1
    assert run("compare", *made)[0] == 1
    assert run("compare", *made, "--all", "--html", f"x{EVIL}.html")[0] == 1
    run("compare", made[0], "--ranks", "--all")
    run("compare", made[0], "--ranks", EVIL)
    run("compare", *made, "--rtol", EVIL)
    run("report", made[0], "--run", EVIL, "--overwrite")
    run("list", made[0])


def test_caches(tmp_path: Path, run: Run) -> None:
    folder = tmp_path / f"cache{EVIL}" / "ab"
    folder.mkdir(parents=True)
    (folder / f"cab{EVIL}.py").write_bytes(wrapper_source())
    (folder / "cabbroken.py").write_bytes(wrapper_source() + f'x = "{LINE}" 1\n'.encode())
    (folder / f"cabother{EVIL}.py").write_text(f"# {LINE}\n")
    words = ["--dir", folder.parent]
    assert run("cache", "list", *words)[0] == 0
    run("cache", "list", *words, EVIL)
    put_probes(folder.parent, names=[f"ab/cab{EVIL}.py"])
    assert run("cache", "status", *words)[0] == 1
    assert run("cache", "restore", *words)[0] == 0
    run("cache", "restore", *words, EVIL)


@pytest.mark.parametrize("name", ["commands", "cli.py"])
def test_nothing_else_prints(name: str) -> None:
    """Files that `-o -` writes are bytes, and go to the buffer; the help is ours."""
    place = ROOT / "rewriter" / name
    for file in place.rglob("*.py") if place.is_dir() else [place]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("print", "sys.stdout.write"), f"{file}:{node.lineno}"
                assert called != "sys.stderr.write"


def _rows(*widths: int) -> list[list[str]]:
    return [["x" * width for width in widths] for _ in range(2)]


@pytest.mark.parametrize(
    ("widths", "limit", "cut"),
    [
        ((3, 3), 80, (3, 3)),
        ((3, 90, 3), 40, (3, 30, 3)),
        ((50, 60), 42, (20, 20)),
        ((20, 60), 42, (20, 20)),
        ((50, 60), 5, (8, 8)),
    ],
    ids=["fits", "one", "two", "the wider", "too narrow"],
)
def test_tables_fit_the_terminal(
    widths: tuple[int, ...],
    limit: int,
    cut: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = [terminal.plain(line) for line in table(_rows(*widths))]
    assert [len(cell) for cell in whole[0].split()] == list(widths)
    monkeypatch.setattr(terminal, "is_terminal", lambda stream: True)
    monkeypatch.setenv("COLUMNS", str(limit))
    monkeypatch.setenv("TERM", "dumb")
    say(*table(_rows(*widths)))
    first = capsys.readouterr().out.splitlines()[0]
    assert [len(cell) for cell in first.split()] == list(cut)
    assert len(first) <= limit or max(cut) == 8


@pytest.mark.parametrize(
    ("variables", "on_terminal", "coloured"),
    [
        ({}, False, False),
        ({}, True, True),
        ({"NO_COLOR": "1"}, True, False),
        ({"TERM": "dumb"}, True, False),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
    ],
)
def test_colours(
    variables: dict[str, str],
    on_terminal: bool,
    coloured: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(terminal, "is_terminal", lambda stream: on_terminal)
    say("a verdict", style="bold red")
    say_text("-one\n", lambda line: "red")
    expected = (
        "\x1b[1;31ma verdict\x1b[0m\n\x1b[31m-one\x1b[0m\n" if coloured else "a verdict\n-one\n"
    )
    assert capsys.readouterr().out == expected


def test_a_difference_in_a_pipe_is_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    text = f"-{EVIL}\n+\t{os.sep}"
    say_text(text)
    assert capsys.readouterr().out == text
