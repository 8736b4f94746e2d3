"""What a verdict says about values: arguments of a launch, what wrote them, and single elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rewriter.core.documents import Count
from rewriter.core.printed import printed
from rewriter.core.text import element, of_elements
from rewriter.dump.launched import RecordedLaunch
from rewriter.dump.reading import label
from rewriter.dump.rows import TensorRow, ValueRow


@printed("launch iteration kernel kind line value=row")
@dataclass(frozen=True)
class Producer:
    """The last writer of a value: a launch, or `None` for an input of the call."""

    launch: Count | None
    iteration: Count = 0
    kernel: str = ""
    kind: str = ""
    line: Count = 0
    row: ValueRow | None = None

    @classmethod
    def of(cls, launch: RecordedLaunch, row: ValueRow | None) -> Producer:
        """The launch that wrote a value."""
        return cls(launch.launch, launch.iteration, launch.kernel, launch.kind, launch.line, row)

    def __str__(self) -> str:
        return "an input of the call" if self.launch is None else f"written by {self.place}"

    @property
    def place(self) -> str:
        """Such as `#2 cpp_fused_log_0 (line 30)`."""
        if self.launch is None:
            return "the inputs of the call"
        where = f" (line {self.line})" if self.line else ""
        return f"{label(self.launch, self.iteration)} {self.kernel}{where}"


@dataclass(frozen=True)
class SavedValue:
    """An input of a backward that its forward saved: `variable` of the call `run`, and what wrote
    it there, `None` if that is not known."""

    run: str
    variable: str
    producer: Producer | None

    def __str__(self) -> str:
        text = f"{self.variable} of its forward ({self.run})"
        if self.producer is None:
            return text
        by = "an input of that call" if self.producer.launch is None else str(self.producer)
        return f"{text}, {by}"


@printed("call value=row")
@dataclass(frozen=True)
class Earlier:
    """The value of an argument in an earlier call; `call` counts from 1."""

    call: Count
    row: TensorRow


@printed("*row arg=name role model? producer earlier after saved?")
@dataclass(frozen=True)
class VerdictArgument:
    """An argument of the launch; `row` is its row in the dump, `None` if it has none.

    `earlier` is the same argument in earlier calls, oldest first; `after` is its value after the
    launch, if the launch updates it.
    """

    name: str
    role: str
    row: ValueRow | None
    producer: Producer | None = None
    earlier: tuple[Earlier, ...] = ()
    after: ValueRow | None = None
    model: str = ""  # name of an input in the model, if that is known
    saved: SavedValue | None = None  # for an input of a backward

    @property
    def tensor(self) -> TensorRow | None:
        """Its row, if it is a tensor."""
        return self.row if isinstance(self.row, TensorRow) else None

    @property
    def measured(self) -> TensorRow | None:
        """Its row, if it is a tensor with statistics."""
        return self.tensor if self.tensor is not None and self.tensor.is_measured else None

    @property
    def in_model(self) -> str:
        """The name of an input in the model, if that is known, or else its own."""
        return self.model.partition(" at ")[0] or self.name


@printed("arg=name what count numel where")
@dataclass(frozen=True)
class Held:
    """A tensor that holds NaN, or infinities that became NaN; `where` is empty if not saved."""

    name: str
    what: Literal["nan", "inf"]
    count: Count
    numel: Count
    where: str

    def of(self, name: str) -> str:
        """How many elements they are, with a name for the tensor."""
        return f"{of_elements(self.count, self.numel)} of {name}"


@printed("arg=name index place text finite=is_finite")
@dataclass(frozen=True)
class ElementRead:
    """What was read of an argument to make one element. Of many, `index` is that of the first one
    that is not finite, `place` such as `[3, :]`, and `text` how many they are and their range."""

    name: str
    index: tuple[Count, ...] | None
    place: str
    text: str
    is_finite: bool

    def of(self, name: str) -> str:
        """What was read, with a name for the argument."""
        if self.place:
            return f"{name}{self.place}: {self.text}"
        return f"{element(name, self.index or ())} = {self.text}"


@printed("made.launch made.iteration made.kernel arg=name index text reads")
@dataclass(frozen=True)
class ElementStep:
    """One element of a result, and the elements that the launch made it from."""

    made: Producer
    name: str
    index: tuple[Count, ...]
    text: str
    reads: tuple[ElementRead, ...]

    def __str__(self) -> str:
        place = element(self.name, self.index)
        return f"{place} = {self.text}, written by {self.made.place}"
