"""The one way to print text: every line that a command shows is written here.

Names of kernels, models and files, metadata, recorded commands and compiler messages come from
artifacts, which anybody may have made. Characters that control a terminal (escape sequences,
control characters, writing directions, a line break in a name) are written as escapes, so that
callers need not care. The bytes of `-o -` are not written here; `--json` is, and is ASCII.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Literal, TextIO

# A line is text in one style, or parts with a style each. A style is "" or words of _STYLES.
Part = tuple[str, str]
Line = str | Sequence[Part]
StyleOf = Callable[[int, int, str], str]

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_LEAST = 8  # the least width of a column, however narrow the terminal is


def say(*lines: Line, style: str = "") -> None:
    """Print lines of a result on standard output. Each argument is one line, whatever is in it."""
    _write(sys.stdout, lines, style)


def message(*lines: Line, style: str = "") -> None:
    """Print a message to the user on standard error, one line per argument."""
    _write(sys.stderr, lines, style)


def say_text(text: str, style: Callable[[str], str] = lambda line: "") -> None:
    """Print the text of files, such as a difference, on standard output.

    A pipe gets it unchanged, for `patch`. On a terminal, control characters other than tabs are
    escaped.
    """
    if is_terminal(sys.stdout) or _coloured(sys.stdout):
        keeps = text.split("\n")
        for line in keeps[:-1] if keeps[-1] == "" else keeps:
            sys.stdout.write(_painted(escape(line, keep="\t"), style(line), sys.stdout) + "\n")
    else:
        sys.stdout.write(text)


def passing(line: str) -> None:
    """Show a line on the terminal that is standard error, until the next one, or a message, takes
    its place."""
    sys.stderr.write(f"{line}\x1b[K\r")
    sys.stderr.flush()


def escape(text: str, keep: str = "") -> str:
    """One line in which characters that control a terminal are escaped as in Python: `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode()
        for char in text
    )


def table(
    rows: Sequence[Sequence[str]], style: StyleOf | None = None, *, stream: str = "stdout"
) -> list[list[Part]]:
    """Columns aligned by spaces, as lines for `say`, or for `message` with `stream="stderr"`.

    The first row is the header. `style` returns the style of a cell from its row, column and text.
    On a terminal the widest columns are truncated to fit; elsewhere all text is kept.
    """
    cells = [[escape(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    if is_terminal(getattr(sys, stream)):
        widths = _narrowed(widths, shutil.get_terminal_size().columns)
    lines: list[list[Part]] = []
    for number, row in enumerate(cells):
        line: list[Part] = []
        last = max((at for at, cell in enumerate(row) if cell), default=-1)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
            shown = cell if len(cell) <= width else cell[: width - 1] + "…"
            line.append((shown, style(number, column, cell) if style else ""))
            if column >= last:
                break
            line.append((" " * (width - len(shown) + 2), ""))
        lines.append(line)
    return lines


def plain(line: Line) -> str:
    """The text of a line without its styles."""
    return line if isinstance(line, str) else "".join(text for text, _ in line)


def is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # it is closed
        return False


def level_style(level: Literal["error", "warning", "good"]) -> str:
    """The style for an error, a warning, or a good result."""
    return {"error": "bold red", "warning": "yellow", "good": "green"}[level]


def _write(stream: TextIO, lines: Sequence[Line], style: str) -> None:
    """Write lines in one piece, so that output of other threads and processes is not in between."""
    shown: list[str] = []
    for line in lines or ("",):
        if isinstance(line, str):
            line = ((line, style or _style_of(line)),)
        shown.append("".join(_painted(escape(text), kind, stream) for text, kind in line) + "\n")
    stream.write("".join(shown))


def _style_of(line: str) -> str:
    """A style that makes errors and warnings stand out."""
    if line.startswith("rewriter: error["):
        return level_style("error")
    return level_style("warning") if line.startswith("warning: ") else ""


def _painted(text: str, style: str, stream: TextIO) -> str:
    if not style or not text or not _coloured(stream):
        return text
    return f"\x1b[{';'.join(_STYLES[word] for word in style.split())}m{text}\x1b[0m"


def _coloured(stream: TextIO) -> bool:
    """Whether a stream gets colours: https://no-color.org, https://force-color.org."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return is_terminal(stream) and os.environ.get("TERM") != "dumb"


def _narrowed(widths: list[int], limit: int) -> list[int]:
    """Widths that fit, if possible: the widest columns are reduced to equal widths."""
    widths = list(widths)
    excess = sum(widths) + 2 * (len(widths) - 1) - limit
    while excess > 0 and (most := max(widths)) > _LEAST:
        widest = [column for column, width in enumerate(widths) if width == most]
        below = max([_LEAST, *(width for width in widths if width < most)])
        step = max(1, min(most - below, -(-excess // len(widest))))
        for column in widest:
            cut = min(step, excess)
            widths[column] -= cut
            excess -= cut
            if excess <= 0:
                break
    return widths
