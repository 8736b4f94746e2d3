"""Opens a container: its wrappers, under names by graph. Executes and unpickles nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rewriter.artifact.containers import aot_compile, cache_entry, mega_cache, standalone
from rewriter.artifact.containers.safety import require_harmless
from rewriter.artifact.containers.types import Container, Contents, Place, Section, Stored
from rewriter.artifact.graph_kind import GraphKind, graph_of
from rewriter.artifact.recognise import read, read_head
from rewriter.artifact.types import Artifact, Wrapper
from rewriter.core import limits, pickle_reader
from rewriter.core.errors import RewriterError
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


def open_container(path: Path) -> Artifact | None:
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


def container_in(path: Path, data: bytes) -> Artifact | None:
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
    return Artifact(path, wrappers, container=Container(path, contents), stored=wrappers)


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
    for one in found:
        groups.setdefault((one.key, one.source), []).append(one)
    return [
        (
            group[0],
            Stored(
                group[0].key,
                tuple(one.place for one in group),
                tuple(dict.fromkeys(name for one in group for name in one.section.submodules)),
                tuple(dict.fromkeys(name for one in group for name in one.section.layers)),
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
        taken[stem] += 1
        name = (f"{stem}_{taken[stem]}" if taken[stem] > 1 else stem) + _SUFFIX
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
