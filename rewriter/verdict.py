"""What is known of a crash: which launch, with what, from whom. Values, and their text.

`rewriter/triage.py` makes them from a dump.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Literal

from rewriter.dump import label
from rewriter.terminal import escape
from rewriter.types import Json

# `running`: it began and did not end. `faulted`: the device was found faulty right after it.
# `begun`: it began, and nothing is recorded of how launches end. `earlier`: the device was faulty
# before it, and no probe says since when. `after`: it ended, and nothing was recorded since.
# `over`: the same, and it is the last launch of a call. `waiting`: it waits for other ranks, which
# are elsewhere.
State = Literal["running", "begun", "faulted", "earlier", "after", "over", "waiting"]

_ALLOCATION = ("out of memory", "alloc", "memoryerror", "not enough memory")
_SHOWN = ("min", "max", "mean", "nan", "inf")


@dataclass(frozen=True)
class Ended:
    """How a program ended: its exit code, `None` if a signal or the time limit ended it.

    `message` is the text of the exception, where it raised one, or says what the time limit was.
    """

    code: int | None
    signal: int = 0
    timed_out: bool = False
    message: str = ""

    @classmethod
    def of(cls, code: int) -> Ended:
        """From the code of a process that ended by itself, negative for a signal."""
        return cls(code) if code >= 0 else cls(None, signal=-code)

    def __str__(self) -> str:
        """In a line."""
        if self.timed_out:
            return _first_line(self.message) or "stopped at the time limit"
        if self.signal:
            return f"signal {_signal_name(self.signal)}"
        return _first_line(self.message) or f"exit code {self.code}"

    @property
    def note(self) -> str:
        """What is worth knowing of this way to end, if anything."""
        if self.signal == signal.SIGKILL and not self.timed_out:
            return (
                "SIGKILL comes from outside: where memory runs out, the system sends it, and "
                "`dmesg` says so."
            )
        if any(word in self.message.lower() for word in _ALLOCATION):
            return (
                "An allocation failed: the launch may only be the one that asked last. Sizes of "
                "what it reads and writes are above."
            )
        return ""

    def json(self) -> Json:
        return {
            "code": self.code,
            "signal": _signal_name(self.signal) if self.signal else "",
            "timed_out": self.timed_out,
            "message": self.message,
        }


@dataclass(frozen=True)
class Producer:
    """What wrote a value last: a launch, or nobody, where it is an input of the call (`None`)."""

    launch: int | None
    iteration: int = 0
    kernel: str = ""
    kind: str = ""
    line: int = 0
    row: Json | None = None

    def __str__(self) -> str:
        if self.launch is None:
            return "an input of the call"
        where = f" (line {self.line})" if self.line else ""
        return f"written by {label(self.launch, self.iteration)} {self.kernel}{where}"

    def json(self) -> Json:
        return {
            "launch": self.launch,
            "iteration": self.iteration,
            "kernel": self.kernel,
            "kind": self.kind,
            "line": self.line,
            "value": self.row,
        }


@dataclass(frozen=True)
class Argument:
    """An argument of the launch; `row` is what the dump says of it, as far as it got."""

    name: str
    role: str
    row: Json
    producer: Producer | None = None

    @property
    def is_measured(self) -> bool:
        return "numel" in self.row

    def json(self) -> Json:
        made = None if self.producer is None else self.producer.json()
        return {**self.row, "arg": self.name, "role": self.role, "producer": made}


@dataclass(frozen=True)
class Verdict:
    """Where one process stopped, and what is known of that launch.

    `probes` are those that recorded it. `asynchronous` is true where the device may be faulty
    since an earlier launch: nothing waited for it.
    """

    rank: int
    run: str
    pid: int
    artifact: str
    state: State
    ended: Ended
    launch: int
    iteration: int
    kernel: str
    kind: str
    scope: str
    line: int
    arguments: tuple[Argument, ...]
    source_nodes: tuple[str, ...]
    origins: tuple[str, ...]
    probes: tuple[str, ...]
    error: str = ""
    asynchronous: bool = False
    on_gpu: bool = False
    notes: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return f"{label(self.launch, self.iteration)} {self.kernel}"

    @property
    def producers(self) -> tuple[int, ...]:
        """The launches that wrote what this one reads."""
        made = (argument.producer for argument in self.arguments)
        return tuple(sorted({x.launch for x in made if x is not None and x.launch is not None}))

    @property
    def headline(self) -> str:
        """One sentence: the launch, and how the program ended."""
        launch = f"launch {self.label}"
        if self.line:
            launch += f" (line {self.line})"
        how = str(self.ended)
        if self.ended.timed_out:
            ends = {
                "running": "in",
                "begun": "in or after",
                "after": "after",
                "over": "in no launch, after the last one of a call,",
                "waiting": "and waiting for other ranks in",
            }
            return f"{how} {ends.get(self.state, 'at')} {launch}"
        if self.state == "faulted":
            return f"{launch} faulted: {_first_line(self.error)}"
        if self.state == "earlier":
            return f"the device was faulty before {launch}: {_first_line(self.error)}"
        if self.state == "after":
            return f"the program ended after {launch}, before another one began: {how}"
        if self.state == "over":
            return f"the program ended in no launch, after the last one of a call, {launch}: {how}"
        if self.state == "begun":
            return f"the program ended in or after {launch}: {how}"
        if self.state == "waiting":
            return f"waits for other ranks in {launch}: {how}"
        return f"the program ended in {launch}: {how}"

    @property
    def wants(self) -> tuple[str, str]:
        """The options of the run that would tell more, and what it would tell; empty if none."""
        if self.asynchronous or self.state == "earlier":
            return "--probe names,sync", "which launch the device faults in"
        if self.state == "over":
            return "", ""
        sync = ",sync" if self.on_gpu else ""
        if self.state != "after" and not any(x.is_measured for x in self.arguments):
            return f"--probe names,print{sync}", "what it is given, and from which launch"
        launches = ",".join(map(str, sorted({*self.producers, self.launch})))
        return f"--launches {launches} --probe print,save{sync}", "all values of these launches"

    def json(self) -> Json:
        return {
            "headline": self.headline,
            "state": self.state,
            "ended": self.ended.json(),
            "rank": self.rank,
            "run": self.run,
            "pid": self.pid,
            "artifact": self.artifact,
            "launch": self.launch,
            "iteration": self.iteration,
            "kernel": self.kernel,
            "kind": self.kind,
            "scope": self.scope,
            "line": self.line,
            "error": self.error,
            "asynchronous": self.asynchronous,
            "arguments": [argument.json() for argument in self.arguments],
            "source_nodes": list(self.source_nodes),
            "origins": list(self.origins),
            "probes": list(self.probes),
            "notes": list(self.notes),
        }


def describe(verdict: Verdict, *, next_command: str) -> str:
    """A verdict for a person. `next_command` is what they may type next, empty for nothing."""
    lines = [f"verdict: {verdict.headline}"]
    lines.append(f"  {verdict.artifact}, rank {verdict.rank}, {verdict.run}, {verdict.kind}")
    if verdict.source_nodes or verdict.origins:
        nodes, origins = ", ".join(verdict.source_nodes), ", ".join(verdict.origins)
        lines.append(f"  from {nodes or 'no source node'} ({origins or 'no operator named'})")
    shown = [argument for argument in verdict.arguments if argument.row or argument.producer]
    for argument in shown:
        lines.append(f"  {argument.role:<5} {argument.name}  {_value(argument.row)}".rstrip())
        if (producer := argument.producer) is not None:
            then, now = _statistics(producer.row or {}), _statistics(argument.row)
            lines.append(f"        {producer}" + (f"; then {then}" if then != now else ""))
    for role in ("in", "inout", "out"):
        rest = [x.name for x in verdict.arguments if x not in shown and x.role == role]
        if rest:
            lines.append(f"  {role:<5} {', '.join(rest)}  not recorded")
    lines += [f"  note: {note}" for note in verdict.notes]
    if next_command:
        lines.append(f"  next: {next_command}")
        lines.append(f"        ({verdict.wants[1]})")
    return "\n".join(map(escape, lines))


def _value(row: Json) -> str:
    """Type, shape, place and statistics, as far as they are known."""
    from rewriter.runtime.text import short_dtype

    if "dtype" not in row:
        return f"{row['type']} {row.get('value', '')}" if "type" in row else "not recorded"
    stride = f" stride {row['stride']}" if row.get("stride") else ""
    kind = f"{short_dtype(row['dtype'])}{row['shape']}{stride}"
    return f"{kind}  {row.get('device', '')}  {_statistics(row)}"


def _statistics(row: Json) -> str:
    from rewriter.runtime.text import number

    if "numel" not in row:
        return "not measured"
    values = ((name, row.get(name)) for name in _SHOWN)
    return " ".join(f"{name} {x if isinstance(x, str) else number(x)}" for name, x in values)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return str(number)
