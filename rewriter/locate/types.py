"""The values that locating gives: launches, entries and inputs of a wrapper. No I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from rewriter.core.types import Language, Role, Type

# What is wrong, by the text alone, with memory that is read: nothing has written it, also not since
# it was `taken` over from another buffer; it is `stale`, since another buffer took it over; or it
# was deleted. Inductor writes nothing of the kind. `updated` memory was not written either, and is
# only wrong if the kernel reads it before it writes it.
Hazard = Literal["", "unwritten", "taken", "updated", "stale", "freed"]

# What a line does to the order of streams: a scope that has such lines begins or ends; what follows
# goes to another stream; an event is recorded on a stream, a stream waits for it, the host does.
StreamActionKind = Literal["begin", "end", "enter", "record", "wait", "synchronize"]

_ITEM = re.compile(r"\w+(?:\[\d+\])+")


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument or result of a launch.

    `expr` is its source text, `name` the short name that prints and file names use, `buffer` the
    variable that owns the memory once views and reuse are resolved. `later` is the text that gives
    the value once the launch ran, where that is another than `expr`; empty if nothing does, because
    the launch takes what it is given. `hazard` says what is wrong with the memory that it reads.
    """

    name: str
    expr: str
    buffer: str
    role: Role
    type: Type
    later: str | None = None
    hazard: Hazard = ""

    @property
    def is_whole(self) -> bool:
        """Whether it is all of a variable, or an item of what a call returned, and no view."""
        return self.expr == self.name or _ITEM.fullmatch(self.expr) is not None


@dataclass(frozen=True, slots=True)
class InsertionPoint:
    """Where the lines of a launch stand, in bytes from the start of the file.

    `start` is the start of the statement's first line, `end` the end of its last line with its
    newline. `obstacle` says why no line can be put around the launch; `open_ended` why none can
    follow it (a `return`). Empty strings mean that nothing is in the way.
    """

    start: int
    end: int
    indent: bytes
    obstacle: str = ""
    open_ended: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """One statement that runs a kernel. `index` counts from 0 in file order over the wrapper.

    `repeats` is true if one call of the wrapper may run the launch more than once: in a loop, or in
    a function that holds a subgraph; `conditional` if it may not run it at all, because the launch
    is in a branch or a handler. `stream` is the side stream that it runs on, as the
    wrapper calls it; empty for the stream that the wrapper is called on.
    """

    index: int
    scope: str
    kernel: str
    kind: str
    line: int
    args: tuple[Argument, ...]
    origins: tuple[str, ...]
    source_nodes: tuple[str, ...]
    insertion_point: InsertionPoint
    repeats: bool = False
    conditional: bool = False
    wrapper: str = ""
    stream: str = ""

    @property
    def is_last(self) -> bool:
        """Whether no line can follow it: it is a `return`."""
        return bool(self.insertion_point.open_ended)


MemoryAction = Literal["allocate", "reuse", "release"]


@dataclass(frozen=True, slots=True)
class MemoryEvent:
    """A line that says where memory comes from or goes to. `index` counts from 0 in file order.

    `buffer` is the variable that has the memory afterwards; that which gives it up, of a release.
    `of` is the variable whose memory a reuse takes over, otherwise empty. Lines go behind an
    allocation or a reuse, and in front of a release, where `insertion_point` has no obstacle.
    A reuse `is_dead` if the next launch with that memory writes it without reading it first, so
    that nothing needs what the other buffer left there. `is_held` says that others may use the
    memory, too; only for a language that cannot find that out at run time.
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
    """A statement that is no launch and may write a buffer, such as `buf0.zero_()`, or whose effect
    is not known. `start` is the offset of its line.

    `buffer` is a name in the statement, or the variable that owns its memory; empty stands for all
    buffers. If it `lasts`, the memory may also be written later, through a result of the statement.
    """

    start: int
    buffer: str
    lasts: bool


@dataclass(frozen=True, slots=True)
class StreamAction:
    """A line that says on which stream work runs, or what it waits for.

    `stream` is named as in `Launch`. `event` is empty where the host waits for all streams.
    """

    kind: StreamActionKind
    line: int
    stream: str = ""
    event: str = ""


@dataclass(frozen=True)
class Unrecognised:
    """A call in a scope that is neither a known launch nor a known non-launch."""

    line: int
    text: str
    wrapper: str = ""


@dataclass(frozen=True)
class InputSpec:
    """What is known of one input of a wrapper without running it; empty or `None` is unknown.

    `kind` is tensor, int or float. A dimension is an expression over integers and names of sizes,
    `?` where it is not known, and may end in `:low..high`; `open` says that more dimensions may
    follow. `symbol` is the name that a number has as a size, `alignment` a number of bytes.
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

    `start` is the offset of its body's first line, `inputs` the names it gives to its inputs, and
    `inputs_at` the offset of a line where all of them have values, if there is one. `outputs` are
    the buffers that it returns, in order; an empty text where an output is no buffer. `returned`
    are the names that it returns them under, `hazards` what is wrong with their memory.
    `input_specs` say what is known of each input, in the order of `inputs`. `weights` are the
    names of the weights of a package, which exist for as long as it is loaded, and `weights_at` is
    the offset of a line where they have values.
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

    `header` is the offset at which module-level lines may be put: before the first scope.
    `loader_globals` are module-level names that stay `None` until Inductor's loader sets them.
    `memory` is what the text says of memory, in file order.
    `stream_actions` are in file order, of scopes that have any. `other_uses` are what statements
    that are no launches may write.
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
class Wrapper:
    """One source inside an artifact, as bytes. `name` is its path inside the artifact."""

    name: str
    source: bytes
    language: Language = "python"


@dataclass(frozen=True)
class KernelSource:
    """A kernel by the name under which it is launched, its source, and where that stands.

    `start` and `end` are bytes of the plain wrapper; both 0 for a kernel of another file. `inside`
    are lines of it, from 1, that are the source and no more: not the call that the source is given
    to. It is empty where nothing can be told apart.
    """

    name: str
    text: str
    start: int = 0
    end: int = 0
    inside: range = range(0)
