"""The argument parser: examples in the help, and suggestions in errors."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rewriter.core.errors import BAD_INPUT, RewriterError
from rewriter.core.terminal import message

_NUMBER = re.compile(r"-\d+$|-\d*\.\d+$")  # as argparse tells numbers from options
# Commands of earlier versions, and what takes their place.
_GONE = {
    "live": "Write: rewriter run --dormant -- COMMAND",
    "attach": "Start the program with `rewriter run --dormant -- COMMAND`; then write: rewriter "
    "control PID set print --calls 3",
}
_ALIKE = 0.7  # from which on a word is taken for a misspelt one; --json is no --on


def behind_dashes(arguments: argparse.Namespace) -> tuple[str, ...] | None:
    """The words behind `--`: a program as it would be typed; `None` if there is no `--`."""
    words: tuple[str, ...] = arguments.words
    return words[words.index("--") + 1 :] if "--" in words else None


def only_artifact(arguments: argparse.Namespace, command: str) -> str:
    """The artifact of a command that takes one, or a program behind `--`."""
    given: list[str] = arguments.artifact
    if len(given) > 1:
        raise RewriterError(
            "several-artifacts",
            f"{command} takes one artifact, and was given {', '.join(given)}",
            hint="For a program, put -- in front of its command line.",
        )
    return given[0]


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Fits the names of commands into the first column, and keeps line breaks in texts."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, max_help_position=26, **options)

    def _split_lines(self, text: str, width: int) -> list[str]:
        first, *rest = text.split("\n")
        lines = super()._split_lines(first, width)
        for line in rest:
            lines += textwrap.wrap(line, width, subsequent_indent="  ")
        return lines


class Parser(argparse.ArgumentParser):
    """The parser of one command. `fill` adds its options on demand."""

    def __init__(self, *, fill: Callable[[Parser], None] | None = None, **options: Any) -> None:
        super().__init__(formatter_class=_Formatter, **options)
        self._fill = fill
        self.takes = ""  # positional arguments in the usage, if argparse cannot express them
        self.examples: tuple[tuple[str, str], ...] = ()

    def filled(self) -> Parser:
        """The same parser, with its options."""
        if self._fill is not None:
            fill, self._fill = self._fill, None
            fill(self)
        return self

    def add_examples(self, *examples: tuple[str, str]) -> None:
        """Add examples to the end of the help: a description and a command each."""
        self.examples += examples
        shown = "\n".join(f"  # {what}\n  {command}" for what, command in self.examples)
        self.epilog = f"examples:\n{shown}".replace("%", "%%")

    def group(self, title: str) -> argparse._ArgumentGroup:
        """The group of options with this title, made on demand."""
        for group in self._action_groups:
            if group.title == title:
                return group
        return self.add_argument_group(title)

    def subparsers(self) -> dict[str, Parser]:
        """The commands below this one, by name."""
        for action in self.filled()._actions:
            if isinstance(action, argparse._SubParsersAction):
                return dict(action.choices)
        return {}

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        self.filled()
        words = list(sys.argv[1:] if args is None else args)
        if not self.subparsers():
            self._refuse_unknown(words)
        elif not words:
            # Without a command, the help is an error message, as in ruff, uv and click.
            sys.stderr.write(self.format_help())
            raise SystemExit(BAD_INPUT)
        parsed, rest = super().parse_known_args(words, namespace)
        if rest:
            # Reported here, as the parent parser would show its own usage.
            self.error(f"unexpected argument {rest[0]!r}")
        return parsed, rest

    def format_usage(self) -> str:
        """One line: the options are listed below."""
        self.filled()
        if self.takes:
            return f"usage: {self.prog} [options] {self.takes}\n"
        positional = [action for action in self._actions if not action.option_strings]
        formatter = argparse.HelpFormatter(f"{self.prog} [options]", width=1000)
        formatter.add_usage(None, positional, [])
        return formatter.format_help()

    def format_help(self) -> str:
        self.usage = self.format_usage().partition(": ")[2].strip().replace("%", "%%")
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        self._refuse(message)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = list(map(str, action.choices))
        if not isinstance(action, argparse._SubParsersAction):
            named = "/".join(action.option_strings) or action.metavar
            self._refuse(f"{named} {value!r}: expected one of {', '.join(known)}", value, known)
        if self.prog == "rewriter" and value in _GONE:
            raise self._error(f"{value!r} is no command any more", _GONE[value])
        if Path(value).exists():
            hint = f"It is a file. Did you mean `{self.prog} list {value}`?"
            raise self._error(f"{value!r} is no command", hint)
        self._refuse(f"{value!r} is no command", value, known)

    def _refuse_unknown(self, words: Sequence[str]) -> None:
        """Refuse an unknown option before argparse complains about something else."""
        known = self._option_string_actions
        for word in words:
            if word == "--":
                return
            if not word.startswith("-") or word == "-" or " " in word or _NUMBER.match(word):
                continue
            name = word.partition("=")[0]
            if name.startswith("--"):
                if not any(option.startswith(name) for option in known):
                    self._refuse(f"there is no option {name}", name, known)
            elif name[:2] not in known:
                self._refuse(f"there is no option {name}", f"-{name}", known)

    def _refuse(self, what: str, word: str = "", known: Iterable[str] = ()) -> NoReturn:
        # Without the dashes, which would make all options alike.
        names = {name.lstrip("-"): name for name in known}
        near = difflib.get_close_matches(word.lstrip("-"), names, n=1, cutoff=_ALIKE)
        guess = f"Did you mean {names[near[0]]}? " if near else ""
        raise self._error(what, f"{guess}`{self.prog} --help` shows what there is.")

    def _error(self, what: str, hint: str) -> RewriterError:
        message(self.format_usage().strip())
        _, _, command = self.prog.partition(" ")
        return RewriterError("usage", f"{command}: {what}" if command else what, hint=hint)
