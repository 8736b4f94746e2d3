"""Which launches, arguments and inputs a selection matches."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypeVar

from rewriter.core.errors import RewriterError
from rewriter.core.text import counted
from rewriter.core.types import Phase
from rewriter.dump.allowed import Allowed
from rewriter.instrumentation.types import Selection
from rewriter.locate.types import Argument, Launch

NO_MATCH = ("no-launch-matches", "no-tensor-matches")
"""Errors of a wrapper that has nothing that the selection names; other wrappers may have it."""

_T = TypeVar("_T")
_M = TypeVar("_M")


def with_launches(
    wrappers: Iterable[_T], making: Iterable[Callable[[], _M]]
) -> list[tuple[_T, _M]]:
    """The results of the wrappers that have launches which the selection matches.

    Raises the error of the last wrapper if none has any.
    """
    pairs = []
    missed: RewriterError | None = None
    for wrapper, made in zip(wrappers, making, strict=True):
        try:
            pairs.append((wrapper, made()))
        except RewriterError as error:
            if error.slug not in NO_MATCH:
                raise
            missed = error
    if missed and not pairs:
        raise missed
    return pairs


def choose(launches: Iterable[Launch], selection: Selection) -> tuple[Launch, ...]:
    """The launches that a selection matches. Raises `RewriterError` if there are launches, and it
    matches none."""
    launches = tuple(launches)
    chosen = tuple(
        launch
        for launch in launches
        if (selection.launches is None or any(launch.index in x for x in selection.launches))
        and (selection.kernels is None or matches(launch.kernel, selection.kernels))
    )
    if launches and not chosen:
        raise _no_match(launches, selection)
    return chosen


def unmatched(
    launches: Iterable[Launch], selection: Selection, inputs: Iterable[str] = ()
) -> tuple[str, ...]:
    """The patterns and indices of a selection that match no launch and no input."""
    launches, inputs = tuple(launches), tuple(inputs)
    indices = {launch.index for launch in launches}
    return (
        *(
            f"kernel {pattern}"
            for pattern in selection.kernels or ()
            if not any(matches(launch.kernel, [pattern]) for launch in launches)
        ),
        *(
            f"launch {_written(wanted)}"
            for wanted in selection.launches or ()
            if not any(index in wanted for index in indices)
        ),
        *(
            f"tensor {pattern}"
            for pattern in selection.tensors or ()
            if not any(_is_named(a, [pattern]) for launch in launches for a in launch.args)
            and not any(_fits(name, [pattern]) for name in inputs)
        ),
        *(
            f"value {pattern} (--allow)"
            for pattern in selection.allow
            if not any(
                Allowed([pattern]).covers(x.kernel, a.name) for x in launches for a in x.args
            )
            and not any(Allowed([pattern]).covers("", name) for name in inputs)
        ),
    )


def is_asked(argument: Argument, phase: Phase, selection: Selection) -> bool:
    """Whether a selection matches an argument of a launch at a phase.

    The role `in` matches what a launch reads, before it; `out` what it writes, after it; `inout`
    what it changes, before and after it.
    """
    if selection.tensors is not None and not _is_named(argument, selection.tensors):
        return False
    if selection.roles is None or argument.role in selection.roles:
        # An input is shown before the launch, unless the selection looks only after launches.
        return argument.role != "in" or phase in ("before", selection.when) or not selection.roles
    return argument.role == "inout" and ("in" if phase == "before" else "out") in selection.roles


def may_be_written(launch: Launch, argument: Argument) -> bool:
    """Whether a launch writes an argument, or may write it: a custom operator may change arguments
    in place without declaring it."""
    return argument.role != "in" or (launch.kind == "custom_op" and argument.type == "tensor")


def not_yet_shown(
    launches: Iterable[Launch], probed: Iterable[Launch], inputs: Mapping[str, Collection[str]]
) -> dict[int, frozenset[str]]:
    """By launch index, the expressions of tensors that it reads and that no probe has shown so far.

    `inputs` are the inputs of the call that are shown, by scope. What is left are constants,
    arguments of subgraphs, and results of launches without probes.
    """
    is_probed = {launch.index for launch in probed}
    shown = {scope: set(names) for scope, names in inputs.items()}
    result = {}
    for launch in launches:
        buffers = shown.setdefault(launch.scope, set())
        read = [a for a in launch.tensors if a.role == "in"]
        result[launch.index] = frozenset(a.expr for a in read if a.buffer not in buffers)
        written = {a.buffer for a in launch.tensors if a.role != "in"}
        buffers.update(written) if launch.index in is_probed else buffers.difference_update(written)
    return result


def asks_for_inputs(selection: Selection) -> bool:
    """Whether a selection includes the inputs of a call.

    It does not if it names kernels or launches: the inputs are not part of a launch.
    """
    everything = selection.kernels is None and selection.launches is None
    return everything and (selection.roles is None or "in" in selection.roles)


def named_inputs(names: Sequence[str], selection: Selection) -> tuple[str, ...]:
    """The inputs of a call that a selection matches."""
    if selection.tensors is None:
        return tuple(names)
    return tuple(name for name in names if _fits(name, selection.tensors))


def chosen_text(selection: Selection) -> str:
    """Which launches and values a selection chooses, as options of the command line."""
    ranges = None if selection.launches is None else map(_written, selection.launches)
    given = {
        "--kernels": selection.kernels,
        "--launches": ranges,
        "--roles": selection.roles,
        "--tensors": selection.tensors,
        "--args": None if selection.args is None else (selection.args,),
    }
    words = [(name, ",".join(value)) for name, value in given.items() if value is not None]
    return shlex.join(word for pair in words for word in pair)


def matches(kernel: str, patterns: Iterable[str]) -> bool:
    """Whether a kernel name fits a pattern, upper and lower case alike, as upstream filters."""
    return any(fnmatchcase(kernel.lower(), pattern.strip().lower()) for pattern in patterns)


def no_value(launches: Sequence[Launch], selection: Selection) -> RewriterError:
    """The error of a selection that matches launches but none of their arguments."""
    arguments = [argument for launch in launches for argument in launch.args]
    wanted = []
    near: list[str] = []
    if selection.tensors is not None:
        names = list(dict.fromkeys(a.name for a in arguments if a.type != "other"))
        wanted.append(f"is called {','.join(selection.tensors)}")
        for pattern in selection.tensors:
            near += difflib.get_close_matches(pattern.replace("*", ""), names, n=2, cutoff=0.5)
    if selection.roles is not None:
        wanted.append(f"has the role {','.join(selection.roles)}")
    guess = f"Nearest names: {', '.join(dict.fromkeys(near))}. " if near else ""
    when = "" if selection.when is None else f" where --when {selection.when} looks"
    return RewriterError(
        "no-tensor-matches",
        f"no argument of the {len(launches)} chosen launches {' and '.join(wanted)}{when}",
        hint=f"{guess}`rewriter list` shows what each launch reads and writes.",
    )


def _no_match(launches: tuple[Launch, ...], selection: Selection) -> RewriterError:
    wanted = []
    near: list[str] = []
    kernels = sorted({launch.kernel for launch in launches})
    if selection.kernels is not None:
        wanted.append(f"kernels {','.join(selection.kernels)}")
        for pattern in selection.kernels:
            part = pattern.replace("*", "").lower()
            near += [kernel for kernel in kernels if part and part in kernel.lower()][:2]
            near += difflib.get_close_matches(part, kernels, n=2, cutoff=0.5)
    if selection.launches is not None:
        wanted.append(f"launches {','.join(map(_written, selection.launches))}")
    guess = f"Nearest kernels: {', '.join(dict.fromkeys(near))}. " if near else ""
    return RewriterError(
        "no-launch-matches",
        f"no launch matches {' and '.join(wanted)}; " + _are_there(len(launches), len(kernels)),
        hint=f"{guess}`rewriter list` shows them all.",
    )


def _are_there(launches: int, kernels: int) -> str:
    if launches == 1:
        return "the only launch is #0"
    return f"there are {launches} launches, 0 to {launches - 1}, of {counted(kernels, 'kernel')}"


def _is_named(argument: Argument, patterns: Iterable[str]) -> bool:
    patterns = tuple(patterns)
    return _fits(argument.name, patterns) or _fits(argument.buffer, patterns)


def _fits(name: str, patterns: Iterable[str]) -> bool:
    # Names of tensors in a list have brackets, which are special in a pattern.
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


def _written(indices: range) -> str:
    """A range as `--launches` takes it."""
    return f"{indices[0]}-{indices[-1]}" if len(indices) > 1 else str(indices[0])
