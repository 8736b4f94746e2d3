"""The real wrappers under `fixtures/artifacts`, for tests to be parametrised with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import rewriter
from rewriter.artifact.types import Artifact

ARTIFACTS = Path(__file__).parents[2] / "fixtures" / "artifacts"


@dataclass(frozen=True)
class Fixture:
    """One wrapper. `folder` is `<device>-torch<version>`, `graph` 1 for a second graph."""

    folder: str
    model: str
    graph: int
    path: Path

    def __str__(self) -> str:
        kind = "" if self.kind == "python" else f" {self.kind}"
        return f"{self.folder}/{self.model}{kind}" + (f" {self.graph}" if self.graph else "")

    @property
    def kind(self) -> str:
        """The folder that it lies in: `python`, `cpp_wrapper`, `aoti` or another `aoti-…`."""
        return self.path.parent.name

    @property
    def data(self) -> bytes:
        return self.path.read_bytes()

    @property
    def upstream(self) -> Path:
        """What PyTorch's own printer made of the same model.

        For a Python wrapper the file that it instrumented, for an AOTInductor one, of which only
        that was kept, the text that it printed.
        """
        name = "stdout.txt" if self.kind == "aoti" else self.path.name
        return self.path.parent.parent / f"{self.kind}-upstream-print" / name


def _found(*patterns: str) -> tuple[Fixture, ...]:
    return tuple(
        Fixture(path.parts[-4], path.parts[-3], int(path.stem.endswith("1")), path)
        for pattern in patterns
        for path in sorted(ARTIFACTS.glob(f"*/*/{pattern}"))
    )


FIXTURES = _found("python/output_code*.py")
# C++ inside a Python file, and C++ alone.
CPP_FIXTURES = _found("cpp_wrapper/output_code*.py", "aoti*/wrapper.cpp")
UPSTREAM = tuple(fixture for fixture in FIXTURES if fixture.upstream.is_file())
AOTI_UPSTREAM = tuple(fixture for fixture in CPP_FIXTURES if fixture.upstream.is_file())


def get(name: str) -> Fixture:
    """A fixture by what `str` of it gives: `cuda-torch2.11/gpt aoti`, `…/gpt_train 1`."""
    return next(fixture for fixture in FIXTURES + CPP_FIXTURES if str(fixture) == name)


@cache
def plain(fixture: Fixture) -> Artifact:
    """A fixture, located once for all tests of a process."""
    return rewriter.open(fixture.path)
