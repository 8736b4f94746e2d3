"""The wrappers in a directory: in files of their own, in logs, and in pages made from logs."""

from __future__ import annotations

import os
from pathlib import Path

from rewriter.artifact import traces
from rewriter.artifact.gathered import Gathered, Opened, gather
from rewriter.artifact.recognise import SUFFIXES, other_form, read
from rewriter.artifact.trace import log, page
from rewriter.artifact.types import Wrapper
from rewriter.artifact.wrapper_file import read_wrapper
from rewriter.core.errors import RewriterError
from rewriter.core.transaction import is_scratch

_SEARCHED = (*SUFFIXES, *traces.SUFFIXES)


def open_directory(path: Path) -> Gathered:
    """Open all wrappers in a directory tree.

    A wrapper that cannot be read is listed in the result. Raises `RewriterError` if there is no
    wrapper.
    """
    return gather(path, *read_directory(path))


def read_directory(path: Path) -> tuple[list[Opened], list[tuple[str, str]]]:
    """The wrappers in a directory tree, and the files that were not read."""
    opened: list[Opened] = []
    unread: list[tuple[str, str]] = []
    pages, logs = [], []
    for file in sorted(file for file in path.rglob("*") if file.suffix in _SEARCHED):
        name = str(file.relative_to(path))
        if not file.is_file() or is_scratch(Path(name)):
            continue
        readable, is_page = os.access(file, os.R_OK), page.is_page(file)
        if is_page and readable:
            pages.append(file)
        elif file.suffix == log.SUFFIX and log.is_log(file):
            logs.append(file)
        elif file.suffix == log.SUFFIX and not readable:
            unread.append((name, "a log that may not be read"))
        elif is_page or file.suffix in SUFFIXES:
            try:
                if what := other_form(file):
                    unread.append((name, what))
                elif wrapper := read_wrapper(file, name, read(file)):
                    opened.append(wrapper)
            except RewriterError as error:
                opened.append((name, error))
    traced = [*traces.read_pages(pages), *traces.read_logs(logs, pages)]
    # TORCH_COMPILE_DEBUG also writes a log, with the same sources as the files.
    files = {wrapper.restored.source for wrapper in opened if isinstance(wrapper, Wrapper)}
    opened += traces.wrappers(path, [source for source in traced if source.text not in files])
    return opened, unread
