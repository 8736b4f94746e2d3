"""The options of probes, and the selection that they ask for; options that would do nothing are
refused."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from rewriter.commands._click import Choice
from rewriter.commands._options import (
    ARGS,
    INPUTS,
    OUTPUT,
    PROBES,
    RUN,
    WHICH,
    Arguments,
    CheckOptions,
    RunOptions,
    options_given,
    refuse_idle,
    refuse_options,
)
from rewriter.core.errors import RewriterError
from rewriter.core.quantities import comma_separated
from rewriter.core.types import ArgsMode, Format, When
from rewriter.instrumentation import probes
from rewriter.instrumentation.select import check_bytes, check_calls, check_number, select
from rewriter.instrumentation.types import Selection

LEVEL_VARIABLE = "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER"
KERNELS_VARIABLE = "AOT_INDUCTOR_FILTERED_KERNELS_TO_PRINT"
_KNOWN = (f"{name}: {probe.summary}" for name, probe in probes.registry().items())


class ProbeOptions(Arguments):
    """Which probes act where and when. `which` is `--args`, where that is no file."""

    probe: tuple[str, ...] = PROBES.option(
        "--probe NAME[,NAME…]", "\n".join(["one or more of:", *_KNOWN]), multiple=True
    )
    level: str | None = PROBES.option(
        "--level",
        "the probes that a level of torch's own debug printer stands for: 1 save, 2 print, "
        f"3 names (default: ${LEVEL_VARIABLE})",
        type=Choice(sorted(probes.LEVELS)),
    )
    kernels: str | None = PROBES.option(
        "--kernels GLOB[,GLOB…]", f"only launches of these kernels (default: ${KERNELS_VARIABLE})"
    )
    launches: str | None = PROBES.option("--launches N[,N-M…]", "only launches of these indices")
    when: When | None = PROBES.option(
        "--when",
        "when to act: before or after launches, or both (default: after; names before; sync "
        "and time both)",
        type=Choice(("before", "after", "both")),
    )
    dormant: bool = False
    which: ArgsMode | None = None
    roles: str | None = PROBES.option(
        "--roles ROLE[,ROLE…]",
        "only values of these roles: in (what launches read), out (what they write), inout "
        "(what they change)",
    )
    tensors: str | None = PROBES.option(
        "--tensors GLOB[,GLOB…]", "only arguments and inputs of these names, or in these buffers"
    )
    calls: str | None = PROBES.option(
        "--calls N[,N-M…]",
        "only these calls of a wrapper, counted from 0; 100- is call 100 and all later ones",
        apart="first",
    )
    first: int | None = PROBES.option("--first N", "only the first N calls of a wrapper", type=int)
    every: int | None = PROBES.option(
        "--every N", "of those calls, only every Nth, from the first on", type=int
    )
    last: int | None = PROBES.option(
        "--keep, --last N", "keep only the last N calls of a wrapper in the dump", type=int
    )
    max_bytes: str | None = PROBES.option(
        "--max-bytes SIZE",
        "how much each process may write to the dump, such as 500M or 10G; after that it "
        "writes no more, or with --keep replaces the oldest calls",
    )
    allow: tuple[str, ...] = PROBES.option(
        "--allow KERNEL:BUFFER",
        "values that may be NaN or infinite: patterns of kernel and buffer, such as "
        "'*softmax*:buf3' or inputs:arg0_1 (may be repeated; adds the probe nan)",
        multiple=True,
    )
    stop: bool = PROBES.flag(
        "--stop", "end the program at the first NaN, with exit code 1 (adds the probe nan)"
    )
    on: tuple[str, ...] = PROBES.option(
        "--on TRIGGER[,…]",
        "when to write the last launches to a dump: nan, inf, changed, spike:10x or slow:5x "
        "(adds the probe record)",
        multiple=True,
    )
    format: Format = PROBES.option(
        "--format",
        "how values are printed: one line each, or as torch's own debug printer does",
        type=Choice(("text", "upstream")),
        default="text",
    )
    values: bool = PROBES.flag(
        "--values", "also print the first elements of each tensor, at most 64"
    )


def _inputs_or_which(ctx: click.Context, _: Any, given: tuple[str, ...]) -> str | None:
    """`--args` of a command that runs artifacts: a file of inputs, or which arguments are read."""
    for name, words in (
        ("which", [x for x in given if x in WHICH]),
        ("args", [x for x in given if x not in WHICH]),
    ):
        ctx.params[name] = words[-1] if words else None
    return ctx.params["args"]  # type: ignore[no-any-return]


class ProbedRunOptions(RunOptions, ProbeOptions):
    """How something is run with probes."""

    args: str | None = RUN.option(
        "--args FILE.pt|written|all|ends",
        f"{INPUTS}; or {ARGS}; may be given twice, once for each",
        multiple=True,
        callback=_inputs_or_which,
    )
    blocking: bool = RUN.flag(
        "--blocking",
        "on a GPU, wait for each launch, and do not cache memory: sets "
        "CUDA_LAUNCH_BLOCKING=1 and PYTORCH_NO_CUDA_MEMORY_CACHING=1",
    )
    interpret: bool = RUN.flag(
        "--interpret",
        "run a wrapper for a GPU on the CPU, its Triton kernels in Triton's interpreter, which "
        "has to be installed; addresses outside of tensors are found",
    )
    dormant: bool = RUN.flag(
        "--dormant",
        "of a program: the probes (default: all) do nothing until `rewriter control` switches "
        "them on",
    )
    quiet: bool = OUTPUT.flag(
        "--quiet",
        "print nothing, only write the dump (for a program this is the default, unless "
        "--probe is given)",
    )


def selection(
    arguments: ProbeOptions, *, default: str = "", environment: bool = True
) -> Selection | None:
    """The selection that the options ask for, `None` if they ask for no probe.

    Without `--probe` and `--level`, upstream's variable decides if `environment` allows it, and
    then what `--on`, `--stop` and `--allow` are for, or the probe named `default`.
    """
    kernels = arguments.kernels
    if kernels is None and environment:
        kernels = environment_kernels()
    is_dormant = arguments.dormant
    asked = list(arguments.probe)
    if is_dormant and not asked and arguments.level is None:
        asked = ["record"] if arguments.on else list(probes.SWITCHED)
    if arguments.level is not None:
        asked += probes.LEVELS[arguments.level]
    elif not asked:
        wanted = probes.LEVELS[_environment_level()] if environment else ()
        own = "record" if arguments.on else "nan" if arguments.stop or arguments.allow else ""
        asked += wanted or [own or (default if environment else "")]
    names = ",".join(asked)
    if not names.strip(","):
        _refuse_idle_options(arguments)
        return None

    result = select(
        names,
        kernels=kernels,
        launches=None if arguments.launches is None else indices(arguments.launches),
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
        on=comma_separated(*arguments.on) or arguments.on,
    )
    if is_dormant:
        fixed = set(result.probes) - {*probes.SWITCHED, "inputs", "record"}
        refuse_idle([f"--probe {x}" for x in sorted(fixed)], "it cannot be dormant")
        why = "`rewriter control` says which calls dormant probes record"
        refuse_options(arguments, "calls first every last", why)
    return result


def environment_kernels() -> str | None:
    """The kernels in upstream's environment variable."""
    return os.environ.get(KERNELS_VARIABLE) or None


def names_probes(arguments: ProbeOptions) -> bool:
    """Whether the user asked for a probe, so that it is not the default."""
    asked = bool(arguments.probe) or arguments.level is not None
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


def nothing_recorded(arguments: CheckOptions, dump: Path | None = None) -> RewriterError:
    """The error of a run after which there is no launch to look at."""
    where = f" in {dump}" if dump else ""
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


def _refuse_idle_options(arguments: ProbeOptions) -> None:
    """Refuse filters without a probe, rather than ignore them."""
    names = [
        x.name for x in fields(ProbeOptions) if x.name not in ("words", "probe", "level", "which")
    ]
    idle = options_given(arguments, *names) + ["--args"] * bool(arguments.which)
    if idle:
        raise RewriterError(
            "no-probes",
            f"{', '.join(idle)} given, but no probe",
            hint=f"Pass --probe with one or more of {', '.join(sorted(probes.registry()))}. What "
            "is instrumented has chosen before: pass the plain file.",
        )


def _calls(arguments: ProbeOptions) -> str:
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


def indices(text: str, option: str = "--launches") -> list[range]:
    """`3,7-12` as ranges. Raises `RewriterError`."""
    result: list[range] = []
    for part in comma_separated(text):
        first, dash, last = part.partition("-")
        try:
            low = int(first)
            high = int(last) if dash else low
        except ValueError:
            low, high = 0, -1
        if low > high or low < 0:
            raise RewriterError(
                "bad-launches",
                f"{option} {text!r}: {part!r} is no index or range",
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
    kept = os.environ.get("REWRITER_KEEP") or "1"
    if not (kept.isascii() and kept.isdecimal() and len(kept) < 10 and int(kept)):
        raise RewriterError(
            "bad-number",
            f"REWRITER_KEEP: {kept!r} is no number of calls, such as 5",
            hint="Write a number greater than 0: that many calls of each wrapper are kept.",
        )
    _check_memory_variables(chosen)


def _check_memory_variables(chosen: Selection) -> None:
    from rewriter.diagnosis.fill_patterns import FILLINGS, VARIABLE, is_choice

    if not set(chosen.probes) & set(FILLINGS):
        return
    if not is_choice(fills := os.environ.get(VARIABLE, "")):
        raise RewriterError(
            "bad-fill",
            f"{VARIABLE} is {fills!r}: expected 0, 1, off, or PROBE=0 and PROBE=1",
            hint="0: NaN and large integers; 1: finite and small numbers; off: nothing is filled.",
        )
    check_guard_variable()


def check_guard_variable() -> None:
    """Refuse a width of guard bands that the probe `bounds` could not use."""
    from rewriter.diagnosis.fill_patterns import GUARD_VARIABLE

    guard = os.environ.get(GUARD_VARIABLE, "")
    if guard and not (guard.isascii() and guard.isdecimal() and len(guard) < 9):
        raise RewriterError(
            "bad-size",
            f"{GUARD_VARIABLE} is {guard!r}: expected a number of bytes, at most 99999999",
            hint="Without the variable a band has 4096 bytes; 0 means no bands.",
        )
