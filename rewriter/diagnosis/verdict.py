"""A verdict: the launch at fault, and what is known of it. `verdict_text.py` prints it.

`triage.py` makes the verdicts of crashes, `nonfinite.py` those of NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from rewriter.core.documents import Count
from rewriter.core.exit_status import ExitStatus, first_line
from rewriter.core.printed import printed
from rewriter.core.text import some
from rewriter.diagnosis.verdict_values import ElementStep, Held, Producer, VerdictArgument
from rewriter.dump.launched import RecordedLaunch
from rewriter.dump.names import NO_NAMES, Names
from rewriter.dump.reading import Dump, RunDump
from rewriter.execution.standard_error import how_ended

if TYPE_CHECKING:
    from typing_extensions import Self

# The launch where the rows stop.
# `running`: it began and did not end. `begun`: it began, and ends of launches are not recorded.
# `faulted`: the device was faulty right after it. `earlier`: the device was faulty before it, and
# it is not known since when. `after`: it ended, and nothing was recorded since. `over`: the same,
# and it is the last launch of a call. `waiting`: it waits for other ranks, which are elsewhere.
# `replayed`: it began in the replay of a CUDA graph, and did not end.
StoppedState = Literal[
    "running", "begun", "faulted", "earlier", "after", "over", "waiting", "replayed"
]
# The launch where the first NaN appears.
# `overflowed`: it made infinities that became NaN later. `made`: it made the NaN from inputs
# without any. `wrote`: it wrote the NaN, and its inputs were not recorded. `read`: it read the NaN,
# and what wrote it was not recorded. `given`: an input of the call has the NaN. `passed`: it passed
# on NaN that --allow permits only where they were made. `infinite`: there is no NaN, but it made
# infinities that no later launch absorbs.
NonFiniteState = Literal["overflowed", "made", "wrote", "read", "given", "passed", "infinite"]
# Where the NaN or infinities are from; `unknown` if the inputs of the launch were not recorded.
NonFiniteOrigin = Literal["made here", "passed on", "came in", "unknown"]
_ORIGINS: dict[NonFiniteState, NonFiniteOrigin] = {
    "overflowed": "made here",
    "made": "made here",
    "infinite": "made here",
    "wrote": "unknown",
    "read": "passed on",
    "passed": "passed on",
    "given": "came in",
}

_LISTED = 3
# Where a program ended, by the state.
_WHERE = {
    "running": "in {launch}",
    "unannounced": "after launch {label}, in the next one or before it",
    "after": "after {launch}, before another one began",
    "over": "outside of launches, after {launch}, the last one of its call",
    "begun": "in or after {launch}",
    "replayed": "in {launch}, in the replay of a CUDA graph",
    "waiting": "while it waits for other ranks in {launch}",
}
_FAULTY = {"faulted": "{launch} faulted", "earlier": "the device was faulty before {launch}"}
_NOT_FINITE: dict[NonFiniteState, str] = {
    "overflowed": "{launch} makes infinities ({held}), which {effect} turns into the first NaN",
    "infinite": "{launch} makes infinities that nothing absorbs: {held}",
    "passed": "{launch} passes on NaN that are allowed in {cause}: {held}",
    "given": "the first NaN is in the inputs of {call}: {held}",
    "read": "{launch} reads the first NaN, and its write was not recorded: {held}",
    "wrote": "{launch} writes the first NaN{of}: {held}",
    "made": "{launch} makes the first NaN{of}: {held}",
}
_NO_OPERATOR = ("_OpNamespace", "No such operator", "Could not find schema for")


def lacks_operator(message: str) -> bool:
    """Whether the text of an exception is about a custom operator that is not registered."""
    return any(text in message for text in _NO_OPERATOR)


@printed(
    "headline state origin ended rank run call pid process piece artifact launch iteration kernel"
    " kind scope line error asynchronous arguments source_nodes origins probes held cause effect"
    " followed passed_on notes lines computes model=names.graph partner=names.partner"
)
@dataclass(frozen=True, kw_only=True)
class BaseVerdict(RecordedLaunch):
    """Where one process stopped, or where its first NaN is from, and what is known of that launch.

    `call` names the call in words, `number` is its number for its wrapper, from 1. `piece` is the
    part of a split model, `process` the program's name for the process. `probes` are those that
    made the dump. `names` are those of its wrapper.
    """

    rank: Count
    pid: int
    artifact: str
    arguments: tuple[VerdictArgument, ...] = ()
    probes: tuple[str, ...] = ()
    on_gpu: bool = False
    notes: tuple[str, ...] = ()
    call: str = ""
    number: int = 0
    piece: str = ""
    process: str = ""
    names: Names = NO_NAMES

    @classmethod
    def of(
        cls,
        dump: Dump,
        run: RunDump,
        launch: RecordedLaunch,
        arguments: tuple[VerdictArgument, ...],
        **more: Any,
    ) -> Self:
        """A verdict with the facts of the launch and its process."""
        return cls(
            **vars(launch),
            rank=run.rank,
            pid=run.facts.pid or 0,
            piece=run.piece_words,
            process=str(run.process),
            artifact=run.artifact,
            arguments=arguments,
            probes=dump.manifest.probes or (),
            names=run.names,
            **more,
        )

    @property
    def label(self) -> str:
        return "the inputs of the call" if self.launch is None else str(self)

    @property
    def titled(self) -> str:
        """The launch, as sentences name it."""
        return f"launch {self.label}" + (f" (line {self.line})" if self.line else "")

    @property
    def only_call(self) -> str:
        """The option that selects this call; empty for the first one, and if it is not known."""
        return f" --calls {self.number - 1}" if self.number > 1 else ""  # which counts from 0

    def launches(self, *more: Producer | None) -> str:
        """The launch, and those that wrote what it reads, for `--launches`; and `more`."""
        made = (*(argument.producer for argument in self.arguments), *more)
        launches = (self.launch, *(x.launch for x in made if x is not None))
        return ",".join(map(str, sorted({x for x in launches if x is not None})))


@dataclass(frozen=True, kw_only=True)
class CrashVerdict(BaseVerdict):
    """Where a process crashed, hung or was stopped; `ended` says how.

    `asynchronous`: the device may be faulty since an earlier launch, as nothing waited for it.
    `unannounced`: nothing is recorded before launches, so the next launch may have been the one
    that was running. `index` says which index is out of bounds, `behind` how far this rank is
    behind one that waits for it.
    """

    state: StoppedState
    ended: ExitStatus
    error: str = ""
    asynchronous: bool = False
    unannounced: bool = False
    index: str = ""
    behind: str = ""

    origin: ClassVar[None] = None
    is_fault: ClassVar[bool] = True
    held: ClassVar[tuple[Held, ...]] = ()
    cause: ClassVar[None] = None
    effect: ClassVar[None] = None
    followed: ClassVar[tuple[ElementStep, ...]] = ()
    passed_on: ClassVar[tuple[Producer, ...]] = ()

    @property
    def headline(self) -> str:
        """One sentence: the launch, and how the program ended."""
        if self.state in _FAULTY:
            return f"{_FAULTY[self.state].format(launch=self.titled)}: {first_line(self.error)}"
        state = "unannounced" if self.state == "after" and self.unannounced else self.state
        place = _WHERE[state].format(launch=self.titled, label=self.label)
        if self.index:
            return f"index out of bounds {place}: {self.index}"
        ended = how_ended(self.ended, place)
        return f"{self.behind}: {ended}" if self.behind else ended

    @property
    def wants(self) -> tuple[str, str]:
        """The options of a run that finds out more, and what it finds; empty if there is none."""
        if self.asynchronous or self.state == "earlier":
            return "--probe names,sync", "which launch the device faults in"
        if self.state in ("over", "replayed") or lacks_operator(self.ended.message):
            return "", ""
        # The probe sync implies --args all.
        every = ",sync" if self.on_gpu else " --args all"
        if self.state == "after" and self.unannounced:
            return f"--probe names,print{every}", "which launch it ends in, and what that is given"
        if self.state != "after" and not any(x.measured for x in self.arguments):
            return f"--probe names,print{every}", "what it is given, and from which launch"
        # An index is out of bounds in the same call again; what else crashes may do so in another.
        one = self.only_call if self.index else ""
        options = f"--launches {self.launches()} --probe print,save{every}{one}"
        return options, "all values of these launches" + (" in that call" if one else "")


@dataclass(frozen=True, kw_only=True)
class NonFiniteVerdict(BaseVerdict):
    """Where the first NaN is from: `launch` is `None` if an input of the call holds it.

    `held` are the tensors with NaN or infinities. `cause` is what made the infinities that became
    NaN, `given` the inputs of the call that held them, `effect` what turned them into NaN.
    `followed` traces one element backwards, if values were saved; `passed_on` are later launches
    that wrote NaN. `absorbed`: no result of the call has NaN, so they are no fault if the launch is
    right. `captured`: of the values in a CUDA graph only statistics can be recorded.
    """

    state: NonFiniteState
    held: tuple[Held, ...] = ()
    given: tuple[Held, ...] = ()
    cause: Producer | None = None
    effect: Producer | None = None
    captured: bool = False
    followed: tuple[ElementStep, ...] = ()
    passed_on: tuple[Producer, ...] = ()
    absorbed: bool = False

    ended: ClassVar[None] = None
    error: ClassVar[str] = ""
    asynchronous: ClassVar[bool] = False

    @property
    def is_fault(self) -> bool:
        """Whether it is one though no launch was checked."""
        return not self.absorbed or self.state == "read"

    @property
    def origin(self) -> NonFiniteOrigin:
        """Where the NaN, or the infinities that became it, are from."""
        if self.state in ("made", "wrote") and self.cause and self.cause.launch is None:
            return "came in"
        return _ORIGINS[self.state]

    @property
    def headline(self) -> str:
        """One sentence: the launch, and what is not finite."""
        held, given = (
            some([held.of(self.names.called(held.name)) for held in some_held], _LISTED)
            for some_held in (self.held, self.given)
        )
        cause, effect = (x.place if x is not None else "" for x in (self.cause, self.effect))
        of = f", of infinities that {cause} made" if cause else ""
        if self.cause is not None and self.cause.launch is None:
            of = f", of infinities in the inputs of the call ({given})"
        sentence = _NOT_FINITE[self.state].format(
            launch=self.titled, held=held, effect=effect, cause=cause, of=of,
            call=self.piece or "the call",
        )  # fmt: skip
        came_in = self.origin == "came in" and self.call
        return f"{sentence}, rank {self.rank}, {self.call}" if came_in else sentence

    @property
    def wants(self) -> tuple[str, str]:
        """The options of a run that shows what is missing here, and what they show."""
        sync = ",sync" if self.on_gpu else ""
        one = self.only_call  # as the program may run for hours
        if self.state == "read":
            return f"--probe print{sync}{one}", "what all launches write"
        if all(held.where for held in self.held):
            return "", ""  # they are saved
        if self.launch is None:
            if self.captured:
                return "", ""
            names = ",".join(dict.fromkeys(held.name for held in self.held))
            return f"--tensors {names} --probe print,save{one}", "which elements they are"
        launches = self.launches(self.cause, self.effect)
        if self.captured:  # in one call, replayed in others
            return f"--launches {launches} --probe print --args all", "what they are given"
        which = "all values of these launches" + (" in that call" if one else "")
        return f"--launches {launches} --probe print,save{one}", which


# Both print the same fields: what only one of them has is empty in the other.
Verdict = CrashVerdict | NonFiniteVerdict
