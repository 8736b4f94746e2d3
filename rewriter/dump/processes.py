"""The processes of a program in its dump: `processes.json`, by their ids.

Wrappers do not know which piece of a model they are for. If a program loads compiled pieces of a
model from files, the files tell; equal layers share a wrapper.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

from rewriter.core import json_text
from rewriter.dump import beside

FILE = "processes.json"
# Inductor's names for the inputs of a wrapper: from 0 if a graph has no backward, else from 1.
_INPUT = re.compile(r"arg(\d+)_1|primals_(\d+)")


@dataclass(frozen=True)
class PieceOfModel:
    """A piece that a model was split into: its name, the sizes that it was compiled for (may be
    empty), the layers in it, and its inputs in the model, in order."""

    name: str
    sizes: str = ""
    layers: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Such as `layers.0, layers.1 (submod_2, sizes 1 to 8192)`."""
        sizes = self.sizes.strip("()").replace(", ", " to ")
        name = f"{self.name}, sizes {sizes}" if sizes else self.name
        return f"{', '.join(self.layers)} ({name})" if self.layers else name

    def input(self, variable: str) -> str:
        """What a variable of the wrapper, if it is an input, is in the model; empty if unknown."""
        if (match := _INPUT.fullmatch(variable)) is None:
            return ""
        number = int(match[1]) if match[1] else int(match[2]) - 1
        return self.inputs[number] if 0 <= number < len(self.inputs) else ""


@dataclass(frozen=True)
class ProcessNames:
    """A process: its name in the program, its rank by the program's files (both may be empty), and
    the pieces of the model that its wrappers are for, by the wrappers' hashes."""

    name: str = ""
    rank: str = ""
    pieces: Mapping[str, tuple[PieceOfModel, ...]] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join(filter(None, (self.name, self.rank and f"({self.rank})")))

    def piece(self, sha256: str, turn: int | None) -> PieceOfModel | None:
        """The piece for a call of a wrapper, if known; `turn` counts from 0.

        A model runs its pieces in turn, so the calls of a wrapper cycle through its pieces.
        """
        pieces = self.pieces.get(sha256, ())
        if len(pieces) > 1 and turn is None:
            return None
        return pieces[(turn or 0) % len(pieces)] if pieces else None

    def words(self, sha256: str, turn: int | None) -> str:
        """The piece as text; if it is one of several, the text says that its turn decides."""
        count = len(self.pieces.get(sha256, ()))
        piece = self.piece(sha256, turn)
        if piece is None:
            return f"one of {count} pieces of the model with this wrapper" if count else ""
        return f"{piece}, by its turn among {count} with this wrapper" if count > 1 else str(piece)


def write(dump: Path, processes: Mapping[int, ProcessNames]) -> None:
    """Add the processes to a dump. Raises `OSError`."""
    from msgspec import to_builtins

    from rewriter.dump.documents import ProcessesFile, ProcessFacts

    content = ProcessesFile(
        processes={
            str(pid): ProcessFacts(
                name=names.name,
                rank=names.rank,
                pieces={sha256: tuple(map(astuple, x)) for sha256, x in names.pieces.items()},
            )
            for pid, names in processes.items()
        }
    )
    (dump / FILE).write_text(json_text.encode(to_builtins(content)), encoding="utf-8")


def read(dump: Path) -> Mapping[int, ProcessNames]:
    """The processes of a dump; none if there are none, or the file is damaged."""
    by_pid = beside.read(dump / FILE, "processes", _process)
    return {int(pid): names for pid, names in by_pid.items() if pid.isdecimal()}


def _process(row: Any) -> ProcessNames:
    from rewriter.dump.documents import ProcessFacts
    from rewriter.dump.rows import read

    one = read(row, ProcessFacts)
    pieces = {
        sha256: tuple(PieceOfModel(*piece) for piece in of) for sha256, of in one.pieces.items()
    }
    return ProcessNames(one.name, one.rank, pieces)
