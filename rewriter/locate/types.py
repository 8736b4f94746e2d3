"""The types that locating returns: launches, entries and inputs of a wrapper. No I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from rewriter.core.printed import printed
from rewriter.core.types import Role, Type

if TYPE_CHECKING:
    from rewriter.core.documents import Count, LineNumber, WrapperName

# What is wrong with memory that is read, judging by the text alone. `unwritten`: nothing has
# written it; `taken`: nothing has since it was taken over from another buffer; `stale`: another
# buffer has taken it over; `freed`: it was deleted. Inductor generates no such reads. `updated`:
# nothing has written it, which is wrong only if the kernel reads it before writing it. `unbound`:
# the scope has no such name.
Hazard = Literal["", "unwritten", "taken", "updated", "stale", "freed", "unbound"]

# How a line affects the order of streams: a scope with such lines begins or ends; the following
# work goes to another stream; an event is recorded on a stream; a stream or the host waits for one.
StreamActionKind = Literal["begin", "end", "enter", "record", "wait", "synchronize"]

_INDEX = re.compile(r"\w+\[(\d+)\]")
_ITEM = re.compile(r"\w+(?:\[\d+\])+")


@printed("name expr buffer role type")
@dataclass(frozen=True, slots=True)
class Argument:
    """One argument or result of a launch.

    `expr` is its source text, `name` the short name for prints and file names, `buffer` the
    variable that owns the memory after following views and reuse. `later` is the text that gives
    the value after the launch, if it differs from `expr`; empty if the launch takes ownership and
    nothing gives the value. `hazard` says what is wrong with the memory that it reads. `parameter`
    is the position or the name that it has in the schema of an operator that only the program
    knows; otherwise empty.
    """

    name: str
    expr: str
    buffer: str
    role: Role
    type: Type
    later: str | None = None
    hazard: Hazard = ""
    parameter: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether it is a whole variable, or an item of a call's result, and not a view."""
        return self.expr == self.name or _ITEM.fullmatch(self.expr) is not None


def by_item(results: Sequence[Argument]) -> dict[int, Argument]:
    """What a call writes, in the order of its operator: first the arguments that it updates, then
    what it returns, by the index in `buf3[2]`."""
    indices = {result.expr: _INDEX.fullmatch(result.expr) for result in results}
    found = [result for result in results if indices[result.expr] is None]
    placed = dict(enumerate(found))
    for result in results:
        if (match := indices[result.expr]) is not None:
            placed[len(found) + int(match[1])] = result
    return placed


class InsertionPoint(NamedTuple):
    """Where the lines of a launch go, in bytes from the start of the file.

    `start` is the start of the statement's first line, `end` the end of its last line with its
    newline. `obstacle` says why no line can go around the launch; `open_ended` why none can follow
    it (a `return`). Empty strings mean that there is no obstacle.
    """

    start: int
    end: int
    indent: bytes
    obstacle: str = ""
    open_ended: str = ""


@printed("index kernel kind scope line source_nodes origins")
@dataclass(frozen=True, slots=True)
class Launch:
    """One statement that runs a kernel. `index` counts from 0 in file order over the wrapper.

    `repeats` is true if one call of the wrapper may run the launch more than once: in a loop, or in
    a function for a subgraph. `conditional` is true if a call may skip it, because it is in a
    branch or a handler. `stream` is the side stream that it runs on, by its name in the wrapper;
    empty for the stream that the wrapper is called on.
    """

    index: Count
    scope: str
    kernel: str
    kind: str
    line: LineNumber
    args: tuple[Argument, ...]
    origins: tuple[str, ...]
    source_nodes: tuple[str, ...]
    insertion_point: InsertionPoint
    repeats: bool = False
    conditional: bool = False
    wrapper: WrapperName = ""
    stream: str = ""

    @property
    def tensors(self) -> tuple[Argument, ...]:
        """The arguments that are tensors."""
        return tuple(x for x in self.args if x.type == "tensor")

    @property
    def may_write(self) -> tuple[Argument, ...]:
        """The tensors that it writes, as far as the text tells: of an operator of a user, that may
        be any."""
        is_open = self.kind == "custom_op"
        return tuple(x for x in self.tensors if is_open or x.role != "in")

    @property
    def is_last(self) -> bool:
        """Whether no line can follow it, because it is a `return`."""
        return bool(self.insertion_point.open_ended)


MemoryAction = Literal["allocate", "reuse", "release"]


@dataclass(frozen=True, slots=True)
class MemoryEvent:
    """A line that allocates, reuses or releases memory. `index` counts from 0 in file order.

    `buffer` is the variable that has the memory afterwards, or that releases it. `of` is the
    variable whose memory a reuse takes over, otherwise empty. If `insertion_point` has no obstacle,
    probe lines go after an allocation or a reuse, and before a release. A reuse `is_dead` if the
    next launch with that memory writes it without reading it first, so that the old value is not
    needed. `is_held`: others may use the memory, too; only set for a language that cannot find that
    out at run time.
    """

    index: int
    scope: str
    action: MemoryAction
    buffer: str
    of: str
    line: int
    insertion_point: InsertionPoint
    is_dead: bool = False
    is_held: bool = False


@dataclass(frozen=True, slots=True)
class OtherUse:
    """A statement that is not a launch and may write a buffer, such as `buf0.zero_()`, or whose
    effect is not known. `start` is the offset of its line.

    `buffer` is a name in the statement, or the variable that owns its memory; empty means all
    buffers. If it `lasts`, the memory may also be written later, through the statement's result.
    """

    start: int
    buffer: str
    lasts: bool


@dataclass(frozen=True, slots=True)
class StreamAction:
    """A line that sets the stream on which work runs, or makes something wait.

    `stream` is named as in `Launch`. `event` is empty if the host waits for all streams.
    """

    kind: StreamActionKind
    line: int
    stream: str = ""
    event: str = ""


@printed("line text")
@dataclass(frozen=True)
class Unrecognised:
    """A call in a scope that is neither a launch nor a call known not to launch."""

    line: LineNumber
    text: str
    wrapper: WrapperName = ""


@dataclass(frozen=True)
class InputSpec:
    """What is known about one input of a wrapper without running it; empty or `None` is unknown.

    `kind` is tensor, int or float. A dimension is an expression over integers and names of sizes,
    or `?` if it is not known, and may end in `:low..high`. `open` says that more dimensions may
    follow. `symbol` is the name of a number that is a size, `alignment` a number of bytes.
    """

    name: str
    kind: str = ""
    dtype: str = ""
    device: str = ""
    size: tuple[str, ...] | None = None
    stride: tuple[str, ...] | None = None
    open: bool = False
    alignment: int = 0
    symbol: str = ""


@dataclass(frozen=True)
class EntryPoint:
    """A function that a caller of the wrapper runs.

    `start` is the offset of its body's first line, `inputs` the names of its inputs, and
    `inputs_at` the offset of a line where all of them have values, if there is one. `outputs` are
    the buffers that it returns, in order, empty for an output that is not a buffer; `returned` are
    their names there, `hazards` what is wrong with their memory. `input_specs` has the known facts
    about each input, in the order of `inputs`. `weights` are the names of a package's weights,
    which exist as long as it is loaded, and `weights_at` is the offset of a line where they have
    values.
    """

    name: str
    start: int
    indent: bytes
    inputs: tuple[str, ...]
    inputs_at: int | None = None
    outputs: tuple[str, ...] = ()
    input_specs: tuple[InputSpec, ...] = ()
    returned: tuple[str, ...] = ()
    hazards: tuple[Hazard, ...] = ()
    weights: tuple[str, ...] = ()
    weights_at: int | None = None


@dataclass(frozen=True)
class Located:
    """The launches, entries and inputs of one wrapper.

    `header` is the offset at which module-level lines may be inserted: before the first scope.
    `loader_globals` are module-level names that stay `None` until Inductor's loader sets them.
    `memory` are the memory events in file order. `stream_actions` are in file order, for scopes
    that have any. `other_uses` are statements other than launches that may write.
    """

    launches: tuple[Launch, ...]
    unrecognised: tuple[Unrecognised, ...]
    entries: tuple[EntryPoint, ...]
    header: int
    loader_globals: tuple[str, ...] = ()
    stream_actions: tuple[StreamAction, ...] = ()
    memory: tuple[MemoryEvent, ...] = ()
    other_uses: tuple[OtherUse, ...] = ()


@dataclass(frozen=True)
class KernelSource:
    """A kernel by the name under which it is launched, its source, and the place of that.

    `start` and `end` are bytes of the plain wrapper; both 0 for a kernel in another file. `inside`
    are those of its lines, from 1, that hold only source, without the call that the source is
    passed to; empty if there are none.
    """

    name: str
    text: str
    start: int = 0
    end: int = 0
    inside: range = range(0)
