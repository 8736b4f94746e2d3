"""What `diagnose` and `sanitize` say where nothing is run: what the texts of wrappers show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

from rewriter.artifact.locate_all import locate_all
from rewriter.artifact.types import Artifact
from rewriter.commands import _diagnosis_text
from rewriter.commands._documents.diagnose import DiagnoseDocument, SanitizeDocument
from rewriter.commands._options import TextOptions, options_given, refuse_idle
from rewriter.core.documents import Document
from rewriter.core.errors import RewriterError
from rewriter.diagnosis import ruling
from rewriter.diagnosis.by_text import examine_text
from rewriter.diagnosis.ruling import Examined

Title = Literal["diagnosis", "sanitize"]
# Errors of a run that needs what is not here.
_LACKING = frozenset({"no-device", "not-runnable"})
_NOT_LOOKED_AT = "what launches compute, crashes and hangs, and accesses out of bounds"


def is_text_only(
    arguments: TextOptions, artifact: Artifact, needs_a_run: Sequence[str] = ()
) -> bool:
    """Whether only the text of an artifact is to be looked at. With `--text`, the options in
    `needs_a_run` are refused, which were given."""
    if arguments.text:
        given = options_given(arguments, "args", "dump", "calls")
        refuse_idle([*given, *needs_a_run], "with --text nothing is run")
    return arguments.text or any(wrapper.is_fragment for wrapper in artifact.wrappers)


def instead(
    arguments: TextOptions, artifact: Artifact, error: RewriterError, folder: Path, title: Title
) -> int:
    """Examine the text if that is all that can be done here; else raise the error of the run.
    `folder` was made for its dumps."""
    if error.slug not in _LACKING:
        raise error
    with suppress(OSError):
        folder.rmdir()  # nothing is in it
    return act(arguments, artifact, title, error.message.removeprefix(f"{artifact.path}: "))


def act(arguments: TextOptions, artifact: Artifact, title: Title, why: str = "") -> int:
    """Examine the texts of all wrappers of an artifact. `why` says why nothing is run."""
    locate_all(artifact.wrappers)
    because = f" ({why})" if why else ""
    notes = (f"nothing was run{because}: {_NOT_LOOKED_AT} were not looked at",)
    parts = [*_examined(artifact), Examined(notes=notes)]
    diagnosis = replace(ruling.rule(parts), is_by_text=True)
    document: Document
    if title == "sanitize":
        document = SanitizeDocument(directory="", diagnosis=diagnosis, coverage=())
    else:
        document = DiagnoseDocument(directory="", diagnosis=diagnosis)
    title_here = f"{title} by the text"
    return _diagnosis_text.conclude(arguments, diagnosis, document, None, title=title_here)


def _examined(artifact: Artifact) -> Iterator[Examined]:
    damaged = dict(artifact.damaged)
    for wrapper in artifact.wrappers:
        try:
            yield from examine_text(wrapper)
        except RewriterError as error:
            damaged[wrapper.name] = error
    for name, why in damaged.items():
        yield Examined(notes=(f"not read: {name}: {why.message}",))
