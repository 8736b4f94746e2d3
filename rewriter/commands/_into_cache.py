"""`instrument CONTAINER --into-cache DIR`: leaves the file as it is, and puts the probes into a
cache.

torch runs the wrapper that its cache has under the key in the container. So the wrappers are
written there, as torch would do it, and get probes as with `rewriter cache instrument`.
"""

from __future__ import annotations

import argparse
import re

from rewriter.artifact.types import Artifact, OpenWrapper
from rewriter.cache import location, mutate
from rewriter.cache.session import writing
from rewriter.commands import _cache as text
from rewriter.commands._options import refuse_idle
from rewriter.commands._output import emit
from rewriter.core import files
from rewriter.core.errors import OK, RewriterError
from rewriter.core.terminal import message
from rewriter.instrumentation.editable import already_instrumented, original_key
from rewriter.instrumentation.instrument import instrument_all
from rewriter.instrumentation.matching import with_launches
from rewriter.instrumentation.types import Selection

_KEY = re.compile(r"c[a-z2-7]{51}")


def instrument(arguments: argparse.Namespace, artifact: Artifact, selection: Selection) -> int:
    """Put the wrappers of a container into a cache, with probes."""
    _refuse(arguments, artifact)
    directory = location.directory(arguments.into_cache)
    # Refuse wrappers that cannot be instrumented before a file is written.
    labels = [""] * len(artifact.wrappers)
    pairs = with_launches(artifact.wrappers, instrument_all(artifact.wrappers, selection, labels))
    named = {_name(wrapper): wrapper for wrapper, _ in pairs}
    missing = [(name, one.source) for name, one in named.items() if not (directory / name).exists()]
    directory.mkdir(parents=True, exist_ok=True)
    if missing:
        files.write_folder(directory, missing, overwrite=False)
    with writing(directory, message) as cache:
        slots = [slot for slot in cache.slots if slot.name in named]
        placed, refused = mutate.instrument(
            slots, selection, overwrite=arguments.overwrite, beside=cache.slots
        )
        if not placed:
            raise refused[0].error
    text.warn_about_all(placed, refused, ())
    if arguments.json:
        from rewriter.commands._documents import cache as documents

        emit(documents.instrument_document(cache.directory, placed, refused))
    else:
        text.show_placed(cache, placed, selection)
    return OK


def _name(wrapper: OpenWrapper) -> str:
    """The file of a wrapper in a cache: torch/_inductor/codecache.py, `get_path`."""
    key = original_key(wrapper)
    if not _KEY.fullmatch(key):
        raise RewriterError(
            "unsafe-key",
            f"{wrapper.path} has a key that is none of torch's: {key[:80]!r}",
            hint="Get the file from its maker again, or have torch make it again.",
        )
    return f"{key[1:3]}/{key}.py"


def _refuse(arguments: argparse.Namespace, artifact: Artifact) -> None:
    names = ("output", "in_place", "diff", "check", "replace", "standalone")
    given = {f"--{name.replace('_', '-')}": getattr(arguments, name) for name in names}
    refuse_idle(given, "--into-cache leaves the file as it is, and exchanges probes in the cache")
    artifact.require_sound()
    for wrapper in artifact.wrappers:
        if wrapper.probes is not None:
            raise already_instrumented(wrapper, "`rewriter strip` it first.")
