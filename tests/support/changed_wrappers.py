"""Changes of the text of a wrapper: functions from one text to another."""

from __future__ import annotations

from collections.abc import Callable

Change = Callable[[str], str]


def line_with(text: str, part: str) -> str:
    return next(line for line in text.splitlines(keepends=True) if part in line)


def without(part: str) -> Change:
    """The first line with `part` is taken out."""
    return lambda text: text.replace(line_with(text, part), "", 1)


def instead(old: str, new: str) -> Change:
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return change


def behind(part: str, *lines: str) -> Change:
    """Lines behind the one with `part`, indented as that is."""
    return lambda text: _beside(text, part, "{line}{new}", lines)


def above(part: str, *lines: str) -> Change:
    return lambda text: _beside(text, part, "{new}{line}", lines)


def _beside(text: str, part: str, order: str, lines: tuple[str, ...]) -> str:
    line = line_with(text, part)
    indent = line[: len(line) - len(line.lstrip())]
    new = "".join(f"{indent}{one}\n" for one in lines)
    return text.replace(line, order.format(line=line, new=new), 1)


def then(*changes: Change) -> Change:
    """One change after the other."""

    def change(text: str) -> str:
        for one in changes:
            text = one(text)
        return text

    return change
