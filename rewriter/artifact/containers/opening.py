"""Containers: files of torch that hold the text of wrappers among other data.

Wrappers have names by graph. Nothing is executed or unpickled. torch writes the source of a wrapper
to `<key>.py` in its cache only if that file does not exist. So a probed wrapper gets a new key;
otherwise the earlier file would run instead. The old key is recorded in the wrapper's "Options:"
line, and restored with the original. If a container names entries of a cache that torch loads,
these get new keys for the same reason.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from rewriter.artifact.containers import aot_compile, cache_entry, mega_cache, standalone
from rewriter.artifact.containers.safety import require_harmless
from rewriter.artifact.containers.types import Contents, Section
from rewriter.artifact.graph_kind import GraphKind, graph_of, numbered
from rewriter.artifact.recognise import read, read_head
from rewriter.artifact.types import Artifact, NewFile, Place, Stored, Wrapper
from rewriter.core import limits, pickle_reader
from rewriter.core.errors import FAILED, RewriterError
from rewriter.core.labels import labels
from rewriter.core.markers import find_header
from rewriter.core.pickle_reader import Pickle, Text
from rewriter.core.source import check_text
from rewriter.core.types import Language
from rewriter.locate.languages import recognise

_FORMS: tuple[Callable[[bytes], Contents | None], ...] = (
    standalone.read,
    mega_cache.read,
    aot_compile.read,
    cache_entry.read,
)
_SUFFIX = ".py"
_KEY, _SOURCE = b"cache_key", b"source_code"
_TAG = "_"  # behind the key of an entry with probes; keys are base32


@dataclass(frozen=True, kw_only=True)
class Container(Artifact):
    """A container. `stored` are all wrappers in it, including those that were not chosen."""

    contents: Contents = field(repr=False)
    stored: tuple[Wrapper, ...]

    is_text: ClassVar[bool] = False

    def rewritten(self, sources: Mapping[str, bytes]) -> tuple[NewFile, ...]:
        """The file with new sources. Raises `RewriterError` if stripping the result would not give
        the original container."""
        after, plain = self._with(sources), self.plain()
        again = container_in(self.path, after)
        if again is None or again.plain() != plain:
            raise RewriterError(
                "verification-failed",
                f"{self.path}: stripping the instrumented file would not restore the original",
                hint="Nothing was written. Please report this with the file.",
                code=FAILED,
            )
        before = self.contents.data
        return (NewFile(self.path, self.path.name, before, after, plain, tuple(sources)),)

    def plain(self) -> bytes:
        """The file without any probes, including those of wrappers that were not chosen."""
        return self._with({wrapper.name: wrapper.restored.source for wrapper in self.stored})

    def remainder(self) -> bytes:
        whole = container_in(self.path, self.plain())
        assert whole is not None
        places = (place for wrapper in whole.wrappers for place in wrapper.stored.places)
        return whole.contents.splice({at: "" for place in places for at in place})

    def require_target(
        self, output: str | None, *, in_place: bool, shown: bool, probing: bool
    ) -> None:
        super().require_target(output, in_place=in_place, shown=shown, probing=probing)
        folder = Path(self.path if in_place or not output else output).resolve().parent
        is_cache = folder.parent.name == "aotautograd" or folder.parent.parent.name == "fxgraph"
        if probing and is_cache and not shown:
            raise RewriterError(
                "entry-folder",
                f"{folder} holds entries of a cache, and torch reads every file in it as an entry",
                hint="Name a file elsewhere with -o; or leave the entry as it is: `rewriter run -- "
                "COMMAND` puts probes into what a program loads.",
            )

    def labels(self) -> list[str]:
        """Named after the part of the model that runs the wrapper, and the number of others."""
        names = labels([(wrapper.graph, wrapper.path.name) for wrapper in self.wrappers])
        result = []
        for wrapper, name in zip(self.wrappers, names, strict=True):
            parts = wrapper.stored.submodules
            others = f" +{len(parts) - 1}" if len(parts) > 1 else ""
            is_named = parts and wrapper.graph == "inference"
            result.append(f"{parts[0]}{others}" if is_named else name)
        return result

    def title(self, wrapper: Wrapper) -> str:
        return wrapper.name

    def pickles(self) -> Mapping[Path, Sequence[Pickle]]:
        return {self.path: [section.pickle for section in self.contents.sections]}

    def _with(self, sources: Mapping[str, bytes]) -> bytes:
        """The file with new sources, and with the new keys of their wrappers."""
        texts: dict[int, str | bytes] = {}
        with_probes: list[bytes] = []
        for wrapper in self.stored:
            source = sources.get(wrapper.name, wrapper.source)
            is_plain = find_header(source) is None
            if not is_plain:
                with_probes.append(source)
            if source == wrapper.source:
                continue
            for place in wrapper.stored.places:
                texts[place.source] = source
                texts[place.key] = wrapper.original_key if is_plain else key_of(source)
        for start, key in self.contents.entry_keys:
            texts[start] = _entry_key(key, with_probes)
        return self.contents.splice(texts)


def _entry_key(key: str, with_probes: Sequence[bytes]) -> str:
    """The key of an entry: with probes, the original key with a suffix that no cache has."""
    original = key.partition(_TAG)[0]
    if not with_probes:
        return original
    digest = hashlib.sha256(b"".join(hashlib.sha256(source).digest() for source in with_probes))
    return original + _TAG + digest.hexdigest()[:16]


def key_of(source: bytes) -> str:
    """The key of a source, as torch names its file (torch/_inductor/codecache.py)."""
    digest = base64.b32encode(hashlib.sha256(source).digest())[:51]
    return "c" + digest.decode().lower()


def open_container(path: Path) -> Container | None:
    """Open a file that contains wrappers as text; `None` if a file has another form.

    Raises `RewriterError` if it is damaged, has no wrapper, or would run commands when it is
    loaded.
    """
    if not _may_be(read_head(path)):
        return None
    return container_in(path, read(path, limits.PICKLE_BYTES))


def read_contents(data: bytes) -> Contents | None:
    """The parts of a container; `None` if the bytes have another form."""
    return next(filter(None, (form(data) for form in _FORMS)), None)


def container_in(path: Path, data: bytes) -> Container | None:
    """As `open_container`, for the bytes of a file."""
    try:
        contents = read_contents(data)
        if contents is None:
            return None
        require_harmless(contents)
        found = list(_found(contents))
    except RewriterError as error:
        raise RewriterError(
            error.slug, f"{path}: {error.message}", hint=error.hint, code=error.code
        ) from error
    if not found:
        raise _without_wrappers(path, contents)
    wrappers = tuple(_named(path, _in_one(found)))
    return Container(path, wrappers, form=contents.form, contents=contents, stored=wrappers)


def _may_be(head: bytes) -> bool:
    """Whether a file may have one of the forms, by its first bytes.

    They are those of a pickle, the magic of a saved function, or the start of a list of items: a
    checksum, and then a version or the length of a header.
    """
    is_items = len(head) >= 12 and not any(head[4:11]) and head[11] in (1, 19, 21, 32)
    return pickle_reader.begins(head) or head.startswith(aot_compile.MAGIC) or is_items


@dataclass(frozen=True)
class _Found:
    """A wrapper at one place in a container."""

    section: Section
    folder: str
    key: str
    source: bytes
    language: Language
    place: Place

    @property
    def graph(self) -> GraphKind:
        return graph_of(self.source)


def _found(contents: Contents) -> Iterator[_Found]:
    """Yield the wrappers at every place, section by section."""
    seen: set[int] = set()
    for section in contents.sections:
        number = -1
        for pickle in section.pickle.walk():
            for key, source in _pairs(pickle):
                if source.start in seen:
                    continue
                seen.add(source.start)
                text = pickle.raw(source)
                language = recognise(_SUFFIX, text)
                if language is None:
                    continue
                if number < 0 or graph_of(text) != "backward":
                    number += 1  # a backward has the number of its forward
                folder = section.folder or f"graph_{number}"
                place = Place(key.start, source.start)
                yield _Found(section, folder, pickle.text(key), text, language, place)


def _pairs(pickle: Pickle) -> Iterator[tuple[Text, Text]]:
    """Yield the key and the source of each compiled graph: two strings of one object's state."""
    for dictionary in pickle.dictionaries:
        items = {pickle.raw(name): value for name, value in dictionary.items}
        key, source = items.get(_KEY), items.get(_SOURCE)
        if isinstance(key, Text) and isinstance(source, Text):
            yield key, source


def _in_one(found: list[_Found]) -> list[tuple[_Found, Stored]]:
    """Each wrapper once, with all of its places."""
    groups: dict[tuple[str, bytes], list[_Found]] = {}
    for wrapper in found:
        groups.setdefault((wrapper.key, wrapper.source), []).append(wrapper)
    return [
        (
            group[0],
            Stored(
                group[0].key,
                tuple(x.place for x in group),
                tuple(dict.fromkeys(name for x in group for name in x.section.submodules)),
                tuple(dict.fromkeys(name for x in group for name in x.section.layers)),
            ),
        )
        for group in groups.values()
    ]


def _named(path: Path, stored: list[tuple[_Found, Stored]]) -> Iterator[Wrapper]:
    """Yield the wrappers, named by graph; in folders if there are several graphs."""
    is_alone = len({found.folder for found, _ in stored}) == 1
    taken: Counter[str] = Counter()
    for found, where in stored:
        stem = found.graph if is_alone and not where.submodules else f"{found.folder}/{found.graph}"
        name = numbered(stem, taken) + _SUFFIX
        check_text(f"{path}: {name}", found.source)
        # Programs that run it print and record the last part of its path.
        place = path / name.replace("/", "-")
        yield Wrapper(name, found.source, found.language, place, inside=path, stored=where)


def _without_wrappers(path: Path, contents: Contents) -> RewriterError:
    hint = "Expected what torch saves of a compiled model: see docs/topics/containers.md."
    also = ""
    if contents.refers_to:
        folders = (f"fxgraph/{key[1:3]}/{key}" for key in contents.refers_to)
        also = f"; it names entries of Inductor's cache: {', '.join(folders)}"
        hint = "Name one of those: they are files in these folders of the same cache."
    return RewriterError(
        "no-artifacts",
        f"no wrapper of Inductor's in {path}, {contents.form.description}{also}",
        hint=hint,
    )
