"""What several commands share: the PROBES options, output, and the text of warnings."""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.commands._parser import Parser
from rewriter.core.errors import RewriterError
from rewriter.core.terminal import Line, level_style, message, say, say_text
from rewriter.core.types import Json
from rewriter.instrumentation import probes
from rewriter.instrumentation.types import Plan, Selection
from rewriter.rebuild.types import ROUTES

if TYPE_CHECKING:
    from rewriter.diagnosis.verdict import Verdict

_LEVEL_VARIABLE = "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER"
_KERNELS_VARIABLE = "AOT_INDUCTOR_FILTERED_KERNELS_TO_PRINT"
ARTIFACT = "a wrapper, a .pt2 package, a directory or a log of them"
_WHICH = "which wrappers"
_COUNTS = 9  # the column of NaN in the table of `run`; that of infinity is the next


def add_probe_options(parser: Parser) -> None:
    """Add PROBES, the same for every command that takes them."""
    group = parser.group("probes")
    known = "; ".join(f"{name}: {probe.summary}" for name, probe in probes.registry().items())
    group.add_argument("--probe", metavar="NAME[,NAME…]", action="append", help=known)
    group.add_argument(
        "--level",
        choices=sorted(probes.LEVELS),
        help=f"as upstream counts: 1 save, 2 print, 3 names (default: ${_LEVEL_VARIABLE})",
    )
    group.add_argument(
        "--kernels",
        metavar="GLOB[,GLOB…]",
        help=f"only launches of these kernels (default: ${_KERNELS_VARIABLE})",
    )
    group.add_argument("--launches", metavar="N[,N-M…]", help="only launches of these indices")
    group.add_argument(
        "--when", choices=("before", "after", "both"), help="where to act (default: the probe's)"
    )
    group.add_argument(
        "--roles",
        metavar="ROLE[,ROLE…]",
        help="only values of these roles: in (what launches read), out (what they write), inout "
        "(what they change)",
    )
    group.add_argument(
        "--tensors",
        metavar="GLOB[,GLOB…]",
        help="only arguments with these names or buffers, and inputs",
    )
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "--calls",
        metavar="N[,N-M…]",
        help="only these calls of a wrapper, counted from 0; 100- is from there on",
    )
    which.add_argument("--first", metavar="N", type=int, help="only the first N calls of a wrapper")
    group.add_argument(
        "--last", metavar="N", type=int, help="keep only the last N calls of a wrapper in the dump"
    )
    group.add_argument(
        "--format",
        choices=("text", "upstream"),
        default="text",
        help="how values print: one line each, or as upstream's printer does",
    )
    group.add_argument(
        "--values", action="store_true", help="print up to 64 values of each tensor, too"
    )


def add_model_option(parser: Parser) -> None:
    """Add the choice among the models of a package."""
    parser.group(_WHICH).add_argument(
        "--model",
        dest="models",
        metavar="NAME",
        action="append",
        help="of a package: only this model (may be repeated; default: all)",
    )


def add_wrapper_option(parser: Parser) -> None:
    """Add the choice among the wrappers of a directory or a log."""
    parser.group(_WHICH).add_argument(
        "--wrapper",
        dest="wrappers",
        metavar="GLOB",
        action="append",
        default=[],
        help="of a directory or a log: only these wrappers, by name, or forward, backward, "
        "inference (may be repeated; default: all)",
    )


def add_package_options(parser: Parser) -> None:
    """Add what only packages have: how they are built again, and checked."""
    group = parser.group("packages (.pt2)")
    group.add_argument(
        "--route",
        choices=ROUTES,
        help="link: compile the wrapper, keep kernels and weights; full: compile all; sources: the "
        "loader compiles (default: the first that serves)",
    )
    group.add_argument(
        "--no-rebuild",
        action="store_true",
        help="compile nothing: write a directory with the sources and a build script",
    )
    group.add_argument("--no-check", action="store_true", help="do not load the result")
    group.add_argument(
        "--import",
        dest="imports",
        metavar="MODULE",
        action="append",
        default=[],
        help="for the check: import this first, it registers the custom operators",
    )


def add_blocking_option(parser: Parser) -> None:
    """Add what makes faults of a GPU show where they happen."""
    parser.group("the run").add_argument(
        "--blocking",
        action="store_true",
        help="wait for each launch on a GPU, and do not cache its memory: "
        "CUDA_LAUNCH_BLOCKING=1 and PYTORCH_NO_CUDA_MEMORY_CACHING=1",
    )


def time_limit(text: str) -> float:
    """A number of seconds from the command line."""
    found = float(text)
    if not (math.isfinite(found) and found > 0):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of seconds above 0")
    return found


def selection(
    arguments: argparse.Namespace, *, default: str = "", environment: bool = True
) -> Selection | None:
    """The selection that the options ask for, `None` if they ask for no probe.

    Without `--probe` and `--level`, upstream's variable decides if `environment` allows it, and
    then the probe named `default`.
    """
    kernels = arguments.kernels
    if kernels is None and environment:
        kernels = os.environ.get(_KERNELS_VARIABLE) or None
    asked = list(arguments.probe or ())
    if arguments.level is not None:
        asked += probes.LEVELS[arguments.level]
    elif not asked and environment:
        asked += probes.LEVELS[_environment_level()] or [default]
    names = ",".join(asked)
    if not names.strip(","):
        _refuse_idle_options(arguments)
        return None
    from rewriter.instrumentation import api

    return api.select(
        names,
        kernels=kernels,
        launches=None if arguments.launches is None else _indices(arguments.launches),
        when=arguments.when,
        format=arguments.format,
        values=arguments.values,
        roles=arguments.roles,
        tensors=arguments.tensors,
        calls=_calls(arguments),
        last=0 if arguments.last is None else probes.check_number("--last", arguments.last),
    )


def emit_json(kind: str, content: Json) -> None:
    """Print one JSON object with the `format` and `version` that every `--json` has."""
    from rewriter.core import json_text

    say(json_text.encode({"format": f"rewriter.{kind}", "version": 1, **content}))


def steps() -> Callable[[str], None]:
    """Tells what long steps have done, with the seconds since now."""
    started = time.perf_counter()

    def report(text: str) -> None:
        message(f"[{time.perf_counter() - started:5.1f} s] {text}")

    return report


def warn_about(plan: Plan, name: str = "") -> None:
    """Name every launch that is not instrumented, and every call that nobody recognised.

    `name` goes before, where there are several wrappers.
    """
    for skipped in plan.skipped:
        launch = skipped.launch
        message(
            f"warning: {name}launch #{launch.index} {launch.kernel} (line {launch.line}) is not "
            f"instrumented in full: {skipped.reason}"
        )
    for reason in plan.unchecked:
        message(f"warning: {name}inputs are not checked: {reason}")
    for part in plan.unmatched:
        message(f"warning: {name}there is no {part}")
    for call in plan.unrecognised:
        message(
            f"warning: {name}unrecognised call at line {call.line}, not instrumented: {call.text}"
        )


@dataclass(frozen=True)
class Delivered:
    """Where a result went. `output` is a path, `-`, or `None` if nothing was written."""

    changed: bool
    output: str | None = None
    backup: str | None = None
    diff: str | None = None

    def tell(self, path: Path) -> str:
        """The end of a message about the result."""
        if self.output is None:
            return f"would change {path}" if self.changed else f"{path} would stay as it is"
        where = "standard output" if self.output == "-" else self.output
        return f"{where}, original kept in {self.backup}" if self.backup else where


def deliver(
    arguments: argparse.Namespace,
    path: Path,
    before: bytes,
    after: bytes,
    *,
    default: Path,
    plain: bytes,
) -> Delivered:
    """Write a result where the options say.

    `before` is the input, `after` the result, `plain` the wrapper without probes. `--diff` prints
    the difference, and unless a place is named writes nothing; `--check` never does.
    """
    from rewriter.core import files, text_diff

    to_stdout = arguments.output == "-"
    if to_stdout and (arguments.json or arguments.diff):
        raise RewriterError(
            "two-outputs",
            f"-o - and {'--json' if arguments.json else '--diff'} both print to standard output",
            hint="Name a file with -o.",
        )
    changed = before != after
    diff = unified(path, before, after) if arguments.diff else None
    if diff is not None and not arguments.json:
        say_text(diff, text_diff.style)
    if arguments.check or (arguments.diff and not (arguments.output or arguments.in_place)):
        return Delivered(changed, diff=diff)
    if arguments.in_place:
        backup = files.replace(path, after, plain, overwrite=arguments.overwrite)
        return Delivered(changed, str(path), None if backup is None else str(backup), diff)
    if to_stdout:
        sys.stdout.flush()
        sys.stdout.buffer.write(after)
        return Delivered(changed, "-")
    target = Path(arguments.output) if arguments.output else default
    files.write(target, after, overwrite=arguments.overwrite)
    return Delivered(changed, str(target), diff=diff)


def add_output_options(parser: Parser, default: str) -> None:
    """Add the options of a command that writes a changed artifact."""
    group = parser.group("output")
    where = group.add_mutually_exclusive_group()
    where.add_argument(
        "-o", "--output", metavar="OUT", help=f"file to write, - for standard output ({default})"
    )
    where.add_argument(
        "--in-place",
        action="store_true",
        help="replace the file, keep it beside as *.orig",
    )
    group.add_argument("--diff", action="store_true", help="print what changes instead of writing")
    group.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if something would change"
    )
    group.add_argument("--overwrite", action="store_true", help="replace an existing output")
    group.add_argument("--json", action="store_true", help="print one JSON object")


def unified(path: Path, before: bytes, after: bytes) -> str:
    """A unified diff of two versions of a file; a carriage return shows as it is."""
    from rewriter.core import text_diff

    return text_diff.unified(
        before.decode("utf-8", "replace"),
        after.decode("utf-8", "replace"),
        f"a/{path.name}",
        f"b/{path.name}",
    )


def from_here(path: Path) -> Path:
    """A path as one would type it: below the working directory, without that."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def verdict_lines(verdict: Verdict, next_command: str) -> list[Line]:
    """A verdict, its headline set off."""
    from rewriter.diagnosis.verdict_text import describe

    first, *rest = describe(verdict, next_command=next_command).split("\n")
    return [[(first, level_style("error"))], *rest]


def finite_style(row: int, column: int, cell: str) -> str:
    """The style of a cell in a table that ends in the counts of NaN and of infinity."""
    found = row and column >= _COUNTS and cell not in ("", "0")
    return level_style("error") if found else ""


def names_probes(arguments: argparse.Namespace) -> bool:
    """Whether a probe was asked for, and not only the default one."""
    asked = arguments.probe is not None or arguments.level is not None
    return asked or bool(probes.LEVELS[_environment_level()])


def _environment_level() -> str:
    level = os.environ.get(_LEVEL_VARIABLE, "0") or "0"
    if level not in probes.LEVELS:
        raise RewriterError(
            "bad-level",
            f"{_LEVEL_VARIABLE} is {level!r}",
            hint=f"Levels: {', '.join(sorted(probes.LEVELS))}.",
        )
    return level


def refuse_idle(given: Mapping[str, object], why: str, hint: str = "") -> None:
    """Raise `RewriterError` where options have values that would change nothing.

    `given` are those values by option, `why` the rest of a sentence: `a, b given, but …`.
    """
    if idle := [name for name, value in given.items() if value]:
        hint = hint or f"Drop {'it' if len(idle) == 1 else 'them'}."
        raise RewriterError("idle-options", f"{', '.join(idle)} given, but {why}", hint=hint)


def _refuse_idle_options(arguments: argparse.Namespace) -> None:
    """A filter without a probe would be dropped in silence."""
    given = {
        "--kernels": arguments.kernels,
        "--launches": arguments.launches,
        "--when": arguments.when,
        "--values": arguments.values,
        "--roles": arguments.roles,
        "--tensors": arguments.tensors,
        "--calls": arguments.calls,
        "--first": arguments.first,
        "--last": arguments.last,
        "--format": arguments.format != "text",
    }
    if idle := [name for name, value in given.items() if value not in (None, False)]:
        raise RewriterError(
            "no-probes",
            f"{', '.join(idle)} given, but no probe",
            hint=f"Pass --probe with one or more of {', '.join(sorted(probes.registry()))}.",
        )


def _calls(arguments: argparse.Namespace) -> str:
    """Which calls are recorded, as the runtime reads it."""
    if arguments.first is not None:
        return f"0-{probes.check_number('--first', arguments.first) - 1}"
    if arguments.calls is not None and not arguments.calls.strip():
        return probes.check_calls(",")
    return probes.check_calls(arguments.calls or "")


def _indices(text: str) -> list[range]:
    """`3,7-12` as ranges."""
    result: list[range] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        first, dash, last = part.partition("-")
        try:
            low = int(first)
            high = int(last) if dash else low
        except ValueError:
            low, high = 0, -1
        if low > high or low < 0:
            raise RewriterError(
                "bad-launches",
                f"--launches {text!r}: {part!r} is no index or range",
                hint="Write indices from `rewriter list`, such as 3,7-12.",
            )
        result.append(range(low, high + 1))
    return result
