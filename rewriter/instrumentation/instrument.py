"""Puts probes into a wrapper: locate its launches, plan lines, insert them, check the result.

Nothing is written: the result holds the new source.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from pathlib import Path

from rewriter.artifact.types import Artifact, Wrapper
from rewriter.core import edit
from rewriter.core.errors import RewriterError
from rewriter.instrumentation import probes
from rewriter.instrumentation.dialect import dialect_of
from rewriter.instrumentation.editable import only_wrapper, require_plain
from rewriter.instrumentation.planning import plan_probes
from rewriter.instrumentation.select import select
from rewriter.instrumentation.types import Instrumented, Selection
from rewriter.instrumentation.verify import verify
from rewriter.locate.guards import read_guards
from rewriter.model_names.known import Compilations


def instrument(
    artifact: str | Path | Artifact,
    selection: Selection | None = None,
    *,
    replace: bool = False,
    standalone: bool = False,
) -> Instrumented:
    """Put probes around the launches of a wrapper; `select()` makes the selection.

    Nothing is written: `.source` of the result holds the new file. `replace` allows a file that has
    probes already, and replaces them. `standalone` puts the recorder into the file, so that it runs
    where inductor-rewriter is not installed; in Python one that has not all probes.
    """
    return instrument_wrapper(
        only_wrapper(artifact),
        selection or select(),
        replace=replace,
        standalone=standalone,
    )


def instrument_all(
    wrappers: Sequence[Wrapper],
    selection: Selection,
    labels: Sequence[str],
    *,
    replace: bool = False,
    standalone: bool = False,
) -> Generator[Callable[[], Instrumented], None, None]:
    """Run `instrument_wrapper` for many wrappers in parallel.

    For each wrapper, yields a function that returns its result, or raises its error.
    """

    def work(one: tuple[Wrapper, str, str]) -> Instrumented:
        wrapper, label, guards = one
        return instrument_wrapper(
            wrapper,
            selection,
            replace=replace,
            standalone=standalone,
            label=label,
            guards=guards,
        )

    pairs = list(zip(wrappers, labels, _guards(wrappers, selection), strict=True))
    if len(pairs) == 1:
        yield partial(work, pairs[0])
        return
    from rewriter.core import parallel

    sizes = [len(wrapper.source) for wrapper in wrappers]
    for pair, result in zip(pairs, parallel.results(work, pairs, sizes), strict=True):
        yield partial(work, pair) if result is None else partial(_same, result)


def _guards(wrappers: Sequence[Wrapper], selection: Selection) -> list[str]:
    """The conditions on the inputs of wrappers, from the cache that each is in."""
    if not probes.checks_inputs(selection):
        return [""] * len(wrappers)
    compilations = Compilations()
    return [compilations.guards(wrapper) for wrapper in wrappers]


def _same(result: Instrumented) -> Instrumented:
    return result


def instrument_wrapper(
    wrapper: Wrapper,
    selection: Selection,
    *,
    replace: bool = False,
    standalone: bool = False,
    label: str = "",
    guards: str | None = None,
    verified: bool = True,
) -> Instrumented:
    """As `instrument`, for one wrapper of an artifact.

    `label` is its name in prints, if several wrappers print. `guards` is the condition on its
    inputs, if it was read already. `verified=False` leaves `verify` to the caller.
    """
    require_plain(wrapper, replace=replace)
    if standalone and wrapper.language == "python":
        _require_plain_probes(wrapper, selection)
    original, located = wrapper.plain, wrapper.located
    dialect = dialect_of(wrapper, standalone=standalone)
    if guards is None:
        (guards,) = _guards([wrapper], selection)
    specs = located.entries[0].input_specs if located.entries else ()
    plan = plan_probes(
        original,
        located,
        selection,
        dialect,
        wrapper.operators,
        label=label,
        key=wrapper.original_key,
        guards=read_guards(guards, specs),
    )
    result = edit.apply(original.data, plan.insertions)
    if verified:
        verify(wrapper, result)
    return Instrumented(wrapper.path, result, original.data, plan, selection)


def _require_plain_probes(wrapper: Wrapper, selection: Selection) -> None:
    """Refuse what the recorder in plain Python does not have."""
    lacks = [name for name in selection.probes if name not in probes.PLAIN]
    lacks += [name for option, name in probes.NOT_PLAIN.items() if getattr(selection, option)]
    lacks += ["--format upstream"] * (selection.format == "upstream")
    if lacks:
        raise RewriterError(
            "not-standalone",
            f"{wrapper.path}: --standalone and {', '.join(lacks)}: a standalone wrapper in Python "
            "cannot have both",
            hint=f"With --standalone its probes can be {', '.join(probes.PLAIN)}. Without it, all "
            "probes and options work where inductor-rewriter is installed.",
        )
