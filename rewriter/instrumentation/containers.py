"""Puts probes into the wrappers of a container, and takes them out again.

torch writes the source of a wrapper to `<key>.py` in its cache only if that file does not exist. So
a probed wrapper gets a new key; otherwise the earlier file would run instead. The old key is
recorded in the wrapper's "Options:" line, and restored with the original. If a container names
entries of a cache that torch loads, these get new keys for the same reason.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rewriter.artifact.contained_wrappers import container_in
from rewriter.artifact.types import Artifact, Wrapper
from rewriter.core.errors import FAILED, RewriterError
from rewriter.core.markers import find_header
from rewriter.instrumentation.editable import original_key

_TAG = "_"  # keys are base32


@dataclass(frozen=True)
class StrippedContainer:
    """A container without probes; `exact` says whether every wrapper is the original."""

    data: bytes
    exact: bool


class NewSource(Protocol):
    """The new source of a wrapper, and the one without probes."""

    @property
    def source(self) -> bytes: ...

    @property
    def original(self) -> bytes: ...


def probed(artifact: Artifact, results: Sequence[tuple[Wrapper, NewSource]]) -> bytes:
    """A container with instrumented wrappers in place of the originals.

    Raises `RewriterError` if stripping the result would not give the original container.
    """
    sources = {_place(wrapper): result.source for wrapper, result in results}
    data = _with_sources(artifact, sources)
    again = container_in(artifact.path, data)
    if again is None or plain(again) != plain(artifact):
        raise RewriterError(
            "verification-failed",
            f"{artifact.path}: stripping the instrumented file would not restore the original",
            hint="Nothing was written. Please report this with the file.",
            code=FAILED,
        )
    return data


def stripped(artifact: Artifact, wrappers: Iterable[Wrapper]) -> StrippedContainer:
    """A container without the probes of some of its wrappers."""
    chosen = tuple(wrappers)
    sources = {_place(wrapper): wrapper.restored.source for wrapper in chosen}
    is_exact = all(wrapper.restored.exact for wrapper in chosen)
    return StrippedContainer(_with_sources(artifact, sources), is_exact)


def plain(artifact: Artifact) -> bytes:
    """A container without any probes, including those of wrappers that were not chosen."""
    return stripped(artifact, artifact.stored).data


def remainder(artifact: Artifact) -> bytes:
    """A container without its wrappers, their keys and all probes: what else it holds."""
    whole = container_in(artifact.path, plain(artifact))
    assert whole is not None
    assert whole.container is not None
    stored = (wrapper.stored for wrapper in whole.wrappers if wrapper.stored is not None)
    places = [place for one in stored for place in one.places]
    return whole.container.contents.splice(
        {at: "" for place in places for at in (place.key, place.source)}
    )


def _place(wrapper: Wrapper) -> int:
    """The offset of a wrapper in its container: unlike the name, it is unique."""
    assert wrapper.stored is not None
    return wrapper.stored.places[0].source


def _with_sources(artifact: Artifact, sources: Mapping[int, bytes]) -> bytes:
    """A container with new sources, by the places of their wrappers, and with their new keys."""
    assert artifact.container is not None
    contents = artifact.container.contents
    texts: dict[int, str | bytes] = {}
    with_probes: list[bytes] = []
    for wrapper in artifact.stored:
        assert wrapper.stored is not None
        source = sources.get(_place(wrapper), wrapper.source)
        if find_header(source) is not None:
            with_probes.append(source)
        if source == wrapper.source:
            continue
        is_plain = find_header(source) is None
        key = original_key(wrapper) if is_plain else key_of(source)
        for place in wrapper.stored.places:
            texts[place.source] = source
            texts[place.key] = key
    for start, key in contents.entry_keys:
        texts[start] = _entry_key(key, with_probes)
    return contents.splice(texts)


def _entry_key(key: str, with_probes: Sequence[bytes]) -> str:
    """The key of an entry: with probes, the original key with a suffix that no cache has."""
    original = key.partition(_TAG)[0]
    if not with_probes:
        return original
    digest = hashlib.sha256(
        b"".join(hashlib.sha256(with_probe).digest() for with_probe in with_probes)
    )
    return original + _TAG + digest.hexdigest()[:16]


def key_of(source: bytes) -> str:
    """The key of a source, as torch names its file (torch/_inductor/codecache.py)."""
    digest = base64.b32encode(hashlib.sha256(source).digest())[:51]
    return "c" + digest.decode().lower()
