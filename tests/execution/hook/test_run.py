"""A program that is run once, with probes in what it loads; without torch."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from caches import BACKWARD, CPP, CUDA, FORWARD, MLP, NAMES, content, make
from loading import PROGRAM, write_torch
from rewriter import cli

Act = Callable[..., tuple[int, str, str]]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return make(tmp_path / "cache")


@pytest.fixture
def act(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Act:
    """`rewriter …` in a folder with a program that loads the files it is given."""
    write_torch(tmp_path, executes=False)
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)

    def run(*words: object) -> tuple[int, str, str]:
        code = cli.main(list(map(str, words)))
        return code, *capfd.readouterr()

    return run


def program(directory: Path, *names: str) -> list[str]:
    return ["--", sys.executable, "program.py", *(str(directory / name) for name in names)]


@pytest.mark.parametrize(
    ("words", "slug"),
    [
        ("run", "no-program"),
        ("run -- no-such-program", "no-program"),
        ("run x.py -- true", "several-artifacts"),
        ("run -d program.py -- true", "exists"),
        ("run --probe pint -- true", "unknown-probe"),
        ("run -- true", "nothing-compiled"),
        ("verify -- true", "nothing-compiled"),
    ],
)
def test_refused_and_nothing_left(
    words: str, slug: str, act: Act, directory: Path, tmp_path: Path
) -> None:
    before = content(tmp_path)
    code, _, err = act(*shlex.split(words))
    assert (code, f"error[{slug}]" in err) == (2, True), err
    assert content(tmp_path) == before


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "It compiles nothing with Inductor"),
        (["dynamo_start"], "nothing was left to compile between graph breaks"),
        (["dynamo_start", "dynamo_output_graph"], "another backend has them, such as"),
    ],
    ids=["nothing", "breaks", "eager"],
)
def test_what_torch_traced_where_nothing_was_compiled(rows: list[str], says: str, act: Act) -> None:
    said = "".join(f'V0101 [0/0] {{"{row}": {{}}}}\n' for row in rows)
    code, _, err = act("run", "--", "sh", "-c", f"printf '{said}' > $TORCH_TRACE/a.log")
    assert (code, says in err) == (2, True), err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--wrapper", "zz*"], "no wrapper with a name like zz*"),
        (["--kernels", "nosuch*"], "no wrapper that launches a kernel like nosuch*"),
    ],
)
def test_nothing_matches(options: list[str], says: str, act: Act, directory: Path) -> None:
    code, _, err = act("run", *options, *program(directory, MLP, CPP))
    assert code == 2
    assert "error[no-wrapper-matches]" in err
    assert says in err
    assert ("extern_kernels.addmm" if "--kernels" in options else "cabmlp0000") in err


def test_a_run_changes_nothing_but_the_dump(act: Act, directory: Path, tmp_path: Path) -> None:
    before = content(tmp_path)
    code, out, _ = act("run", "--json", *program(directory, MLP, FORWARD, BACKWARD, MLP))
    document = json.loads(out)
    assert code == 0
    rows = {one["wrapper"]: one for one in document["wrappers"]}
    assert list(rows) == [str(directory / name) for name in (MLP, FORWARD, BACKWARD)]
    assert rows[str(directory / MLP)]["launches"] == 5
    assert rows[str(directory / BACKWARD)]["graph"] == "backward"
    assert document["refused"] == document["unprobed"] == []
    assert document["dump"] is None  # nothing was called, so nothing was recorded
    after = content(tmp_path)
    assert {path: facts for path, facts in after.items() if not path.endswith(".pyc")} == before


def test_wrappers_that_are_chosen(act: Act, directory: Path) -> None:
    for options, names in (
        (["--wrapper", "cabmlp*"], [MLP]),
        (["--wrapper", "backward", "--wrapper", "cefcpp*"], [BACKWARD, CPP]),
        (["--wrappers", "cabmlp*,cefcpp*"], [MLP, CPP]),
        (["--kernels", "triton_*"], [CUDA]),
    ):
        _, out, _ = act("run", "--json", *options, *program(directory, *NAMES))
        found = [one["wrapper"] for one in json.loads(out)["wrappers"]]
        assert found == [str(directory / name) for name in names], options


def test_a_wrapper_that_ran_as_it_is_is_named(act: Act, directory: Path, tmp_path: Path) -> None:
    """In a process that cannot reach the command."""
    text = f"import os\nos.environ['REWRITER_HOOK'] += 's'\nimport subprocess, sys\n\
subprocess.run([sys.executable, 'program.py', {str(directory / CPP)!r}], check=True)\n"
    (tmp_path / "parent.py").write_text(text + PROGRAM)
    words = ["--", sys.executable, "parent.py", directory / MLP]
    _, out, err = act("run", "--json", *words)
    document = json.loads(out)
    assert [one["wrapper"] for one in document["wrappers"]] == [str(directory / MLP)]
    (one,) = document["unprobed"]
    assert one["wrapper"] == str(directory / CPP)
    assert one["reason"].startswith("FileNotFoundError")
    assert "warning: not probed: cefcpp0000" in err


def test_how_the_program_ends(act: Act, directory: Path, tmp_path: Path) -> None:
    """It runs once, whatever happens."""
    text = "open('runs', 'a').write('x')\n" + PROGRAM
    for end, said in (("sys.exit(3)", "exit code 3"), ("os.kill(os.getpid(), 15)", "SIGTERM")):
        (tmp_path / "program.py").write_text(f"import os\n{text}\n{end}\n")
        code, _, err = act("run", *program(directory, MLP))
        assert code == 1
        assert said in err
    assert (tmp_path / "runs").read_text() == "xx"


_CAUGHT = "import traceback\ntry:\n    1 / 0\nexcept ArithmeticError:\n    traceback.print_exc()\n"

_PROGRAMS = {
    "launcher": (
        "subprocess.run([*well, wrapper], check=True)\nraise ValueError('of the launcher')",
        "the program raised ValueError: of the launcher at parent.py:4, outside of",
    ),
    "ignored": (
        "subprocess.run([*raises, wrapper])\nraise ValueError('its own')",
        "the program raised ValueError: its own at parent.py:4, outside of compiled code",
    ),
    "child": (
        "subprocess.run([*raises, wrapper], check=True)",
        "the program raised KeyError: 'in the child' at raises.py:",
    ),
    "well": ("subprocess.run([*raises, wrapper])\nsys.exit(0)", ""),
}


@pytest.mark.parametrize(("parent", "said"), _PROGRAMS.values(), ids=_PROGRAMS)
def test_a_program_that_starts_another(
    parent: str, said: str, act: Act, directory: Path, tmp_path: Path
) -> None:
    """The parent does not import torch."""
    (tmp_path / "child.py").write_text(PROGRAM)
    (tmp_path / "raises.py").write_text(f"{PROGRAM}\nraise KeyError('in the child')\n")
    words = "well, raises = ([sys.executable, name] for name in ('child.py', 'raises.py'))"
    words += f"; wrapper = {str(directory / MLP)!r}"
    (tmp_path / "parent.py").write_text(f"import subprocess, sys\n{words}\n{parent}\n")
    code, _, err = act("run", "--", sys.executable, "parent.py")
    assert code == (1 if said else 0)
    assert said in err


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (f"{_CAUGHT}sys.exit(1)", "exit code 1"),
        (f"{_CAUGHT}os._exit(1)", "exit code 1"),
        (f"{_CAUGHT}raise ValueError('no')", "the program raised ValueError: no at program.py:14"),
    ],
)
def test_the_exception_that_ended_it_is_quoted(
    end: str, said: str, act: Act, directory: Path, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(f"import os\n{PROGRAM}\n{end}\n")
    wanted = program(directory, MLP)
    code, _, err = act("run", *wanted)
    assert code == 1
    assert f"program.py {wanted[-1]}: {said}" in err
    code, _, err = act("run", "--wrapper", "zz*", *wanted)
    assert code == 1
    assert "warning: the program loaded no wrapper with a name like zz*\n" in err
    assert f"program.py {wanted[-1]}: {said}" in err


def test_a_script_that_is_not_there_is_not_started(act: Act) -> None:
    code, _, err = act("run", "--", sys.executable, "nofile.py")
    assert code == 2
    assert "error[no-program]: there is no file 'nofile.py'" in err


def test_files_of_one_text_are_one_wrapper(act: Act, directory: Path, tmp_path: Path) -> None:
    """Whatever they are called: what they record has the name of the first."""
    same = tmp_path / "other" / "ab" / "cabsame.py"
    same.parent.mkdir(parents=True)
    same.write_bytes((directory / MLP).read_bytes())
    _, out, _ = act("run", "--json", *program(directory, MLP), same)
    document = json.loads(out)
    assert [one["wrapper"] for one in document["wrappers"]] == [str(directory / MLP)]
