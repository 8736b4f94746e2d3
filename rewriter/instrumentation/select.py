"""Makes and checks a selection: which probes go where."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import get_args

from rewriter.core.errors import RewriterError
from rewriter.core.quantities import Calls, comma_separated, parse_bytes
from rewriter.core.types import ArgsMode, Format, Role, When
from rewriter.instrumentation import probes
from rewriter.instrumentation.types import Selection

_TOO_MANY = 10**9
ROLES: tuple[Role, ...] = get_args(Role)


def select(
    probe: str | Iterable[str] = ("print",),
    *,
    kernels: str | Iterable[str] | None = None,
    launches: Iterable[int | range] | None = None,
    when: When | None = None,
    format: Format = "text",
    values: bool = False,
    roles: str | Iterable[str] | None = None,
    tensors: str | Iterable[str] | None = None,
    calls: str = "",
    last: int = 0,
    args: ArgsMode | None = None,
    max_bytes: str = "",
    allow: str | Iterable[str] = (),
    stop: bool = False,
    dormant: bool = False,
    on: str | Iterable[str] = (),
) -> Selection:
    """Say which probes go where. Names and patterns may be given as one comma-separated string.

    `print`, `hash` and `save` show what launches write, after them, and the inputs of each call;
    with `args="all"` or `when="both"` all arguments of launches, before and after.
    `roles` and `tensors` choose among these arguments; `calls`, such as `"3-5,9,20-"`, which calls
    of the wrapper are recorded, counted from 0; of those the dump keeps the `last`. `save` writes
    up to `max_bytes`, such as `"10G"`, in each process.

    `allow` names values that may be NaN or infinite: `"KERNEL:BUFFER"`, both patterns, with
    `inputs` as the kernel for the inputs of a call. With `stop`, the program ends at the first NaN
    that is not allowed, with exit code 1. Both are of the probe `nan`, which they add.

    With `dormant`, the probes are those that `rewriter control` can switch on while the program
    runs; until then they do nothing.

    `on` says when the probe `record`, which it adds, writes what it has into a dump of its own:
    `"nan"`, `"inf"`, `"changed"`, `"spike:10x"`, `"slow:5x"`.

    Raises `RewriterError` on an unknown probe, with the nearest name.
    """
    wanted = _listed(probe)
    triggers = _check_triggers(on)
    added = ["record"] * bool(triggers)
    if wanted and (stop or (allow and not triggers)):
        added.append("nan")
    names = probes.check([*wanted, *added])
    if not names:
        raise no_probes()
    if "record" in names:
        who = "--on adds the probe record, which" if "record" not in wanted else "the probe record"
        _check_record(names, last, max_bytes, who)
    return Selection(
        names,
        None if kernels is None else _listed(kernels),
        None
        if launches is None
        else tuple(x if isinstance(x, range) else range(x, x + 1) for x in launches),
        when,
        format,
        values,
        None if roles is None else check_roles(_listed(roles)),
        None if tensors is None else _listed(tensors),
        check_calls(calls),
        check_number("--last", last) if last else 0,
        args,
        check_bytes(max_bytes),
        check_allowed(_listed(allow)),
        stop,
        dormant,
        triggers,
    )


_TRIGGER = re.compile(r"nan|inf|changed|(?:spike|slow):(\d{1,6}(?:\.\d{1,3})?)x?")


def _check_triggers(wanted: str | Iterable[str]) -> tuple[str, ...]:
    """The triggers of `--on`, each once. Raises `RewriterError` for any other text."""
    result = tuple(dict.fromkeys(_listed(wanted)))
    for text in result or [""] * bool(wanted):
        match = _TRIGGER.fullmatch(text)
        if match is None or (match[1] is not None and float(match[1]) <= 1):
            raise RewriterError(
                "bad-trigger",
                f"--on {text!r} is no trigger",
                hint="Triggers: nan, inf, changed, spike:10x, slow:5x; factors are more than 1.",
            )
    return result


# Probes that write more than a ring holds, or into files of their own.
_NOT_RECORDED = ("save", "bounds", "poison", "stale")


def _check_record(names: Iterable[str], last: int, max_bytes: str, who: str) -> None:
    """Refuse what cannot be combined with the probe `record`; `who` is its name in messages."""
    if others := [name for name in names if name in _NOT_RECORDED]:
        raise RewriterError(
            "not-with-record",
            f"{who} keeps the last launches in memory, and cannot keep what "
            f"{', '.join(others)} {'write' if len(others) > 1 else 'writes'}",
            hint="Leave out one or the other.",
        )
    if last or max_bytes:
        raise RewriterError(
            "not-with-record",
            f"{who} keeps calls in a ring of fixed size: --keep and --max-bytes are for "
            "dumps that grow",
            hint="Leave them out; REWRITER_RECORD_BYTES sets the size of the ring.",
        )


def check_allowed(patterns: Iterable[str]) -> tuple[str, ...]:
    """Check `--allow`: patterns of values that may be NaN or infinite, each with both parts."""
    result = tuple(patterns)
    for pattern in result:
        kernel, _, name = pattern.rpartition(":")
        if not (kernel and name) or "; " in pattern:
            raise RewriterError(
                "bad-allow",
                f"--allow {pattern!r} is no KERNEL:BUFFER",
                hint="Write both, such as 'cpp_fused_softmax_0:buf3' or '*softmax*:*'; "
                "'inputs:arg0_1' is an input of the call.",
            )
    return result


def check_roles(names: Iterable[str]) -> tuple[Role, ...]:
    """Check `--roles`."""
    wanted = list(names)
    for name in wanted or [""]:
        if name not in ROLES:
            raise RewriterError(
                "bad-roles",
                f"--roles: {name!r} is no role of an argument",
                hint="in: what a launch reads; out: what it writes; inout: what it changes.",
            )
    return tuple(role for role in ROLES if role in wanted)


def check_calls(text: str, *, option: str = "--calls") -> str:
    """Check an option that takes numbers, such as those of calls, and ranges of them. Returns its
    text without spaces."""
    text = "".join(text.split())
    try:
        if text:
            Calls(text)
    except ValueError as error:
        raise RewriterError(
            "bad-calls",
            f"{option} {text!r}: {error}",
            hint="Write numbers, counted from 0, and ranges of them, such as 0,3-5 or 100-.",
        ) from error
    return text


def check_bytes(text: str, *, option: str = "--max-bytes") -> str:
    """Check an option that takes a size. Returns its text without spaces."""
    text = "".join(text.split())
    try:
        if text:
            parse_bytes(text)
    except ValueError as error:
        raise RewriterError(
            "bad-size",
            f"{option} {text!r}: {error}",
            hint="Write bytes, or a size such as 500M, 10G or 2GiB.",
        ) from error
    return text


def check_number(option: str, number: int) -> int:
    """Check a count: at least one, and in the range of all runtimes."""
    if not 1 <= number < _TOO_MANY:
        bound = "greater than 0" if number < 1 else f"less than {_TOO_MANY:,}"
        raise RewriterError(
            "bad-number", f"{option} is {number}", hint=f"Expected a number {bound}."
        )
    return number


def no_probes() -> RewriterError:
    """The error if no probe is named."""
    return RewriterError(
        "no-probes",
        "no probe was asked for",
        hint=f"Pass one or more of {', '.join(sorted(probes.registry()))}.",
    )


def _listed(names: str | Iterable[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        return comma_separated(names)
    return tuple(name.strip() for name in names if name.strip())
