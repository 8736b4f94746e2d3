"""The real wrappers under `fixtures/artifacts`, for tests to be parametrised with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ARTIFACTS = Path(__file__).parent.parent / "fixtures" / "artifacts"


@dataclass(frozen=True)
class Fixture:
    """One wrapper. `folder` is `<device>-torch<version>`, `graph` 1 for a second graph."""

    folder: str
    model: str
    graph: int
    path: Path

    def __str__(self) -> str:
        return f"{self.folder}/{self.model}" + (f" {self.graph}" if self.graph else "")

    @property
    def data(self) -> bytes:
        return self.path.read_bytes()

    @property
    def upstream(self) -> Path:
        """The file that PyTorch's own printer made of the same model."""
        return self.path.parent.parent / "python-upstream-print" / self.path.name


def _found() -> tuple[Fixture, ...]:
    return tuple(
        Fixture(path.parts[-4], path.parts[-3], int(path.stem.endswith("1")), path)
        for path in sorted(ARTIFACTS.glob("*/*/python/output_code*.py"))
    )


FIXTURES = _found()
UPSTREAM = tuple(fixture for fixture in FIXTURES if fixture.upstream.is_file())


def get(name: str) -> Fixture:
    """A fixture by what `str` of it gives, such as `cuda-torch2.11/gpt_train 1`."""
    return next(fixture for fixture in FIXTURES if str(fixture) == name)
