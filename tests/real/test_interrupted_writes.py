"""Every effect on the file system of the commands that write fails once, or kills them.

Whatever happens, each file is whole, the one that was there or the one that was to be. A command
that ends by itself has done all or nothing, or says what it left; what a killed one left is cleared
by the next command that writes there.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import caches
import failures
import rewriter
from artifacts import ARTIFACTS, get
from failures import KINDS, Ended, Failure, Kind
from rewriter.cli import main
from rewriter.core.errors import BAD_INPUT, FAILED, OK
from rewriter.dump.directory import dump_directory
from rewriter.execution.hook.cache.slots import TEMPORARY
from rewriter.instrumentation.rebuild import patch
from rewriter.instrumentation.rebuild.patch import Built
from test_diff_packages import patched

PACKAGE = ARTIFACTS / "cuda-torch2.11" / "mlp" / "package" / "model.pt2"
Files = dict[str, bytes]


@dataclass(frozen=True)
class Case:
    """A command in a folder that `make` fills; `again` is what a user runs after it was killed."""

    make: Callable[[Path], None]
    command: list[str] | Callable[[Path], Callable[[], object]]
    again: tuple[list[str], ...]
    result: Callable[[Files, Files], Files] = lambda before, after: after


def files(folder: Path) -> Files:
    """What is in a folder; that of hidden folders of ours not."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and "/.rewriter-" not in f"/{path.relative_to(folder)}"
        and not path.name.endswith(TEMPORARY)
    }


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".*") if "rewriter-" in path.name]


def plain(folder: Path) -> None:
    (folder / "w.py").write_bytes(get("cpu-torch2.13/mlp").data)


def probed(folder: Path) -> None:
    plain(folder)
    assert main(["instrument", f"{folder}/w.py", "--in-place"]) == OK


def several(folder: Path) -> None:
    for name in ("a", "b"):
        (folder / "d" / name).mkdir(parents=True)
        plain(folder / "d" / name)


def several_probed(folder: Path) -> None:
    several(folder)
    assert main(["instrument", f"{folder}/d", "--in-place"]) == OK


def written(folder: Path) -> None:
    plain(folder)
    (folder / "out.py").write_text("somebody's")


def package(folder: Path) -> None:
    shutil.copyfile(PACKAGE, folder / "m.pt2")


def patched_package(folder: Path) -> None:
    package(folder)
    patched(folder / "m.pt2", folder.parent / "new.pt2")
    (folder / "m.pt2").rename(folder / "m.pt2.orig")
    (folder.parent / "new.pt2").rename(folder / "m.pt2")


def sources(folder: Path) -> None:
    package(folder)
    assert main(["instrument", f"{folder}/m.pt2", "--no-rebuild", "-o", f"{folder}/src"]) == OK


def dump(folder: Path) -> None:
    (folder / "x.dump" / "rank0").mkdir(parents=True)
    (folder / "x.dump" / "manifest.json").write_text("{}")
    (folder / "x.dump" / "rank0" / "rows").write_text("rows")


def cached(folder: Path) -> None:
    (folder / "c").mkdir()
    caches.make(folder / "c", (caches.MLP,))


def cached_probed(folder: Path) -> None:
    """As earlier versions left it."""
    cached(folder)
    path = folder / "c" / caches.MLP
    text = rewriter.instrument(path, standalone=True).source
    path.rename(f"{path}.orig")
    path.write_bytes(text)


def dumping(folder: Path) -> Callable[[], object]:
    return lambda: dump_directory(Path("x.py"), folder / "x.dump", overwrite=True)


STRIP = ["strip", "{}/w.py", "--in-place"]
STRIP_ALL = ["strip", "{}/d", "--in-place"]
PLAIN: Callable[[Files, Files], Files] = lambda before, after: before  # noqa: E731
CASES = {
    "instrument": Case(plain, ["instrument", "{}/w.py", "--in-place"], (STRIP,), PLAIN),
    "replace": Case(
        probed,
        ["instrument", "{}/w.py", "--in-place", "--replace", "--probe", "names"],
        (["instrument", "{}/w.py", "--in-place", "--replace", "--probe", "names"],),
    ),
    "strip": Case(probed, STRIP, (STRIP,)),
    "over a file": Case(
        written,
        ["instrument", "{}/w.py", "-o", "{}/out.py", "--overwrite"],
        (["instrument", "{}/w.py", "-o", "{}/out.py", "--overwrite"],),
    ),
    "instrument a directory": Case(
        several, ["instrument", "{}/d", "--in-place"], (STRIP_ALL,), PLAIN
    ),
    "strip a directory": Case(several_probed, STRIP_ALL, (STRIP_ALL,)),
    "a mirror": Case(
        several,
        ["instrument", "{}/d", "-o", "{}/new/out"],
        (["instrument", "{}/d", "-o", "{}/new/out", "--overwrite"],),
    ),
    "sources over sources": Case(
        sources,
        ["instrument", "{}/m.pt2", "--no-rebuild", "-o", "{}/src", "--overwrite"],
        (["instrument", "{}/m.pt2", "--no-rebuild", "-o", "{}/src", "--overwrite"],),
    ),
    "instrument a package": Case(
        package,
        ["instrument", "{}/m.pt2", "--in-place"],
        (["strip", "{}/m.pt2", "--in-place"],),
        PLAIN,
    ),
    "strip a package": Case(
        patched_package, ["strip", "{}/m.pt2", "--in-place"], (["strip", "{}/m.pt2", "--in-place"],)
    ),
    "restore a cache": Case(
        cached_probed,
        ["cache", "restore", "--dir", "{}/c"],
        (["cache", "restore", "--dir", "{}/c"],),
    ),
    "a dump over a dump": Case(dump, dumping, ()),
}


@pytest.fixture(autouse=True)
def no_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a package is built to is put together without a compiler."""

    def rebuild(_: object, output: Path, *__: object, **___: object) -> Built:
        patched(PACKAGE, output)
        return Built((), "skipped")

    monkeypatch.setattr(patch, "begin", lambda *_, **__: nullcontext())
    monkeypatch.setattr(patch, "rebuild", rebuild)
    monkeypatch.setattr("rewriter.commands._package._tell", lambda *_: None)


class Trial:
    """A case in a folder of its own, made anew for each failure."""

    def __init__(self, case: Case, scratch: Path) -> None:
        self._case = case
        self._scratch = scratch
        self.folder = scratch / "work"
        self._template = scratch / "template"
        self._template.mkdir()
        case.make(self._template)
        self.before = files(self._template)
        ended = self.run(Failure())
        assert ended.code == OK, ended.said
        assert not hidden(self.folder)
        self.after = files(self.folder)
        self.effects = ended.effects

    def run(self, failure: Failure) -> Ended:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self._template, self.folder)
        command = self._case.command
        if isinstance(command, list):
            return failures.run(self._filled(command), self.folder, failure)
        return failures.run(command(self.folder), self.folder, failure)

    def failure(self, kind: Kind, at: int) -> Failure:
        """Folders that may not be read are left out of a directory, without an error."""
        reads = self.effects[at].startswith(("os.scandir", "os.listdir"))
        return Failure("broken" if reads and kind == "denied" else kind, at)

    def check(self, failure: Failure) -> None:
        ended = self.run(failure)
        found = files(self.folder)
        about = f"{failure}: {ended.said}"
        assert "Traceback" not in ended.said, about
        for name, data in found.items():
            assert data in (self.before.get(name), self.after.get(name)), f"{about}: {name}"
        if failure.kind == "kill":
            assert ended.code == -9
            # Of what is in place, all is there, in this version or that.
            assert self.before.keys() & self.after.keys() <= found.keys() or self._is_aside(), about
        elif ended.code == OK:
            assert found == self.after, about
        elif ended.code == BAD_INPUT:
            assert found == self.before, about
            wanted = ("error[unreadable]", "Nothing was written", "nothing was changed")
            assert any(text in ended.said for text in wanted), about
        else:
            assert ended.code in (FAILED, 130)
            wanted = ("interrupted", "error[left-behind]")
            assert any(text in ended.said for text in wanted), about
            if not failure.lasting:
                assert found in (self.before, self.after), about
            if "left-behind" in ended.said:
                assert all(name in ended.said for name in hidden(self.folder)), about
        self._again(about)

    def _is_aside(self) -> bool:
        """A folder cannot be exchanged in one step; the next command finds the old one."""
        return any(self.folder.glob(".rewriter-*/old/*"))

    def _again(self, about: str) -> None:
        """The next command clears up."""
        if not self._case.again:
            assert not isinstance(self._case.command, list)
            self._case.command(self.folder)()
        for command in self._case.again:
            assert main(self._filled(command)) == OK, about
        left = files(self.folder)
        assert left == self._case.result(self.before, self.after), about
        # A folder that nothing is written into any more is not looked at.
        if any(self.folder.rglob("*")):
            assert not hidden(self.folder) or left == self.before, about

    def _filled(self, command: list[str]) -> list[str]:
        return [part.format(self.folder) for part in command]


SOME = 4  # failures of each case: at either end and in between


@pytest.mark.parametrize("name", CASES)
def test_effects_fail(name: str, tmp_path: Path) -> None:
    trial = Trial(CASES[name], tmp_path)
    # Each kind has its turn, another one at the same place in each case.
    turn = list(CASES).index(name)
    last = len(trial.effects) - 1
    places = sorted({round(last * part / (SOME - 1)) for part in range(SOME)})
    for number, at in enumerate(places):
        trial.check(trial.failure(KINDS[(number + turn) % len(KINDS)], at))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CASES)
def test_each_effect_fails_in_every_way(name: str, tmp_path: Path) -> None:
    trial = Trial(CASES[name], tmp_path)
    ways = itertools.product(range(len(trial.effects)), KINDS)
    for at, kind in ways:
        trial.check(trial.failure(kind, at))
        if kind in ("full", "denied", "broken"):
            trial.check(replace(trial.failure(kind, at), lasting=True))
