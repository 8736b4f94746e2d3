"""The documents say what the program does: options, errors, commands, and links to each other."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
from collections.abc import Iterator

import pytest

import programs
import schemas
from command_lines import contexts, parsed
from pages import CONTRIBUTING, ERRORS, EVERY, PAGES, README, ROOT, Page, page
from rewriter.commands import SUMMARIES
from rewriter.commands._click import Option
from rewriter.core.errors import RewriterError
from rewriter.instrumentation.probes import registry

ALL = "\n".join(page.text for page in PAGES)


def options() -> Iterator[tuple[str, str]]:
    """Every command with every option that it takes, less `--help`."""
    yield "", "--version"
    for ctx in contexts():
        for one in ctx.command.params:
            if isinstance(one, Option):
                yield from ((ctx.command_path, option) for option in one.opts)


def raised_slugs() -> dict[str, str]:
    """The slug of every error that the code can raise, and where one of them is raised."""
    slugs: dict[str, str] = {}
    for file in sorted((ROOT / "rewriter").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
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
            if ast.unparse(slug) in ("problem", "check.error", "error.slug"):
                continue  # handed on from where another call names it
            assert isinstance(slug, ast.Constant), f"{where}: the slug is not a literal"
            slugs[slug.value] = where
    return slugs


def shown_commands(page: Page) -> Iterator[list[str]]:
    """The arguments of every `$ … rewriter …` in a fenced block, as the shell would split them."""
    for block in page.blocks:
        for line in re.findall(r"^\$ (.*)$", block.text, re.MULTILINE):
            for command in re.split(r"\s(?:&&|\|)\s", line):
                words = [word for word in shlex.split(command) if "=" not in word.partition(" ")[0]]
                if words and words[0].rpartition("/")[2] == "rewriter":
                    yield words[1:]


def mentioned_commands(page: Page) -> Iterator[list[str]]:
    """The arguments of every `rewriter …` in running text that has some, placeholders included."""
    for command in sorted(set(re.findall(r"`rewriter ([^`\n]+)`", page.prose))):
        words = shlex.split(command.replace(" …", "").partition(" > ")[0])
        if len(words) > 1 and "--help" not in words:
            yield words


def tracked_files() -> list[str]:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        return []
    listed = programs.run("git", "ls-files", "-z", cwd=ROOT)
    return [name for name in listed.stdout.split("\0") if (ROOT / name).is_file()]


@pytest.mark.parametrize(("command", "option"), sorted(set(options())))
def test_the_pages_name_every_option(command: str, option: str) -> None:
    assert re.search(rf"`[^`\n]*(?<![\w-]){re.escape(option)}(?![\w-])", ALL), command


@pytest.mark.parametrize(
    ("name", "row"),
    [
        *(("reference/commands.md", rf"^\| [^|]*`rewriter {command}\b") for command in SUMMARIES),
        *(("reference/commands.md", rf"^\| `{probe}` \|") for probe in registry()),
        *(("reference/output.md", rf"^\| .*`{document}\.json`") for document in schemas.DOCUMENTS),
    ],
)
def test_the_tables_of_the_reference_have_each_name(name: str, row: str) -> None:
    assert re.search(row, page(name).text, re.MULTILINE)


def test_every_option_that_the_pages_name_exists() -> None:
    known = {option for _, option in options()} | {"--help"}
    tables = "\n".join(line for line in ALL.splitlines() if line.startswith("| `-"))
    named = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", tables.replace("-m ", "")))
    assert {option for option in named if option.startswith("--")} <= known


@pytest.mark.parametrize("page", [*PAGES, CONTRIBUTING], ids=lambda page: page.name)
def test_commands_in_the_documents_parse(page: Page) -> None:
    for words in [*shown_commands(page), *mentioned_commands(page)]:
        try:
            parsed(*words)
        except RewriterError as error:
            pytest.fail(f"rewriter {shlex.join(words)}: {error}")


def test_every_error_is_listed_and_no_other() -> None:
    explained = re.findall(r"^## ([a-z0-9-]+)$", ERRORS.text, re.MULTILINE)
    others = re.findall(r"`([a-z0-9-]+)`", ERRORS.text.partition("\n## All others\n")[2])
    raised = raised_slugs()
    assert {slug: raised[slug] for slug in set(raised) - {*explained, *others}} == {}
    assert sorted([*explained, *others]) == sorted(raised)


def test_every_environment_variable_of_the_code_is_on_its_page() -> None:
    pattern = re.compile(r'environ(?:\.get\(|\[)"([A-Z_]+)"')
    named = {
        name
        for file in (ROOT / "rewriter").rglob("*.py")
        for name in pattern.findall(file.read_text(encoding="utf-8"))
    }
    # CXX is the compiler's, PYTHONPATH the interpreter's.
    internal = {"CXX", "PYTHONPATH", "REWRITER_COMMAND"}
    documented = page("reference/environment.md").text
    assert {name for name in named - internal if f"`{name}" not in documented} == set()


def test_the_map_names_every_room() -> None:
    rooms = {file.parent.name for file in (ROOT / "rewriter").glob("*/__init__.py")}
    assert {room for room in rooms if f"`{room}/` |" not in CONTRIBUTING.text} == set()


@pytest.mark.parametrize("page", EVERY, ids=lambda page: page.name)
def test_links_and_named_files_exist(page: Page) -> None:
    places = r"`((?:rewriter|grammars|fixtures|tests|docs|\.ci)/[\w./-]*\w/?)`"
    assert [name for name in re.findall(places, page.text) if not (ROOT / name).exists()] == []
    for name, anchor in page.links():
        target = (page.path.parent / name).resolve() if name else page.path
        assert target.exists(), name
        if anchor:
            linked = Page(str(target.relative_to(ROOT)))
            assert anchor in linked.anchors(), f"{name}#{anchor}"


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, left = {README.name}, [README]
    while left:
        page = left.pop()
        for name, _ in page.links():
            target = (page.path.parent / name).resolve().relative_to(ROOT)
            if target.suffix == ".md" and str(target) not in reached:
                reached.add(str(target))
                left.append(Page(str(target)))
    assert {page.name for page in PAGES} - reached == set()


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


def test_ci_runs_the_two_commands_of_the_readme_as_they_stand() -> None:
    shown = re.findall(r"^\$ (\S+)  # ", README.text, re.M)
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    read = next(line for line in script.splitlines() if line.startswith("mapfile"))
    printing = f'{read}; printf "%s\\n" "${{commands[@]}}"'
    done = programs.run("bash", "-c", printing, cwd=ROOT)
    assert done.stdout.split() == shown == [".ci/demo", ".ci/test"]
    for number, command in enumerate(shown):
        assert f'bash -c "${{commands[{number}]}}"' in script
        assert ".ci/setup" in (ROOT / command).read_text(encoding="utf-8")
    assert "- run: .ci/run" in (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
