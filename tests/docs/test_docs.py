"""The documents say what the program does: options, errors, commands and examples."""

from __future__ import annotations

import argparse
import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rewriter import cli
from rewriter.commands._parser import Parser

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ERRORS = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def subcommands() -> dict[str, Parser]:
    return {name: parser.filled() for name, parser in cli.parser().subparsers().items()}


def options() -> Iterator[tuple[str, str]]:
    """Every command with every option that it takes, less `--help`."""
    for name, parser in [("", cli.parser()), *subcommands().items()]:
        for action in parser._actions:
            if not isinstance(action, argparse._HelpAction):
                yield from ((name, option) for option in action.option_strings)


def raised_slugs() -> dict[str, str]:
    """The slug of every error that the code can raise, and where one of them is raised."""
    slugs: dict[str, str] = {}
    for file in sorted((ROOT / "rewriter").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func).rpartition(".")[2]
            where = f"{file.relative_to(ROOT)}:{node.lineno}"
            if name == "Check":
                # What a command stops with where the check fails.
                named = [word.value for word in node.keywords if word.arg == "error"]
                if not (found := [*node.args[4:5], *named]):
                    continue
                slug = found[0]
            elif name in ("RewriterError", "ProblemError"):
                assert node.args, f"{where}: an error without a slug"
                slug = node.args[0]
            else:
                continue
            if ast.unparse(slug) in ("said['problem']", "check.error", "error.slug"):
                continue  # handed on from where another call names it
            assert isinstance(slug, ast.Constant), f"{where}: the slug is not a literal"
            slugs[slug.value] = where
    return slugs


def fenced(text: str, language: str) -> list[str]:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [block for named, block in blocks if named == language]


def shown_commands(text: str) -> Iterator[list[str]]:
    """The arguments of every `$ … rewriter …` in a fenced block, as the shell would split them."""
    for block in re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for line in re.findall(r"^\$ (.*)$", block, re.MULTILINE):
            for command in re.split(r"\s(?:&&|\|)\s", line):
                words = [word for word in shlex.split(command) if "=" not in word.partition(" ")[0]]
                if words and words[0].rpartition("/")[2] == "rewriter":
                    yield words[1:]


def mentioned_commands(text: str) -> Iterator[list[str]]:
    """The arguments of every `rewriter …` in running text that has some, placeholders included."""
    for command in sorted(set(re.findall(r"`rewriter ([^`\n]+)`", text))):
        words = shlex.split(command.replace(" …", "").partition(" > ")[0])
        if len(words) > 1 and "--help" not in words:
            yield words


def tracked_files() -> list[str]:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        return []
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    return [name for name in listed.stdout.decode().split("\0") if (ROOT / name).is_file()]


@pytest.mark.parametrize("name", sorted(subcommands()))
def test_the_readme_names_every_command(name: str) -> None:
    assert f"`rewriter {name}" in README


@pytest.mark.parametrize(("command", "option"), sorted(set(options())))
def test_the_readme_names_every_option(command: str, option: str) -> None:
    assert re.search(rf"`[^`\n]*(?<![\w-]){re.escape(option)}(?![\w-])", README), command


def test_every_option_that_the_readme_names_exists() -> None:
    known = {option for _, option in options()} | {"--help"}
    tables = "\n".join(line for line in README.splitlines() if line.startswith("| `-"))
    named = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", tables.replace("-m ", "")))
    assert {option for option in named if option.startswith("--")} <= known


@pytest.mark.parametrize(
    "words", [*shown_commands(README), *mentioned_commands(README + ERRORS)], ids=" ".join
)
def test_commands_in_the_documents_parse(words: list[str]) -> None:
    cli.parser().parse_args(words)


def test_every_error_is_explained_and_no_other() -> None:
    explained = re.findall(r"^## ([a-z0-9-]+)$", ERRORS, re.MULTILINE)
    raised = raised_slugs()
    assert len(explained) == len(set(explained))
    assert explained == sorted(explained)
    assert set(explained) - set(raised) == set()
    assert {slug: raised[slug] for slug in set(raised) - set(explained)} == {}


def test_every_explanation_has_an_example_a_cause_and_a_fix() -> None:
    for entry in re.split(r"^## ", ERRORS, flags=re.MULTILINE)[1:]:
        slug = entry.split("\n", 1)[0]
        assert f"rewriter: error[{slug}]: " in entry, slug
        assert "**Cause.** " in entry, slug
        assert "**Fix.** " in entry, slug


def test_every_environment_variable_of_the_code_is_in_the_readme() -> None:
    pattern = re.compile(r'environ(?:\.get\(|\[)"([A-Z_]+)"')
    named = {
        name
        for file in (ROOT / "rewriter").rglob("*.py")
        for name in pattern.findall(file.read_text(encoding="utf-8"))
    }
    # CXX is the compiler's, PYTHONPATH the interpreter's.
    internal = {"CXX", "PYTHONPATH", "REWRITER_COMMAND"}
    assert {name for name in named - internal if f"`{name}" not in README} == set()


def test_the_layout_names_every_module() -> None:
    folder = ROOT / "rewriter"
    modules = {f"`rewriter/{file.name}`" for file in folder.glob("*.py") if file.name[0] != "_"}
    packages = {f"`rewriter/{file.parent.name}/`" for file in folder.glob("*/__init__.py")}
    assert [name for name in sorted(modules | packages) if name not in CONTRIBUTING] == []


@pytest.mark.parametrize("text", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/errors.md"])
def test_links_and_named_files_exist(text: str) -> None:
    page = ROOT / text
    content = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)[^)]*\)", content)
    places = r"`((?:rewriter|grammars|fixtures|tests|docs|\.ci)/[\w./-]*\w/?)`"
    assert [name for name in links if not (page.parent / name).exists()] == []
    assert [name for name in re.findall(places, content) if not (ROOT / name).exists()] == []


def test_the_tree_in_the_readme_exists() -> None:
    tree = next(block for block in fenced(README, "") if "rewriter/cli.py" in block)
    assert [
        name for name in re.findall(r"^(\S+/\S*)", tree, re.M) if not (ROOT / name).exists()
    ] == []


def test_no_file_holds_a_path_of_somebodys_machine_or_a_registry() -> None:
    # /home/user is what fixtures/regenerate.py puts in place of a path.
    personal = re.compile(rb"(?<![\w.})*-])/(?:home/(?!user\b)|root/|work/|opt/|Users/)\w")
    hosts = re.compile(rb"pypi\.org|pythonhosted\.org|download\.pytorch\.org|npmjs\.(?:org|com)")
    found = []
    for name in tracked_files():
        data = (ROOT / name).read_bytes()
        if b"\0" in data:
            continue
        for pattern in (personal, hosts):
            if match := pattern.search(data):
                line = data.count(b"\n", 0, match.start()) + 1
                found.append(f"{name}:{line}: {match.group().decode()}")
    assert found == []


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the README's demo leaves, and with it a wrapper and inputs for the examples."""
    folder = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        [sys.executable, "-m", "rewriter", "demo", "-d", str(folder)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert "restored.py and output_code.py are identical." in done.stderr
    (folder / "stdout.txt").write_text(done.stdout, encoding="utf-8")
    return folder


def test_the_demo_takes_the_steps_that_the_readme_shows(demo: Path) -> None:
    shown = next(block for block in fenced(README, "") if "# Its launches" in block)
    commands = re.findall(r"^\$ (rewriter .*)$", shown, re.MULTILINE)
    run = (demo / "stdout.txt").read_text(encoding="utf-8").replace(f"{demo}{os.sep}", "")
    assert re.findall(r"^\$ (rewriter .*)$", run, re.MULTILINE) == commands


def test_the_example_of_the_python_api_runs(demo: Path, tmp_path: Path) -> None:
    for name in ("output_code.py", "inputs.pt"):
        shutil.copy(demo / name, tmp_path)
    example = next(block for block in fenced(README, "python") if "import rewriter" in block)
    (tmp_path / "example.py").write_text(example, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "example.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("0 extern_kernels.addmm extern_out [")
    assert lines[-1] == "0 None"
    assert list((tmp_path / "dump").glob("rank0/run0/000001/*.pt"))


def test_the_examples_of_contributing_work(demo: Path, tmp_path: Path) -> None:
    """A probe and a launch shape are one new file each, and no other is touched."""
    for package in ("rewriter", "grammars"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("*.pyc"))
    probe = next(block for block in fenced(CONTRIBUTING, "python") if "PROBE = " in block)
    (tmp_path / "rewriter/runtime/probes/count.py").write_text(probe, encoding="utf-8")
    (shape,) = fenced(CONTRIBUTING, "toml")
    (tmp_path / "grammars/python/fancy.toml").write_text(shape, encoding="utf-8")
    wrapper = (demo / "output_code.py").read_text(encoding="utf-8")
    (tmp_path / "wrapper.py").write_text(wrapper, encoding="utf-8")
    fancy = wrapper.replace("    cpp_fused_gelu_0(", "    torch.ops.fancy.mul_.default(")
    (tmp_path / "fancy.py").write_text(fancy, encoding="utf-8")

    def rewriter(*words: str) -> str:
        command = [sys.executable, "-m", "rewriter", *words]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True, check=True
        ).stdout

    assert "fallback    torch.ops.fancy.mul_.default" in rewriter("list", "fancy.py", "--strict")
    assert "cpp_fused_gelu_0: 256\n" in rewriter("run", "wrapper.py", "--probe", "count")
