"""Refuses wrappers that cannot be instrumented or stripped: packages, edited or probed files."""

from __future__ import annotations

from pathlib import Path

from rewriter.artifact.opening import open_artifact
from rewriter.artifact.types import Artifact, Wrapper
from rewriter.core.errors import RewriterError
from rewriter.core.files import backup_path
from rewriter.instrumentation import options_line


def only_wrapper(artifact: str | Path | Artifact) -> Wrapper:
    """The only wrapper of an artifact, which may be given as a path.

    Raises `RewriterError` if there are several wrappers, or if the artifact is a package.
    """
    artifact = artifact if isinstance(artifact, Artifact) else open_artifact(artifact)
    if artifact.is_rebuilt:
        raise RewriterError(
            "not-text",
            f"{artifact.path} is a package, which is built again and not edited",
            hint="rewriter.patch and rewriter.restore are for packages.",
        )
    return artifact.only


def require_plain(wrapper: Wrapper, *, replace: bool) -> None:
    """Refuse a wrapper with probes, unless they can be taken out exactly and `replace` is given."""
    require_header(wrapper)
    if wrapper.probes is None:
        return
    if wrapper.replaced:
        raise already_instrumented(
            wrapper, "`rewriter strip` gives the plain file, for probes or for other launches."
        )
    if not replace:
        raise already_instrumented(
            wrapper, "Pass --replace to exchange its probes, or `rewriter strip` it first."
        )
    if not wrapper.restored.exact:
        raise RewriterError(
            "edited-since",
            f"{wrapper.path} was edited after it was instrumented: "
            "without its probes it is not the file that it was made from",
            hint="`rewriter strip` it, look at the result, and instrument that.",
        )


def require_header(wrapper: Wrapper) -> None:
    """Refuse a file with probes whose first line, which is needed to remove them, was edited."""
    if wrapper.probes is None and (line := options_line.find(wrapper.source)):
        raise RewriterError(
            "edited-since",
            f"{wrapper.path}:{line}: this line belongs to probes, and the line that begins them is "
            "missing or edited: without it they cannot be taken out",
            hint="Undo that edit, or go back to the file that was instrumented "
            f"(--in-place keeps it as {backup_path(wrapper.path).name}).",
        )


def already_instrumented(wrapper: Wrapper, hint: str) -> RewriterError:
    """The error if a plain wrapper is needed and this one has probes."""
    assert wrapper.probes is not None
    what = f"is instrumented already (with {', '.join(wrapper.probes.probes)})"
    if wrapper.replaced:
        what = f"has launches replaced ({', '.join(f'#{x}' for x in wrapper.replaced)})"
    return RewriterError("already-instrumented", f"{wrapper.path} {what}", hint=hint)
