"""`rewriter control`: switch dormant probes of running programs on and off."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from rewriter.commands._click import Choice, Section, argument, command
from rewriter.commands._options import JsonOption, Value, refuse_options
from rewriter.commands._output import emit, from_here
from rewriter.core.errors import OK, RewriterError
from rewriter.core.terminal import message, say
from rewriter.core.text import counted

_RECORDED = Section("what is recorded")


class _Settings(Value):
    """The options of `set`, by the names of their fields in a request."""

    kernels: str | None = _RECORDED.option(
        "--kernels GLOB[,GLOB…]", "only launches of these kernels (default: all)"
    )
    launches: str | None = _RECORDED.option("--launches N[,N-M…]", "only launches of these indices")
    calls: int | None = _RECORDED.option(
        "--calls N", "the next N calls of each wrapper in each process", type=int
    )
    every: int | None = _RECORDED.option(
        "--every N", "every Nth call, beginning with the next", type=int
    )
    until: str | None = _RECORDED.option(
        "--for SPAN", "how long probes stay on: 500ms, 30s, 10m, 2h"
    )
    ranks: str | None = _RECORDED.option(
        "--ranks N[,N-M…]", "only processes of these ranks (default: all)"
    )
    dump: str | None = _RECORDED.option(
        "-d, --dump DIR", "where to write the dump (default: $REWRITER_DUMP; for `dump`, PID.dump)"
    )
    keep: int | None = _RECORDED.option(
        "--keep N", "keep only the last N calls of a wrapper in the dump", type=int
    )
    max_bytes: str | None = _RECORDED.option(
        "--max-bytes SIZE",
        "how much each process may write to the dump; with --keep the oldest calls are replaced",
    )
    quiet: bool = _RECORDED.flag("--quiet", "print nothing, only write the dump")


_NAMES = [field.name for field in fields(_Settings)]


class Arguments(_Settings, JsonOption):
    target: str = argument(
        "PATH|PID",
        "the control file, or the ID of a process that was started with REWRITER_CONTROL",
    )
    action: str = argument("{show,set,off,dump}", type=Choice(("show", "set", "off", "dump")))
    probes: str | None = argument("[PROBES]", "what `set` switches on, such as print,hash")


@command(
    Arguments,
    (
        "ten calls of one kernel, of a service that was started with REWRITER_CONTROL=ctl",
        "rewriter control ctl set print --kernels '*softmax*' --calls 10",
    ),
    ("what is on, and how many calls were recorded", "rewriter control ctl show"),
    (
        "each hundredth step of ranks 0 and 1, into a dump",
        "rewriter control ctl set hash --every 100 --ranks 0,1 -d hash.dump --quiet",
    ),
    ("switch all probes off, by the ID of the process", "rewriter control 4711 off"),
    ("copy what the probe record has kept so far", "rewriter control 4711 dump"),
)
def act(arguments: Arguments) -> int:
    from rewriter.execution import control

    if arguments.action == "dump":
        return _dump(arguments)
    path = control.path_of(arguments.target)
    if arguments.action == "set":
        if not arguments.probes:
            raise RewriterError(
                "no-probes",
                "no probe was asked for",
                hint="Name the probes to switch on, such as: "
                f"rewriter control {arguments.target} set print",
            )
        settings = {name: getattr(arguments, name) for name in _NAMES}
        control.write(path, control.request(arguments.probes, **settings))
    else:
        _refuse_idle(arguments)
        if arguments.action == "off":
            control.write(path, control.off())
    state = control.read(path)
    if arguments.json:
        from rewriter.commands._documents.control import ControlDocument

        emit(ControlDocument(path=str(path), state=state))
    else:
        for line in control.describe(path, state):
            say(line)
    return OK


def _dump(arguments: Arguments) -> int:
    """What processes have recorded until now, as a dump."""
    from rewriter.dump.directory import dump_directory
    from rewriter.execution import control

    _refuse_idle(arguments, but="dump")
    rings = control.rings(arguments.target)
    folder = dump_directory(Path(Path(arguments.target).name), arguments.dump, overwrite=False)
    control.copy(rings, folder)
    processes = tuple(dict.fromkeys(pid for pid, _ in rings))
    if arguments.json:
        from rewriter.commands._documents.control import RecordingDocument

        emit(RecordingDocument(dump=str(folder), processes=processes))
    else:
        say(f"what {counted(len(processes), 'process', 'processes')} recorded until now")
        message(f"dump: {from_here(folder)}; see it with: rewriter report {from_here(folder)}")
    return OK


def _refuse_idle(arguments: Arguments, *, but: str = "") -> None:
    names = " ".join(name for name in [*_NAMES, "probes"] if name != but)
    why = f"`{arguments.action}` takes no more"
    refuse_options(arguments, names, why, "They belong to `set`.")
