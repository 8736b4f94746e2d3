"""Puts probes into the wrappers of a container, and takes them out: the file as it then is.

torch writes the source of a wrapper to `<key>.py` of its cache only if there is no such file, so a
probed wrapper gets a key of its own; otherwise an earlier file would run instead. The key that it
had stands in the line "Options:" of the wrapper, and comes back with the original.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rewriter.artifact.contained_wrappers import container_in
from rewriter.artifact.types import Artifact, OpenWrapper
from rewriter.core.errors import FAILED, RewriterError
from rewriter.instrumentation import options_line


@dataclass(frozen=True)
class StrippedContainer:
    """A container without probes; `exact` tells whether every wrapper is what was instrumented."""

    data: bytes
    exact: bool


def original_key(wrapper: OpenWrapper) -> str:
    """The key under which torch stored a wrapper of a container; empty where it is in none."""
    if wrapper.stored is None:
        return ""
    if (header := wrapper.probes) is None:
        return wrapper.stored.key
    recorded = options_line.read(wrapper.source, header.tag, header.probes)
    # Probes without a key were in the cache's file already when torch saved the container.
    return (recorded[0].key if recorded else "") or wrapper.stored.key


class NewSource(Protocol):
    """What becomes of a wrapper: its new source, and the one without probes."""

    @property
    def source(self) -> bytes: ...

    @property
    def original(self) -> bytes: ...


def probed(artifact: Artifact, results: Sequence[tuple[OpenWrapper, NewSource]]) -> bytes:
    """A container with instrumented wrappers in place of those that they were made from.

    Raises `RewriterError` where taking the probes out again would not give the container back.
    """
    texts: dict[int, str | bytes] = {}
    for wrapper, result in results:
        is_plain = result.source == result.original
        key = original_key(wrapper) if is_plain else key_of(result.source)
        _place(texts, wrapper, result.source, key)
    data = _contents(artifact, texts)
    again = container_in(artifact.path, data)
    if again is None or stripped(again).data != plain(artifact):
        raise RewriterError(
            "verification-failed",
            f"{artifact.path}: stripping the instrumented file would not give back the original",
            hint="Nothing was written. Please report this with the file.",
            code=FAILED,
        )
    return data


def stripped(
    artifact: Artifact, wrappers: Iterable[OpenWrapper] | None = None
) -> StrippedContainer:
    """A container without the probes of some of its wrappers; of all, unless they are named."""
    texts: dict[int, str | bytes] = {}
    exact = True
    for wrapper in artifact.wrappers if wrappers is None else wrappers:
        if wrapper.probes is not None:
            exact = exact and wrapper.restored.exact
            _place(texts, wrapper, wrapper.restored.source, original_key(wrapper))
    return StrippedContainer(_contents(artifact, texts), exact)


def plain(artifact: Artifact) -> bytes:
    """A container without any probes, also those of wrappers that are not among its chosen ones."""
    assert artifact.container is not None
    whole = container_in(artifact.path, artifact.container.contents.data)
    assert whole is not None
    return stripped(whole).data


def key_of(source: bytes) -> str:
    """The key of a source: what torch would call its file (torch/_inductor/codecache.py)."""
    digest = base64.b32encode(hashlib.sha256(source).digest())[:51]
    return "c" + digest.decode().lower()


def _place(texts: dict[int, str | bytes], wrapper: OpenWrapper, source: bytes, key: str) -> None:
    assert wrapper.stored is not None
    for place in wrapper.stored.places:
        texts[place.source] = source
        texts[place.key] = key


def _contents(artifact: Artifact, texts: dict[int, str | bytes]) -> bytes:
    assert artifact.container is not None
    return artifact.container.contents.splice(texts)
