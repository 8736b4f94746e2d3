"""Makes a selection of probes from the options, and refuses options that would do nothing."""

from __future__ import annotations

import argparse
import os

from rewriter.commands._options import KERNELS_VARIABLE, LEVEL_VARIABLE, refuse_idle
from rewriter.core.errors import RewriterError
from rewriter.instrumentation import probes
from rewriter.instrumentation.select import check_bytes, check_calls, check_number, select
from rewriter.instrumentation.types import Selection
from rewriter.runtime.sizes import wanted_calls


def selection(
    arguments: argparse.Namespace, *, default: str = "", environment: bool = True
) -> Selection | None:
    """The selection that the options ask for, `None` if they ask for no probe.

    Without `--probe` and `--level`, upstream's variable decides if `environment` allows it, and
    then the probe named `default`.
    """
    kernels = arguments.kernels
    if kernels is None and environment:
        kernels = environment_kernels()
    is_dormant = getattr(arguments, "dormant", False)
    asked = list(arguments.probe or ())
    if is_dormant and not asked and arguments.level is None:
        asked = ["record"] if arguments.on else list(probes.SWITCHED)
    if arguments.level is not None:
        asked += probes.LEVELS[arguments.level]
    elif not asked and environment:
        asked += probes.LEVELS[_environment_level()] or [_default(arguments, default)]
    elif not asked:
        asked.append(_default(arguments, ""))
    if arguments.on and not ",".join(arguments.on).strip(", "):
        raise RewriterError(
            "bad-trigger",
            f"--on {','.join(arguments.on)!r} is no trigger",
            hint="Triggers: nan, inf, changed, spike:10x, slow:5x; factors are more than 1.",
        )
    names = ",".join(asked)
    if not names.strip(","):
        _refuse_idle_options(arguments)
        return None

    result = select(
        names,
        kernels=kernels,
        launches=None if arguments.launches is None else _indices(arguments.launches),
        when=arguments.when,
        format=arguments.format,
        values=arguments.values,
        roles=arguments.roles,
        tensors=arguments.tensors,
        calls=_calls(arguments),
        last=0 if arguments.last is None else check_number("--keep", arguments.last),
        # Dormant probes include `sync`, which would make "all" the default.
        args=arguments.which or ("written" if is_dormant else None),
        max_bytes=arguments.max_bytes or "",
        allow=arguments.allow,
        stop=arguments.stop,
        dormant=is_dormant,
        on=",".join(arguments.on),
    )
    if is_dormant:
        fixed = set(result.probes) - {*probes.SWITCHED, "inputs", "record"}
        refuse_idle({f"--probe {x}": x for x in sorted(fixed)}, "it cannot be dormant")
        given = {"--calls, --first or --every": result.calls, "--keep": result.last}
        refuse_idle(given, "`rewriter control` says which calls dormant probes record")
    return result


def _default(arguments: argparse.Namespace, name: str) -> str:
    """The default probe: `record` for --on, `nan` for --stop and --allow."""
    if arguments.on:
        return "record"
    return "nan" if arguments.stop or arguments.allow else name


def environment_kernels() -> str | None:
    """The kernels in upstream's environment variable."""
    return os.environ.get(KERNELS_VARIABLE) or None


def names_probes(arguments: argparse.Namespace) -> bool:
    """Whether the user asked for a probe, so that it is not the default."""
    asked = arguments.probe is not None or arguments.level is not None
    return asked or bool(probes.LEVELS[_environment_level()])


def _environment_level() -> str:
    level = os.environ.get(LEVEL_VARIABLE, "0") or "0"
    if level not in probes.LEVELS:
        raise RewriterError(
            "bad-level",
            f"{LEVEL_VARIABLE} is {level!r}",
            hint=f"Levels: {', '.join(sorted(probes.LEVELS))}.",
        )
    return level


def nothing_recorded(arguments: argparse.Namespace, where: str = "") -> RewriterError:
    """The error of a run after which there is no launch to look at."""
    chosen = {
        "--kernels": getattr(arguments, "kernels", None) or environment_kernels(),
        "--calls": arguments.calls,
        "--wrapper": arguments.wrappers,
    }
    hint = (
        f"Check {' and '.join(given)}: no launch was chosen that ran."
        if (given := [name for name, value in chosen.items() if value])
        else "No wrapper of Inductor's was called. Does torch.compile compile what is wrong, with "
        "its default backend?"
    )
    return RewriterError("nothing-saved", f"no launch was recorded{where}", hint=hint)


def _refuse_idle_options(arguments: argparse.Namespace) -> None:
    """Refuse filters without a probe, rather than ignore them."""
    given = {
        "--kernels": arguments.kernels,
        "--launches": arguments.launches,
        "--when": arguments.when,
        "--args": arguments.which,
        "--values": arguments.values,
        "--roles": arguments.roles,
        "--tensors": arguments.tensors,
        "--calls": arguments.calls,
        "--first": arguments.first,
        "--every": arguments.every,
        "--keep": arguments.last,
        "--max-bytes": arguments.max_bytes,
        "--allow": arguments.allow or None,
        "--stop": arguments.stop,
        "--on": arguments.on or None,
        "--dormant": getattr(arguments, "dormant", False),
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
        calls = f"0-{check_number('--first', arguments.first) - 1}"
    elif arguments.calls is not None and not arguments.calls.strip():
        calls = check_calls(",")
    else:
        calls = check_calls(arguments.calls or "")
    if arguments.every is None:
        return calls
    step = check_number("--every", arguments.every)
    return ",".join(
        f"{part}/{step}" if "-" in part else part for part in (calls or "0-").split(",")
    )


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


def check_variables(chosen: Selection | None) -> None:
    """Refuse invalid environment variables. In the program, they would only cause warnings, and
    some would leave it without probes."""
    if chosen is None:
        return
    check_calls(os.environ.get("REWRITER_CALLS", ""), option="REWRITER_CALLS is")
    check_bytes(os.environ.get("REWRITER_MAX_BYTES", ""), option="REWRITER_MAX_BYTES is")
    if "record" in chosen.probes:
        check_bytes(os.environ.get("REWRITER_RECORD_BYTES", ""), option="REWRITER_RECORD_BYTES is")
    try:
        wanted_calls({})
    except ValueError as error:
        hint = "Write a number greater than 0: that many calls of each wrapper are kept."
        raise RewriterError("bad-number", str(error), hint=hint) from error
    _check_memory_variables(chosen)


def _check_memory_variables(chosen: Selection) -> None:
    from rewriter.runtime.memory.patterns import PROBES, VARIABLE, parse_fills

    if not set(chosen.probes) & set(PROBES):
        return
    try:
        parse_fills(os.environ.get(VARIABLE, ""))
    except ValueError as error:
        hint = "0: NaN and large integers; 1: finite and small numbers; off: nothing is filled."
        raise RewriterError("bad-fill", str(error), hint=hint) from error
    check_guard_variable()


def check_guard_variable() -> None:
    """Refuse a width of guard bands that the probe `bounds` could not use."""
    from rewriter.runtime.memory.patterns import GUARD_VARIABLE

    guard = os.environ.get(GUARD_VARIABLE, "")
    if guard and not (guard.isascii() and guard.isdecimal() and len(guard) < 9):
        raise RewriterError(
            "bad-size",
            f"{GUARD_VARIABLE} is {guard!r}: expected a number of bytes, at most 99999999",
            hint="Without the variable a band has 4096 bytes; 0 means no bands.",
        )
