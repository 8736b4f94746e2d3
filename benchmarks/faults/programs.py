"""Compiles the models to artifacts, once, and makes copies of these with a changed source."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.faults.source import ENCODING, Source, read

ROOT = Path(__file__).parents[2]


class BuildError(Exception):
    """A compiler rejected a changed source."""


def imports_of(source: Source) -> list[str]:
    """The command-line options that register the custom operators of a source."""
    custom = "rewriter_demo" in source.text
    return ["--import", str(ROOT / "fixtures" / "models.py")] if custom else []


def environment_with(cache: Path) -> dict[str, str]:
    """The environment of a command that uses `cache` as Inductor's cache."""
    return {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache)}


@dataclass(frozen=True)
class Program:
    """One artifact: its source, the inputs of its call, and the cache that it lies in."""

    name: str
    form: str
    row: dict[str, Any]
    cache: Path

    @cached_property
    def source(self) -> Source:
        return read(self.name, self.form, *map(Path, self.row["files"]))

    @property
    def args(self) -> str:
        return str(self.row["args"])

    @property
    def options(self) -> list[str]:
        """The options of a command about this program: inputs, graph, and custom operators."""
        graph = ["--graph", str(self.row["graph"])] if "graph" in self.row else []
        return ["--args", self.args, *graph, *self.imports]

    @property
    def imports(self) -> list[str]:
        return imports_of(self.source)

    @property
    def environment(self) -> dict[str, str]:
        return environment_with(self.cache)

    @contextmanager
    def installed(self, source: Source, folder: Path) -> Iterator[tuple[Program, Path]]:
        """Make a copy of the artifact with another source in `folder`.

        It is a package, or a wrapper in a copy of its cache (the cache entry has its graph), so
        several copies may be used at once. Yields the program with that cache, and the path.
        """
        if self.form == "aoti":
            yield self, self._built(source, folder)
            return
        cache = folder / "cache"
        shutil.copytree(self.cache, cache)
        (file,) = (cache / Path(one).relative_to(self.cache) for one in self.row["files"])
        _replace(file, source.text)
        try:
            yield replace(self, cache=cache), file
        finally:
            shutil.rmtree(cache, ignore_errors=True)

    def _built(self, source: Source, folder: Path) -> Path:
        if source.texts == self.source.texts:
            return Path(self.row["package"])
        files = [Path(one) for one in self.row["files"]]
        work = folder / "build"
        shutil.copytree(files[0].parent, work, dirs_exist_ok=True)

        def moved(command: list[str]) -> list[str]:
            return [word.replace(str(files[0].parent), str(work)) for word in command]

        for file, command in zip(files, self.row["compile"], strict=True):
            if source.texts[file.name] != self.source.texts[file.name]:
                (work / file.name).write_bytes(source.texts[file.name].encode(ENCODING))
                _build(moved(command), work)
        _build(moved(self.row["link"]), work)
        package = folder / "model.pt2"
        with zipfile.ZipFile(self.row["package"]) as old, zipfile.ZipFile(package, "w") as new:
            for info in old.infolist():
                name = Path(info.filename).name
                changed = name.endswith((".so", ".cpp")) and (work / name).exists()
                data = (work / name).read_bytes() if changed else old.read(info)
                new.writestr(info.filename, data)
        shutil.rmtree(work)
        return package


def _replace(file: Path, text: str) -> None:
    new = file.with_name(f"{file.name}.new")
    new.write_bytes(text.encode(ENCODING))
    new.rename(file)


def _build(command: list[str], folder: Path) -> None:
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise BuildError(ended.stderr[-2000:])


def compiled(
    work: Path, device: str, forms: dict[str, tuple[str, ...]], jobs: int = 1
) -> list[Program]:
    """Compile models to forms, unless an earlier run did. `forms` has the models of each form."""
    sys.path += [str(ROOT / one) for one in ("fixtures", "tests/support")]
    from compilations import Compilations

    folder = work / "compiled"
    folder.mkdir(parents=True, exist_ok=True)
    compilations = Compilations(folder)

    def compiled_to(form: str, name: str) -> list[Program]:
        def make(into: Path) -> str:
            command = [sys.executable, "-m", "benchmarks.faults.compile"]
            subprocess.run([*command, name, form, device, str(into)], cwd=ROOT, check=True)
            return str(into)

        kept = ("graph",) if form == "aoti" else ()
        try:
            into = Path(compilations.value_with_files(make, "faults", device, form, name, *kept))
        except subprocess.CalledProcessError:
            if not name.startswith("random-"):
                raise
            print(f"{name} does not compile: left out", file=sys.stderr)  # 1 of 100 in torch 2.11
            return []
        rows = json.loads((into / "programs.json").read_text())
        labels = [name if len(rows) == 1 else f"{name}.{number}" for number in range(len(rows))]
        pairs = zip(labels, rows, strict=True)
        return [Program(label, form, row, into / "cache") for label, row in pairs]

    with ThreadPoolExecutor(jobs) as pool:
        work_list = [(form, name) for form, names in forms.items() for name in names]
        found = list(pool.map(lambda one: compiled_to(*one), work_list))
    return [program for some in found for program in some]
