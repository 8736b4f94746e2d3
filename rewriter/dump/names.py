"""The names of the model in a dump: `names.json`, by the hashes of the wrappers without probes.

The wrapper's own table has the names that Inductor wrote into the file. These names are from what
the program's first run traced. They are in a separate file, so that probes do not depend on them.
Beside it are the graphs that wrappers were compiled from, as text: `graphs/SHA256.txt`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rewriter.core import json_text, limits
from rewriter.core.errors import RewriterError
from rewriter.core.libraries import is_of_library
from rewriter.dump import beside

if TYPE_CHECKING:
    from rewriter.core.documents import LineNumber

FILE, GRAPHS = "names.json", "graphs"
KEPT = ("parameter", "buffer")  # kinds of inputs of which each replica of a model has the same
_OTHER = {"forward": "backward", "backward": "forward"}
_HASH = re.compile(r"[0-9a-f]{64}")
_T = TypeVar("_T")


@dataclass(frozen=True)
class SourceLine:
    """A line of the model that a launch computes, or a part of it. `code` is its text."""

    file: str
    line: LineNumber
    function: str = ""
    code: str = ""

    @property
    def short(self) -> str:
        """Such as `model.py:12`."""
        return f"{self.file_name}:{self.line}"

    @property
    def is_of_library(self) -> bool:
        """Whether the file is one of Python or of a package that is installed."""
        return is_of_library(self.file)

    @property
    def file_name(self) -> str:
        return self.file.replace("\\", "/").rpartition("/")[2]

    def __str__(self) -> str:
        where = f" in {self.function}" if self.function else ""
        return f"{self.short}{where}: {self.code}" if self.code else f"{self.short}{where}"


@dataclass(frozen=True)
class Input:
    """An input in the model: its name, empty if not known, and where it is first used. `kind` is
    "parameter", "buffer", "shard" (of a distributed tensor) or "data"; empty if not known."""

    name: str
    at: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Names:
    """`nodes` are the source nodes of launches by index: Dynamo's names, or if these are not known
    the lines of the model (`model.py:12`), or else the nodes of Inductor's graph. `inputs` are by
    the names that the wrapper gives them.

    `lines` are the lines of the model that launches compute, `computes` the nodes of Inductor's
    graph, such as `log = aten.log.default(addmm)`, both by the index of the launch. `graph` says
    which part of the model the wrapper is: `model (model.py:9)`. `direction` is "forward",
    "backward" or "inference"; in training, `partner` is the name of the wrapper of the other
    direction. `saved` maps inputs of a backward to variables of its forward. `lowered` is the text
    of that graph, which a dump keeps in a separate file: reading names does not set
    it.
    """

    nodes: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    inputs: Mapping[str, Input] = field(default_factory=dict)
    lines: Mapping[int, tuple[SourceLine, ...]] = field(default_factory=dict)
    computes: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    graph: str = ""
    direction: str = ""
    partner: str = ""
    saved: Mapping[str, str] = field(default_factory=dict)
    lowered: str = ""

    def called(self, name: str) -> str:
        """What the model calls an input; of all else, and if that is not known, its own name."""
        known = self.inputs.get(name)
        return known.name if known is not None and known.name else name

    @property
    def of_model(self) -> str:
        """Such as `backward of model (model.py:9)`; empty if the part is not known."""
        return f"{self.direction} of {self.graph}" if self.direction and self.graph else ""

    @property
    def part(self) -> str:
        """Such as `backward of model (model.py:9), its forward is NAME`, in training."""
        if self.direction not in _OTHER:
            return ""
        of = f" of {self.graph}" if self.graph else ""
        other = f", its {_OTHER[self.direction]} is {self.partner}" if self.partner else ""
        return f"{self.direction}{of}{other}" if of or other else ""

    def __bool__(self) -> bool:
        """Whether anything is known."""
        return any((self.nodes, self.inputs, self.lines, self.computes, self.partner, self.lowered))


NO_NAMES = Names()


def listed(lines: Iterable[SourceLine]) -> str:
    """The places of lines, in short: `model.py:9,10 loss.py:3`."""
    numbers: dict[str, list[str]] = {}
    for line in lines:
        numbers.setdefault(line.file_name, []).append(str(line.line))
    return " ".join(f"{name}:{','.join(dict.fromkeys(x))}" for name, x in numbers.items())


def write(dump: Path, names: Mapping[str, Names]) -> None:
    """Add the names of wrappers to a dump. Raises `OSError`."""
    from msgspec import to_builtins

    from rewriter.dump.documents import NamesFile, WrapperNames

    content = NamesFile(
        wrappers={
            sha256: WrapperNames(
                source_nodes={str(index): nodes for index, nodes in known.nodes.items()},
                inputs={name: astuple(x) for name, x in known.inputs.items()},
                lines={str(index): tuple(map(astuple, x)) for index, x in known.lines.items()},
                computes={str(index): nodes for index, nodes in known.computes.items()},
                graph=known.graph,
                direction=known.direction,
                partner=known.partner,
                saved=dict(known.saved),
            )
            for sha256, known in names.items()
        },
    )
    (dump / FILE).write_text(json_text.encode(to_builtins(content)), encoding="utf-8")
    write_graphs(dump, {sha256: known.lowered for sha256, known in names.items()})


def read(dump: Path) -> Mapping[str, Names]:
    """The names in a dump; none if there are none, or the file is damaged."""
    return beside.read(dump / FILE, "wrappers", _names)


def write_graphs(dump: Path, texts: Mapping[str, str]) -> None:
    """Add the graphs of wrappers to a dump. Raises `OSError`."""
    for sha256, text in texts.items():
        if text:
            (dump / GRAPHS).mkdir(exist_ok=True)
            (dump / GRAPHS / f"{sha256}.txt").write_text(text, encoding="utf-8")


def read_graph(dump: Path, sha256: str) -> str:
    """The graph of a wrapper; empty if the dump has none."""
    if not _HASH.fullmatch(sha256):
        return ""
    try:
        data = limits.read(dump / GRAPHS / f"{sha256}.txt", limits.ENTRY_BYTES)
    except (OSError, RewriterError):
        return ""
    return data.decode("utf-8", "replace")


def _names(row: Any) -> Names:
    from rewriter.dump.documents import WrapperNames
    from rewriter.dump.rows import read

    one = read(row, WrapperNames)
    return Names(
        _by_launch(one.source_nodes),
        {name: Input(*given[:3]) for name, given in one.inputs.items()},
        {at: _own_first(lines) for at, lines in _by_launch(one.lines).items()},
        _by_launch(one.computes),
        one.graph,
        one.direction,
        one.partner,
        one.saved,
    )


def _own_first(lines: Iterable[tuple[str, int, str, str]]) -> tuple[SourceLine, ...]:
    """Lines of the user's own files before those of libraries."""
    return tuple(sorted((SourceLine(*x) for x in lines), key=lambda x: x.is_of_library))


def _by_launch(given: Mapping[str, _T]) -> dict[int, _T]:
    return {int(index): value for index, value in given.items() if index.isdecimal()}
