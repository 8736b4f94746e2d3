"""The commands as functions. The command line calls these and prints what they return."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rewriter.artifact.opening import open_artifact
from rewriter.artifact.types import Artifact, OpenWrapper
from rewriter.core import edit
from rewriter.core.errors import RewriterError
from rewriter.core.files import backup_path
from rewriter.core.types import Format, When
from rewriter.instrumentation import options_line, planning, probes, verify
from rewriter.instrumentation.dialect import dialect_of
from rewriter.instrumentation.types import Instrumented, Selection, Stripped


def open(path: str | Path, *, models: Iterable[str] | None = None) -> Artifact:
    """Open a wrapper, a package, or a directory, without importing torch or running anything.

    `.launches` and `.unrecognised` are what was found in it. `models` chooses models of a package
    by their names.
    """
    return open_artifact(path, None if models is None else tuple(models))


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


def instrument(
    artifact: str | Path | Artifact,
    selection: Selection | None = None,
    *,
    replace: bool = False,
    standalone: bool = False,
) -> Instrumented:
    """Put probes around the launches of a wrapper; `select()` makes the selection.

    Nothing is written: `.source` of the result holds the new file. `replace` exchanges the probes
    of a file that has some, which is an error otherwise. `standalone` embeds the runtime, so that
    the file runs where inductor-rewriter is not installed.
    """
    return instrument_wrapper(
        _only_wrapper(artifact), selection or select(), replace=replace, standalone=standalone
    )


def instrument_wrapper(
    wrapper: OpenWrapper,
    selection: Selection,
    *,
    replace: bool = False,
    standalone: bool = False,
    label: str = "",
) -> Instrumented:
    """Put probes around the launches of one wrapper of an artifact; as `instrument`.

    `label` is what prints call it, where others print beside it.
    """
    source = wrapper.plain
    _require_header(wrapper)
    if wrapper.probes is not None:
        if not replace:
            raise already_instrumented(
                wrapper, "Pass --replace to exchange its probes, or `rewriter strip` it first."
            )
        _require_unedited(wrapper)
    dialect = dialect_of(wrapper, standalone=standalone)
    plan = planning.plan(
        source, wrapper.located, selection, dialect, wrapper.operators, label=label
    )
    result = edit.apply(source.data, plan.insertions)
    verify.verify(wrapper, result)
    return Instrumented(wrapper.path, result, source.data, plan, selection)


def strip(artifact: str | Path | Artifact) -> Stripped:
    """Take the probes out again. A plain wrapper comes back as it is, with `removed == 0`."""
    wrapper = _only_wrapper(artifact)
    _require_header(wrapper)
    if wrapper.probes is None:
        # Nothing to take out, so this had better be a sound wrapper. What carries probes is
        # restored in whatever state it is.
        _ = wrapper.located
    restored = wrapper.restored
    return Stripped(wrapper.path, restored.source, wrapper.source, wrapper.removed, restored.exact)


def already_instrumented(wrapper: OpenWrapper, hint: str) -> RewriterError:
    """The error of a request that needs a plain wrapper and got one with probes."""
    assert wrapper.probes is not None
    probed = ", ".join(wrapper.probes.probes)
    return RewriterError(
        "already-instrumented", f"{wrapper.path} is instrumented already (with {probed})", hint=hint
    )


def _require_header(wrapper: OpenWrapper) -> None:
    """Refuse a file with probes whose first line was edited: nobody knows how to take them out."""
    if wrapper.probes is None and (line := options_line.find(wrapper.source)):
        raise RewriterError(
            "edited-since",
            f"{wrapper.path}:{line}: this line belongs to probes, and the line that begins them is "
            "missing or edited: without it they cannot be taken out",
            hint="Undo that edit, or go back to the file that was instrumented "
            f"(--in-place keeps it as {backup_path(wrapper.path).name}).",
        )


def _require_unedited(wrapper: OpenWrapper) -> None:
    if not wrapper.restored.exact:
        raise RewriterError(
            "edited-since",
            f"{wrapper.path} was edited after it was instrumented: "
            "without its probes it is not the file that it was made from",
            hint="`rewriter strip` it, look at the result, and instrument that.",
        )


def _only_wrapper(artifact: str | Path | Artifact) -> OpenWrapper:
    """The one wrapper of an artifact, which is opened if it is not yet."""
    artifact = artifact if isinstance(artifact, Artifact) else open(artifact)
    if artifact.package is not None:
        raise RewriterError(
            "not-text",
            f"{artifact.path} is a package, which is built again and not edited",
            hint="rewriter.patch and rewriter.restore are for packages.",
        )
    return artifact.only


def _listed(names: str | Iterable[str]) -> list[str]:
    parts = names.split(",") if isinstance(names, str) else names
    return [name.strip() for name in parts if name.strip()]
