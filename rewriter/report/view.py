"""A dump in a notebook, as its page, or as a table: `rewriter.page` and `rewriter.table`."""

from __future__ import annotations

import html
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rewriter.dump.reading import Dump, open_dump
from rewriter.report import model
from rewriter.report import table as rows
from rewriter.report.page import page as page_of

if TYPE_CHECKING:
    import pyarrow


class _HasPath(Protocol):
    """What has a dump, such as what `rewriter.probing` yields."""

    @property
    def path(self) -> str | os.PathLike[str]: ...


@dataclass(frozen=True)
class Page:
    """The page of a dump. A notebook shows it; `html` is the same as a file."""

    html: str

    def _repr_html_(self) -> str:
        style = "width:100%;height:85vh;border:0"
        return f'<iframe srcdoc="{html.escape(self.html)}" style="{style}"></iframe>'


def page(dump: str | os.PathLike[str] | _HasPath) -> Page:
    """The page of a dump, as `rewriter report` writes it. Raises `RewriterError` without one."""
    return Page(page_of(model.report(_opened(dump))))


def table(dump: str | os.PathLike[str] | _HasPath) -> pyarrow.Table:
    """A row for each value of each launch of a dump; `.to_pandas()` makes a data frame of it.

    Raises `RewriterError` without a dump or without pyarrow.
    """
    opened = _opened(dump)
    return rows.table(opened, opened.runs)


def _opened(dump: str | os.PathLike[str] | _HasPath) -> Dump:
    return open_dump(Path(dump if isinstance(dump, str | os.PathLike) else dump.path))
