"""Finds the sources of the kernels that a report shows."""

from __future__ import annotations

from pathlib import Path

from rewriter.errors import RewriterError
from rewriter.types import Json


def of_artifact(path: str | Path) -> dict[str, str]:
    """The source of each kernel of an artifact, by name. Raises `RewriterError` if it is none."""
    from rewriter import api
    from rewriter.kernel_source import kernel_sources

    found: dict[str, str] = {}
    for wrapper in api.open(path).wrappers:
        found = {**kernel_sources(wrapper), **found}
    return found


def of_dump(path: Path, manifest: Json) -> dict[str, str]:
    """The same of the copy of the wrapper that `rewriter run` puts into a dump, if it is there.

    `path` is the dump, or a directory in it.
    """
    name = Path(str(manifest.get("artifact", ""))).name
    for folder in (path, *path.absolute().parents[:2]) if name else ():
        try:
            if (folder / name).is_file() and (folder / "manifest.json").is_file():
                return of_artifact(folder / name)
        except (RewriterError, OSError):
            return {}  # a report does without: what ran is in the events
    return {}
