"""`rewriter control`: switch dormant probes of running programs on and off."""

from __future__ import annotations

import argparse
from pathlib import Path

from rewriter.commands._output import emit, from_here
from rewriter.commands._parser import Parser
from rewriter.core.errors import OK, RewriterError
from rewriter.core.terminal import message, say
from rewriter.core.text import counted

# The options of `set`, by the names of their fields in a request.
_SETTINGS = (
    *("kernels", "launches", "calls", "every", "until", "ranks", "dump", "keep", "max_bytes"),
    "quiet",
)


def add(parser: Parser) -> None:
    parser.add_argument(
        "target",
        metavar="PATH|PID",
        help="the control file, or the ID of a process that was started with REWRITER_CONTROL",
    )
    parser.add_argument("action", choices=("show", "set", "off", "dump"))
    parser.add_argument(
        "probes", metavar="PROBES", nargs="?", help="what `set` switches on, such as print,hash"
    )
    group = parser.group("what is recorded")
    group.add_argument(
        "--kernels", metavar="GLOB[,GLOB…]", help="only launches of these kernels (default: all)"
    )
    group.add_argument("--launches", metavar="N[,N-M…]", help="only launches of these indices")
    group.add_argument(
        "--calls", metavar="N", type=int, help="the next N calls of each wrapper in each process"
    )
    group.add_argument(
        "--every", metavar="N", type=int, help="every Nth call, beginning with the next"
    )
    group.add_argument(
        "--for",
        dest="until",
        metavar="SPAN",
        help="how long probes stay on: 500ms, 30s, 10m, 2h",
    )
    group.add_argument(
        "--ranks", metavar="N[,N-M…]", help="only processes of these ranks (default: all)"
    )
    group.add_argument(
        "-d",
        "--dump",
        metavar="DIR",
        help="where to write the dump (default: $REWRITER_DUMP; for `dump`, PID.dump)",
    )
    group.add_argument(
        "--keep", metavar="N", type=int, help="keep only the last N calls of a wrapper in the dump"
    )
    group.add_argument(
        "--max-bytes",
        metavar="SIZE",
        help="how much each process may write to the dump; with --keep the oldest calls are "
        "replaced",
    )
    group.add_argument("--quiet", action="store_true", help="print nothing, only write the dump")
    parser.group("output").add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_examples(
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
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
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
        settings = {name: getattr(arguments, name) for name in _SETTINGS}
        control.write(path, control.request(arguments.probes, **settings))
    else:
        _refuse_idle(arguments)
        if arguments.action == "off":
            control.write(path, control.off())
    state = control.read(path)
    if arguments.json:
        from rewriter.commands._documents.control import control_document

        emit(control_document(path, state))
    else:
        for line in control.describe(path, state):
            say(line)
    return OK


def _dump(arguments: argparse.Namespace) -> int:
    """What processes have recorded until now, as a dump."""
    from rewriter.dump.directory import dump_directory
    from rewriter.execution import control

    _refuse_idle(arguments, but="dump")
    rings = control.rings(arguments.target)
    folder = dump_directory(Path(Path(arguments.target).name), arguments.dump, overwrite=False)
    control.copy(rings, folder)
    if arguments.json:
        from rewriter.commands._documents.control import recording_document

        emit(recording_document(folder, rings))
    else:
        processes = {pid for pid, _ in rings}
        say(f"what {counted(len(processes), 'process', 'processes')} recorded until now")
        message(f"dump: {from_here(folder)}; see it with: rewriter report {from_here(folder)}")
    return OK


def _refuse_idle(arguments: argparse.Namespace, *, but: str = "") -> None:
    from rewriter.commands._options import refuse_idle

    options = {name: f"--{name.replace('_', '-')}" for name in _SETTINGS if name != but}
    options |= {"until": "--for", "probes": "PROBES"}
    given = {option: getattr(arguments, name) for name, option in options.items()}
    refuse_idle(given, f"`{arguments.action}` takes no more", "They belong to `set`.")
