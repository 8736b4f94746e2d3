"""The wrappers in logs of `TORCH_TRACE`, and in the pages that tlparse makes of these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rewriter.artifact.gathered import Gathered, Opened, gather
from rewriter.artifact.graph_kind import graph_of, numbered
from rewriter.artifact.recognise import read
from rewriter.artifact.trace import log, page
from rewriter.artifact.trace.types import TracedSource
from rewriter.artifact.types import Wrapper
from rewriter.core import limits
from rewriter.core.errors import RewriterError
from rewriter.locate.languages import recognise

SUFFIXES = (*page.SUFFIXES, log.SUFFIX)


def open_trace(path: Path) -> Gathered | None:
    """Open a log, or a page made from one; `None` if a file is neither."""
    if log.is_log(path):
        return gather(path, wrappers(path, log.read(path)))
    if page.is_page(path):
        return gather(path, wrappers(path, read_pages([path])))
    return None


def read_pages(pages: Iterable[Path]) -> list[TracedSource]:
    """The sources in pages, in the order in which they were traced."""
    ordered = sorted(pages, key=page.order)
    return [page.read(path, read(path, limits.PAGE_BYTES)) for path in ordered]


def read_logs(logs: Iterable[Path], pages: Iterable[Path]) -> list[TracedSource]:
    """The sources in logs, except those in `pages`: tlparse keeps the log beside its pages."""
    made = {page.root_of(path) for path in pages}
    return [source for path in logs if path.parent not in made for source in log.read(path)]


def wrappers(path: Path, sources: Sequence[TracedSource]) -> Iterator[Opened]:
    """Yield the wrappers among traced sources, named by compile id and graph.

    `path` is the file or directory that has the logs and pages.
    """
    prefixes = _prefixes(path, sources)
    taken: Counter[str] = Counter()
    for source in sources:
        language = recognise(source.suffix, source.text)
        if language is None and not source.damage:
            continue  # a kernel that was compiled separately
        stem = f"{prefixes[source.file]}{source.folder}/{graph_of(source.text)}"
        name = numbered(stem, taken) + source.suffix
        if source.damage or language is None:
            yield (
                name,
                RewriterError(
                    "damaged-trace",
                    f"{source.file}: {name}: {source.damage}",
                    hint="Trace the program again.",
                ),
            )
            continue
        yield Wrapper(name, source.text, language, path / name, inside=source.file)


def _prefixes(path: Path, sources: Sequence[TracedSource]) -> dict[Path, str]:
    """The prefix of names for each log and page: its folder, if that is not the directory.

    If two logs of one rank are in the same folder, the prefix includes the log's name.
    """
    ranks = {source.file: source.rank for source in sources}
    folders = {file: _folder(path, file) for file in ranks}
    logs = Counter((folders[file], ranks[file]) for file in ranks if not page.is_page(file))
    prefixes = {}
    for file, rank in ranks.items():
        parts = list(folders[file].parts)
        if logs[folders[file], rank] > 1:
            parts.append(file.stem)
        if rank is not None:
            parts.append(f"rank_{rank}")
        prefixes[file] = "".join(f"{part}/" for part in parts)
    return prefixes


def _folder(path: Path, file: Path) -> Path:
    """The folder of a log in a directory, or the directory that tlparse made of it."""
    folder = page.root_of(file) if page.is_page(file) else file.parent
    return folder.relative_to(path) if folder.is_relative_to(path) else Path()
