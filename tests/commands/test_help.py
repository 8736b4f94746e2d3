"""Help that helps: examples that work, errors that say what was meant, at once."""

from __future__ import annotations

import argparse
import json
import resource
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import rewriter
from artifacts import ARTIFACTS, get
from rewriter import cli, commands
from rewriter.commands._parser import Parser

ROOT = Path(__file__).parents[2]
PACKAGE = ARTIFACTS / "cuda-torch2.11/mlp/package/model.pt2"


def parsers(parser: Parser | None = None) -> Iterator[Parser]:
    """Every command, and every action of one."""
    for one in (parser or cli.parser()).subparsers().values():
        yield one.filled()
        yield from parsers(one)


EACH = {parser.prog: parser for parser in parsers()}


def test_every_module_of_a_command_is_in_the_list() -> None:
    modules = {path.stem for path in (ROOT / "rewriter" / "commands").glob("[!_]*.py")}
    assert modules == set(commands.SUMMARIES)
    assert next(iter(commands.SUMMARIES)) == "diagnose"  # what most people come for


@pytest.mark.parametrize("prog", EACH)
def test_help_ends_in_examples_that_parse(prog: str) -> None:
    parser = EACH[prog]
    assert parser.examples
    assert parser.format_help().rstrip().endswith(parser.examples[-1][1])
    for _, example in parser.examples:
        command = example[example.index(prog) :].partition(" > ")[0].rstrip(')"')
        cli.parser().parse_args(shlex.split(command)[1:])
        assert all(len(line) <= 90 for line in example.splitlines())


@pytest.mark.parametrize("prog", EACH)
def test_options_stand_in_groups(prog: str) -> None:
    ungrouped = next(x for x in EACH[prog]._action_groups if x.title == "options")
    assert [action.dest for action in ungrouped._group_actions] == ["help"]


@pytest.mark.parametrize("name", ["list", "instrument", "strip", "diff"])
def test_examples_do_what_they_say(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that need neither torch nor a compiler, in the order in which they stand."""
    monkeypatch.chdir(tmp_path)
    for folder in ("torch_compile_debug", "old_debug"):
        shutil.copytree(ROOT / "fixtures" / "traces" / "debug", folder)
    shutil.copy(get("cpu-torch2.13/mlp").path, "output_code.py")
    shutil.copy("output_code.py", "old_code.py")
    shutil.copy(PACKAGE, "model.pt2")
    with zipfile.ZipFile(PACKAGE) as package:
        library = next(one for one in package.namelist() if one.endswith(".so"))
        Path("model.so").write_bytes(package.read(library))
    output = "output_code.instrumented.py" if name == "strip" else "probed.py"
    assert cli.main(["instrument", "output_code.py", "-o", output]) == 0
    for _, example in EACH[f"rewriter {name}"].examples:
        if name == "list" or "model.pt2" not in example:
            code = cli.main(shlex.split(example)[1:])
            assert code == 0, capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["run"], ["cache", "restore"]], ids=" ".join)
def test_help_of_a_command_is_its_option(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    shown = []
    for argv in (["help", *words], [*words, "--help"]):
        with pytest.raises(SystemExit, match="0"):
            cli.main(argv)
        shown.append(capsys.readouterr())
    assert shown[0] == shown[1]
    assert shown[0].out.startswith(" ".join(["usage: rewriter", *words]))


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["cache"]):
        with pytest.raises(SystemExit, match="2"):
            cli.main(words)
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith(" ".join(["usage: rewriter", *words]))
        assert "  list " in err


@pytest.mark.parametrize(
    ("words", "usage", "says"),
    [
        (["lst"], "rewriter [options] COMMAND ...", "Did you mean list?"),
        (["cache", "restor"], "rewriter cache [options] ACTION ...", "Did you mean restore?"),
        (["README.md"], "rewriter [options] COMMAND ...", "`rewriter list README.md`"),
        (["xyzzy"], "rewriter [options] COMMAND ...", "`rewriter --help` shows"),
        (["help", "lst"], "rewriter [options] COMMAND ...", "Did you mean list?"),
        (["list", "--jsn", "a"], "rewriter list [options] ARTIFACT", "Did you mean --json?"),
        (["strip", "1", "--jsob"], "rewriter strip [options] ARTIFACT", "Did you mean --json?"),
        (["list", "--jsn"], "rewriter list [options] ARTIFACT", "no option --jsn"),
        (["list", "-x"], "rewriter list [options] ARTIFACT", "no option -x"),
        (["list", "a", "b"], "rewriter list [options] ARTIFACT", "unexpected argument 'b'"),
        (["list"], "rewriter list [options] ARTIFACT", "required: ARTIFACT"),
        (["diff", "a"], "rewriter diff [options] A B", "required: B"),
        (["run", "a", "--seed", "q"], "rewriter run [options] ARTIFACT", "invalid int value: 'q'"),
        (["run", "a", "--timeout", "1m"], "rewriter run [options] ARTIFACT", "seconds above 0"),
        (["repro", "a", "--timeout", "0"], "rewriter repro [options] DUMP", "seconds above 0"),
        (["attach", "1"], "rewriter [options] COMMAND ...", "control PID set print --calls 3"),
        (["live", "--", "x"], "rewriter [options] COMMAND ...", "run --dormant -- COMMAND"),
        (["run", "a", "--when", "bfore"], "rewriter run [options] ARTIFACT", "mean before?"),
        (
            ["run", "--probes=print", "--", "x", "--jsn"],
            "rewriter run [options] ARTIFACT | -- COMMAND ...",
            "Did you mean --probe?",
        ),
        (
            ["triage", "--argz", "x"],
            "rewriter triage [options] ARTIFACT | DUMP | -- COMMAND ...",
            "Did you mean --args?",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_error_says_what_was_meant(
    words: list[str],
    usage: str,
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    assert cli.main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    first, second, *_ = err.splitlines()
    assert first.startswith(f"usage: {usage}")
    assert second.startswith("rewriter: error[usage]: ")
    assert says in err


@pytest.mark.parametrize("words", [["-3"], ["--launches", "-3"], ["-o", "-"], ["--", "--jsn"]])
def test_what_only_looks_like_an_option_is_none(words: list[str]) -> None:
    parser = EACH["rewriter instrument"]
    parser._refuse_unknown(words)


def test_help_imports_no_command_but_its_own() -> None:
    code = (
        "import sys, json\nfrom rewriter import cli\n"
        "try:\n    cli.main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print('\\n' + json.dumps(sorted(x for x in sys.modules if x.startswith('rewriter'))))"
    )
    for words, own in ([["--help"], set()], [["report", "--help"], {"report"}]):
        done = subprocess.run(
            [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
        )
        modules = set(json.loads(done.stdout.splitlines()[-1]))
        there = {x.removeprefix("rewriter.commands.") for x in modules if ".commands." in x}
        assert {name for name in there if not name.startswith("_")} == own
        assert not modules & {
            "rewriter.artifact.opening",
            "rewriter.execution.runner",
            "rewriter.rebuild.build",
        }


WRAPPERS = {
    "--help": ["--help"],
    "list, Python": ["list", "fixtures/artifacts/cpu-torch2.13/mlp/python/output_code.py"],
    "list, C++": ["list", "fixtures/artifacts/cpu-torch2.13/mlp/aoti/wrapper.cpp"],
    "instrument": [
        "instrument",
        "fixtures/artifacts/cpu-torch2.13/mlp/python/output_code.py",
        "--check",
    ],
    "strip": ["strip", "fixtures/artifacts/cpu-torch2.13/mlp/python/output_code.py"],
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_what_a_small_command_imports(name: str) -> None:
    """Imports are most of its time. Who needs a further module here adds it to the file."""
    code = (
        "import sys, json\nbefore = set(sys.modules)\nfrom rewriter import cli\n"
        "try:\n    cli.main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print('\\n' + json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *WRAPPERS[name]],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    modules = json.loads(done.stdout.splitlines()[-1])
    own = {x for x in modules if x.partition(".")[0] == "rewriter"}
    others = {x.partition(".")[0] for x in modules} - sys.stdlib_module_names - {"rewriter"}
    allowed = json.loads((Path(__file__).parent / "imports.json").read_text())[name]
    assert sorted(own - {*allowed["own"]}) == []
    assert sorted(x for x in others if not x.startswith("_")) == allowed["others"]
    # Each takes milliseconds, and is for artifacts of other forms.
    assert {"pickletools", "zipfile", "html", "secrets", "getpass"}.isdisjoint(modules)


@pytest.mark.parametrize("words", [[], *([name] for name in commands.SUMMARIES), ["cache", "list"]])
@pytest.mark.benchmark
def test_help_takes_no_time(words: list[str]) -> None:
    def seconds(*command: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    bare = min(seconds("-c", "pass") for _ in range(3))
    taken = min(seconds("-m", "rewriter", *words, "--help") for _ in range(3))
    assert taken - bare <= 0.2


def test_the_package_shows_what_it_has() -> None:
    assert set(rewriter.__all__) <= set(dir(rewriter))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    text = script.read_text()
    for parser in EACH.values():
        for action in parser._actions:
            if action.help is argparse.SUPPRESS:
                continue  # another name of an option
            for option in (x for x in action.option_strings if x.startswith("--")):
                assert (option.removeprefix("--") if shell == "fish" else option) in text, option
    if program := shutil.which(shell):
        subprocess.run([program, "-n", script], check=True)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["rewriter", "li"], "list"),
        (["rewriter", "cache", "re"], "restore"),
        (["rewriter", "list", "--js"], "--json"),
        (["rewriter", "cache", "list", "--ke"], "--kernels"),
        (["rewriter", "list", "outp"], "output_code.py"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bash_completes(
    words: list[str], offered: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["completion", "bash"])
    (tmp_path / "script").write_text(capsys.readouterr().out)
    (tmp_path / "output_code.py").touch()
    asked = (
        f"source ./script; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; "
        'name=$(complete -p rewriter | grep -o -- "-F [^ ]*" | cut -c4-); $name rewriter '
        f"{words[-1]} {words[-2]}; printf '%s\\n' ${{COMPREPLY[@]}}"
    )
    done = subprocess.run(
        ["bash", "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert offered in done.stdout.split(), done.stderr
