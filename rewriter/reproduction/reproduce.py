"""Writes one recorded launch as a directory: a script, its tensors, and a page about it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rewriter.core import files
from rewriter.core.errors import RewriterError
from rewriter.core.transaction import Transaction
from rewriter.reproduction import cpp_cut, python_cut
from rewriter.reproduction.recorded import recorded_launch
from rewriter.reproduction.script import README, SCRIPT, readme, script
from rewriter.reproduction.types import Cut, Recorded, Tensor, not_saved


@dataclass(frozen=True)
class Reproduction:
    """What was written: the directory, the launch, and the names of its files.

    `imports` and `libraries` are what the script loads.
    """

    directory: Path
    recorded: Recorded
    files: tuple[str, ...]
    cut: Cut
    imports: tuple[str, ...] = ()
    libraries: Mapping[str, Path] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        """The dump's names of tensors, by their variables in the script."""
        return {variable: name for name, variable in self.cut.variables.items()}

    def rewritten(self, recorded: Recorded, cut: Cut, notes: Sequence[str]) -> Reproduction:
        """Write another launch into the directory, which loads the same."""
        loads, libraries = self.imports, self.libraries
        return write(recorded, cut, self.directory, imports=loads, libraries=libraries, notes=notes)


def reproduce(
    dump: str | Path,
    launch: int,
    directory: str | Path,
    *,
    run: str | None = None,
    iteration: int = 0,
    imports: Sequence[str] = (),
    libraries: Sequence[str | Path] = (),
    overwrite: bool = False,
) -> Reproduction:
    """Write the launch of this index, of the first call that recorded it, into a directory.

    `run` names another call (`rank0/run3`), `iteration` the run of a launch in a loop, `imports`
    modules that the script has to import, such as those that register operators, `libraries` shared
    libraries that do so, which are copied. Nothing of the dump is executed. Raises `RewriterError`
    where the dump does not hold what it takes, and where the directory exists.
    """
    recorded = recorded_launch(dump, launch, run=run, iteration=iteration)
    cut = cut_out(recorded)
    if not any(recorded.written[name].file for name in cut.results):
        problem = f"{recorded.run.path}: nothing that {recorded.title} wrote was saved"
        raise not_saved(problem, launch)
    target = Path(directory)
    loaded = _libraries(libraries)
    if target.exists() and not overwrite:
        raise RewriterError(
            "exists",
            f"{target} exists",
            hint="Name another directory with -o, or pass --overwrite.",
        )
    return write(recorded, cut, target, imports=imports, libraries=loaded)


def cut_out(recorded: Recorded) -> Cut:
    """One launch as Python that runs it and nothing else of its wrapper, in either language.

    Nothing of the dump is executed. Raises `RewriterError` (`cannot-reproduce`) where the launch
    cannot stand alone, with the reason.
    """
    is_cpp = recorded.wrapper.language == "cpp"
    return cpp_cut.cut(recorded) if is_cpp else python_cut.cut(recorded)


def write(
    recorded: Recorded,
    cut: Cut,
    target: Path,
    *,
    imports: Sequence[str] = (),
    libraries: Mapping[str, Path] | None = None,
    notes: Sequence[str] = (),
) -> Reproduction:
    """Write the directory, over one that is there; `libraries` are files by their names in it.

    `notes` are lines of the page beside the script: what was found, or what was made smaller.
    """
    libraries = libraries or {}
    given = _files("given", {name: recorded.given[name] for name in cut.variables})
    expected = _files("written", {name: recorded.written[name] for name in cut.results})
    text = script(
        recorded,
        cut,
        {name: file for name, (file, _) in given.items()},
        {name: file for name, (file, _) in expected.items()},
        tuple(imports),
        tuple(libraries),
    )
    copies = dict([*given.values(), *expected.values(), *libraries.items()])
    with Transaction(target) as changes:
        if target.exists():
            kept = {source.resolve() for source in copies.values()}
            for old in sorted(x for x in target.iterdir() if _is_ours(x)):
                if old.resolve() not in kept:
                    changes.remove(old)
        changes.make_folder(target)
        for name, source in copies.items():
            if source.resolve() != (target / name).resolve():
                shutil.copyfile(source, changes.stage(target / name))
        changes.stage(target / SCRIPT, mode=0o644).write_bytes(text.encode())
        page = readme(recorded, cut, tuple(imports), tuple(notes))
        changes.stage(target / README, mode=0o644).write_bytes(page.encode())
    names = (SCRIPT, README, *copies)
    kept_libraries = {name: target / name for name in libraries}
    return Reproduction(target, recorded, names, cut, tuple(imports), kept_libraries)


def _libraries(paths: Sequence[str | Path]) -> dict[str, Path]:
    """By their names in the directory: the libraries."""
    found: dict[str, Path] = {}
    for path in map(Path, paths):
        files.require_file(path, hint="--library takes a shared library that registers operators.")
        found[f"library_{len(found)}_{_plain(path.stem)}.so"] = path
    return found


def _files(kind: str, tensors: Mapping[str, Tensor]) -> dict[str, tuple[str, Path]]:
    """By the names of tensors: the name of the file in the directory, and where it is now."""
    return {
        name: (f"{kind}_{i}_{_plain(name)}.pt", tensor.file)
        for i, (name, tensor) in enumerate(tensors.items())
        if tensor.file is not None
    }


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() or c == "_" else "_" for c in name)[:60]


def _is_ours(path: Path) -> bool:
    named = {".pt": ("given_", "written_"), ".so": ("library_",)}
    return path.name.startswith(named.get(path.suffix, ("/",)))
