"""Wrappers in a directory such as `fixtures/artifacts/cpu-torch2.13`.

No model is compiled for them, only their kernels when they run. They make their own random inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.faults.programs import environment_with, imports_of
from benchmarks.faults.source import ENCODING, Source, read

_OPERATORS = Path(__file__).parents[2] / "fixtures/recorded_operators.py"
_FILES = {"python": "python/output_code.py", "cpp_wrapper": "cpp_wrapper/output_code.py"}


@dataclass(frozen=True)
class Artifact:
    """One wrapper. All share one cache of kernels, in which a changed kernel has another name."""

    name: str
    form: str
    path: Path
    cache: Path

    @cached_property
    def source(self) -> Source:
        return read(self.name, self.form, self.path)

    @property
    def options(self) -> list[str]:
        options = imports_of(self.source)
        if "torch.ops.corp." in self.source.text:
            options += ["--import", str(_OPERATORS)]
        return options

    @property
    def environment(self) -> dict[str, str]:
        return environment_with(self.cache)

    @contextmanager
    def installed(self, source: Source, folder: Path) -> Iterator[tuple[Artifact, Path]]:
        path = folder / self.path.name
        path.write_bytes(source.text.encode(ENCODING))
        yield self, path


def artifacts_in(folder: Path, forms: tuple[str, ...], cache: Path) -> list[Artifact]:
    """The wrappers below a directory of models, in the given forms."""
    return [
        Artifact(model.name, form, model / file, cache)
        for form, file in _FILES.items()
        if form in forms
        for model in sorted(folder.iterdir())
        if (model / file).is_file()
    ]
