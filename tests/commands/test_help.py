"""Help that helps: examples that work, errors that say what was meant, at once."""

from __future__ import annotations

import json
import os
import pty
import resource
import shlex
import shutil
import subprocess
import sys
import zipfile
from contextlib import suppress
from pathlib import Path

import click
import pytest

import rewriter
from artifacts import ARTIFACTS, get
from command_lines import contexts, parsed
from rewriter import cli, commands

ROOT = Path(__file__).parents[2]
PACKAGE = ARTIFACTS / "cuda-torch2.11/mlp/package/model.pt2"


EACH = {ctx.command_path: ctx for ctx in contexts()}


def test_every_module_of_a_command_is_in_the_list() -> None:
    modules = {path.stem for path in (ROOT / "rewriter" / "commands").glob("[!_]*.py")}
    assert modules == set(commands.SUMMARIES)
    assert next(iter(commands.SUMMARIES)) == "diagnose"  # what most people come for


@pytest.mark.parametrize("prog", EACH)
def test_help_ends_in_examples_that_parse(prog: str) -> None:
    examples = EACH[prog].command.examples
    assert EACH[prog].get_help().endswith(examples[-1][1])
    for _, example in examples:
        command = example[example.index(prog) :].partition(" > ")[0].rstrip(')"')
        parsed(*shlex.split(command)[1:])
        assert all(len(line) <= 90 for line in example.splitlines())


@pytest.mark.parametrize("prog", EACH)
def test_options_stand_in_groups(prog: str) -> None:
    options = EACH[prog].get_help().partition("\noptions:\n")[2].partition("\n\n")[0]
    assert options.split() == ["-h,", "--help", "Show", "this", "message", "and", "exit."]


@pytest.mark.parametrize("prog", EACH)
def test_values_are_shown_and_completed_as_they_are_written(prog: str) -> None:
    """`all` of `--args` is not the beginning of the option `--allow`."""
    ctx = EACH[prog]
    for one in ctx.command.params:
        if isinstance(one.type, click.Choice):
            words = [*one.type.choices]
            assert one.metavar or one.make_metavar(ctx) == f"[{'|'.join(words)}]"
            assert [x.value for x in one.type.shell_complete(ctx, one, "")] == words


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
    for _, example in EACH[f"rewriter {name}"].command.examples:
        if name == "list" or "model.pt2" not in example:
            code = cli.main(shlex.split(example)[1:])
            assert code == 0, capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["run"], ["cache", "restore"]], ids=" ".join)
def test_help_of_a_command_is_its_option(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    shown = []
    for argv in (["help", *words], [*words, "--help"]):
        assert cli.main(argv) == 0
        shown.append(capsys.readouterr())
    assert shown[0] == shown[1]
    assert shown[0].out.startswith(" ".join(["usage: rewriter", *words]))


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["cache"]):
        assert cli.main(words) == 2
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
        (["list", "a", "b"], "rewriter list [options] ARTIFACT", "unexpected extra argument (b)"),
        (["list"], "rewriter list [options] ARTIFACT", "missing argument 'ARTIFACT'"),
        (["diff", "a"], "rewriter diff [options] A B", "missing argument 'B'"),
        (["repro", "a"], "rewriter repro [options] DUMP", "missing option --launch"),
        (["list", "--wrapper", "--json", "a"], "rewriter list [options] ARTIFACT", "takes a value"),
        (["instrument", "--no", "a"], "rewriter instrument [options] ARTIFACT", "--no could be"),
        (["instrument", "a", "--first=2", "--calls=3"], "rewriter instrument", "exclude each"),
        (["instrument", "a", "-o", "x", "--in-place"], "rewriter instrument", "exclude each other"),
        (["run", "a", "--seed", "q"], "rewriter run [options] ARTIFACT", "'q' is not a valid"),
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


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["a", "--launches", "-3"], {"artifact": "a", "launches": "-3"}),
        (["a", "-o", "-"], {"output": "-"}),
        (["--", "--jsn"], {"artifact": "--jsn"}),
        (["a", "--standal", "--wrapper", "x", "--wrappers=y"], {"wrappers": ("x", "y")}),
        (["a", "--standal"], {"standalone": True}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_an_option_is(words: list[str], given: dict[str, object]) -> None:
    found = parsed("instrument", *words)
    assert {name: getattr(found, name) for name in given} == given


def test_a_program_has_the_words_behind_the_dashes() -> None:
    for name in ("run", "triage", "diagnose", "verify", "sanitize"):
        found = parsed(name, "--timeout", "3", "--", "x", "--json", "--", "y")
        assert (found.artifact, found.program) == ((), ("x", "--json", "--", "y"))
        assert (found.timeout, found.json) == (3.0, False)
        assert found.command_line == f"rewriter {name} --timeout 3 -- x --json -- y"


WRAPPERS = {
    "--help": ["--help"],
    "report --help": ["report", "--help"],
    "list, Python": ["list", "python/output_code.py"],
    "list, C++": ["list", "aoti/wrapper.cpp"],
    "instrument": ["instrument", "python/output_code.py", "--check"],
    "strip": ["strip", "python/output_code.py"],
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_what_a_small_command_imports(name: str) -> None:
    """Imports are most of its time. Who needs a further module here adds it to the file, which has
    the modules of each command below the names of all that import them."""
    code = (
        "import sys, json\nbefore = set(sys.modules)\nfrom rewriter import cli\n"
        "cli.main(sys.argv[1:])\n"
        "print('\\n' + json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *WRAPPERS[name]],
        capture_output=True, text=True, check=True, cwd=ARTIFACTS / "cpu-torch2.13/mlp",
    )  # fmt: skip
    modules = json.loads(done.stdout.splitlines()[-1])
    own = {x for x in modules if x.partition(".")[0] == "rewriter"}
    others = {x.partition(".")[0] for x in modules} - sys.stdlib_module_names - {"rewriter"}
    table = json.loads((Path(__file__).parent / "imports.json").read_text())
    allowed = {x for names, each in table.items() if name in names.split("; ") for x in each}
    # Whoever imports one probe imports all of them.
    own = {"rewriter.runtime.probes" if ".runtime.probes." in x else x for x in own}
    assert sorted(own - allowed) == []
    expected = sorted(x for x in allowed if x.partition(".")[0] != "rewriter")
    assert sorted(x for x in others if not x.startswith("_")) == expected
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
def test_completion(
    shell: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert cli.main(["completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    if program := shutil.which(shell):
        subprocess.run([program, "-n", script], check=True)
    monkeypatch.setenv("_REWRITER_COMPLETE", f"{shell}_complete")
    for name, ctx in EACH.items():
        monkeypatch.setenv("COMP_WORDS", f"{name} --")
        monkeypatch.setenv("COMP_CWORD", "--" if shell == "fish" else str(len(name.split())))
        assert cli.main([]) == 0
        lines = capsys.readouterr().out.splitlines()
        # The script for zsh reads three lines for each: its type, itself, its help.
        offered = "\n".join(lines[1::3] if shell == "zsh" else lines)
        for one in ctx.command.params:
            assert [x for x in one.opts if x.startswith("--") and x not in offered] == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("li", "list"),
        ("cache re", "cache restore"),
        ("list --js", "list --json"),
        ("cache list --ke", "cache list --kernels"),
        ("list outp", "list output_code.py"),
        ("cache list --dir fold", "cache list --dir folder/"),
        ("run --when bef", "run --when before"),
        ("run -- python outp", "run -- python output_code.py"),
    ],
)
def test_bash_completes(
    typed: str, completed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["completion", "bash"])
    (tmp_path / "script").write_text(capsys.readouterr().out)
    (tmp_path / "output_code.py").touch()
    (tmp_path / "folder").mkdir()
    command = tmp_path / "bin" / "rewriter"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m rewriter "$@"\n')
    command.chmod(0o755)
    path = os.pathsep.join([str(command.parent), os.environ["PATH"]])
    ours, its = pty.openpty()
    with subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        stdin=its, stdout=its, stderr=its, cwd=tmp_path, start_new_session=True,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "TERM": "dumb"},
    ) as shell:  # fmt: skip
        os.close(its)
        # The tab, then to the beginning of the line, and `echo` before what stands there.
        os.write(ours, f"source ./script\nrewriter {typed}\t\x01echo got: \n exit\n".encode())
        shown = b""
        with suppress(OSError):  # the shell has ended
            while data := os.read(ours, 4096):
                shown += data
    os.close(ours)
    assert f"\ngot: rewriter {completed}\r\n" in shown.decode(), shown.decode()
    assert shell.returncode == 0
