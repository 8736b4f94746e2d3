"""Finds the wrappers of a directory: files, and what stands in logs and in pages made from them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rewriter.artifact.recognise import SUFFIXES, read, unsupported
from rewriter.artifact.trace import log as trace_log
from rewriter.artifact.trace import page as trace_page
from rewriter.artifact.trace.types import TracedSource
from rewriter.artifact.types import Artifact, OpenWrapper
from rewriter.artifact.wrapper_files import wrapper_in
from rewriter.core import limits
from rewriter.core.errors import RewriterError
from rewriter.core.transaction import is_scratch
from rewriter.locate.languages import recognise
from rewriter.locate.types import Wrapper

_SEARCHED = (*SUFFIXES, *trace_page.SUFFIXES, trace_log.SUFFIX)

_Found = OpenWrapper | tuple[str, RewriterError]


def open_directory(path: Path) -> Artifact:
    """Open all wrappers in a directory and below. Raises `RewriterError` where there is none.

    One that cannot be read is no error of the directory's: the result names it.
    """
    found: list[_Found] = []
    unread = []
    pages, logs = [], []
    for file in sorted(file for file in path.rglob("*") if file.suffix in _SEARCHED):
        name = str(file.relative_to(path))
        if not file.is_file() or is_scratch(Path(name)):
            continue
        readable, is_page = os.access(file, os.R_OK), trace_page.is_page(file)
        if is_page and readable:
            pages.append(file)
        elif file.suffix == trace_log.SUFFIX and trace_log.is_log(file):
            logs.append(file)
        elif file.suffix == trace_log.SUFFIX and not readable:
            unread.append((name, "a log that may not be read"))
        elif is_page or file.suffix in SUFFIXES:
            try:
                data = b"PK" if file.suffix == ".pt2" else read(file)
                if what := unsupported(data):
                    unread.append((name, what))
                elif wrapper := wrapper_in(file, name, data):
                    found.append(wrapper)
            except RewriterError as error:
                found.append((name, error))
    traced = _of_pages(sorted(pages, key=trace_page.order))
    # tlparse keeps the log that it made its pages of.
    made = {trace_page.root_of(page) for page in pages}
    traced += [one for log in logs if log.parent not in made for one in trace_log.read(log)]
    # TORCH_COMPILE_DEBUG leaves a log, too, of what is there as files.
    files = {one.restored.source for one in found if isinstance(one, OpenWrapper)}
    found += _wrappers(path, [one for one in traced if one.text not in files])
    return _artifact(path, found, unread)


def open_trace(path: Path) -> Artifact | None:
    """Open a log of `TORCH_TRACE`, or a page made from one; `None` where a file is neither."""
    if trace_log.is_log(path):
        return _artifact(path, list(_wrappers(path, trace_log.read(path))), [])
    if trace_page.is_page(path):
        return _artifact(path, list(_wrappers(path, _of_pages([path]))), [])
    return None


def _of_pages(pages: list[Path]) -> list[TracedSource]:
    return [trace_page.read(page, read(page, limits.PAGE_BYTES)) for page in pages]


def _artifact(
    path: Path,
    found: list[_Found],
    unread: list[tuple[str, str]],
) -> Artifact:
    """An artifact of several wrappers, of which there has to be one at least."""
    wrappers = tuple(one for one in found if isinstance(one, OpenWrapper))
    damaged = tuple(one for one in found if not isinstance(one, OpenWrapper))
    artifact = Artifact(path, wrappers, tuple(unread), damaged=damaged)
    if not wrappers:
        artifact.require_sound()
        also = "".join(f"\n    {name}: {what}" for name, what in unread)
        raise RewriterError(
            "no-artifacts",
            f"no wrapper of Inductor's in {path}"
            + (" or below" if path.is_dir() else "")
            + (f"; not looked into:{also}" if also else ""),
            hint="Expected an output_code.py (TORCH_COMPILE_DEBUG=1 makes torch.compile leave "
            "one), the wrapper.cpp of AOTInductor, a log of TORCH_TRACE, or what tlparse makes "
            "of one.",
        )
    return artifact


def _wrappers(path: Path, sources: Sequence[TracedSource]) -> Iterator[_Found]:
    """The wrappers among what was traced, under names by compile id and graph."""
    places = _places(path, sources)
    taken: Counter[str] = Counter()
    for one in sources:
        as_file = Path(f"traced{one.suffix}")
        language = recognise(one.suffix, one.text)
        if language is None and not one.damage:
            continue  # a kernel that was compiled by itself
        wrapper = OpenWrapper(Wrapper(as_file.name, one.text, language or "python"), path)
        stem = f"{places[one.file]}{one.folder}/{wrapper.graph}"
        taken[stem] += 1
        name = (f"{stem}_{taken[stem]}" if taken[stem] > 1 else stem) + one.suffix
        if one.damage:
            yield (
                name,
                RewriterError(
                    "damaged-trace",
                    f"{one.file}: {name}: {one.damage}",
                    hint="Trace the program again.",
                ),
            )
            continue
        yield replace(
            wrapper,
            wrapper=replace(wrapper.wrapper, name=name),
            path=path / name,
            inside=one.file,
        )


def _places(path: Path, sources: Sequence[TracedSource]) -> dict[Path, str]:
    """For each log and page how names begin: with its folder, if that is not the directory.

    Where two logs are in one folder and of one rank, with the log's own name, too.
    """
    ranks = {one.file: one.rank for one in sources}
    folders = {file: _folder(path, file) for file in ranks}
    logs = Counter((folders[file], ranks[file]) for file in ranks if not trace_page.is_page(file))
    places = {}
    for file, rank in ranks.items():
        parts = list(folders[file].parts)
        if logs[folders[file], rank] > 1:
            parts.append(file.stem)
        if rank is not None:
            parts.append(f"rank_{rank}")
        places[file] = "".join(f"{part}/" for part in parts)
    return places


def _folder(path: Path, file: Path) -> Path:
    """Where a log is in a directory, or the directory that tlparse made of it."""
    folder = trace_page.root_of(file) if trace_page.is_page(file) else file.parent
    return folder.relative_to(path) if folder.is_relative_to(path) else Path()
