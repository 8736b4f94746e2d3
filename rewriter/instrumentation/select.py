"""Makes a selection from what a person or a program asks for, and checks it."""

from __future__ import annotations

from collections.abc import Iterable

from rewriter.core.errors import RewriterError
from rewriter.core.types import Format, When
from rewriter.instrumentation import probes
from rewriter.instrumentation.types import Selection


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
) -> Selection:
    """Say which probes go where. Names and patterns may be given as one comma-separated string.

    `roles` and `tensors` choose among the arguments of launches; `calls`, such as `"3-5,9,20-"`,
    which calls of the wrapper are recorded, counted from 0; of those the dump keeps the `last`.

    Raises `RewriterError` on an unknown probe, with the nearest name.
    """
    names = probes.check(_listed(probe))
    if not names:
        raise no_probes()
    return Selection(
        names,
        None if kernels is None else tuple(_listed(kernels)),
        None
        if launches is None
        else tuple(x if isinstance(x, range) else range(x, x + 1) for x in launches),
        when,
        format,
        values,
        None if roles is None else probes.check_roles(_listed(roles)),
        None if tensors is None else tuple(_listed(tensors)),
        probes.check_calls(calls),
        probes.check_number("--last", last) if last else 0,
    )


def no_probes() -> RewriterError:
    """The error of a request that needs a probe and names none."""
    return RewriterError(
        "no-probes",
        "no probe was asked for",
        hint=f"Pass one or more of {', '.join(sorted(probes.registry()))}.",
    )


def _listed(names: str | Iterable[str]) -> list[str]:
    parts = names.split(",") if isinstance(names, str) else names
    return [name.strip() for name in parts if name.strip()]
