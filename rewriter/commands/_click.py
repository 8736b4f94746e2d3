"""Commands by click: a typed value from the options, help in sections, errors that say what was
meant, and a group that imports a command when it is used."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from rewriter.core.errors import BAD_INPUT, RewriterError
from rewriter.core.terminal import message

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_ALIKE = 0.7  # from which on a word is taken for a misspelt one; --json is no --on
_COLUMN = 22  # the width of the first column of a help
_OLD_NAMES = {"wrappers": "wrapper"}  # of options, which still do
_FILES = ("A", "ARTIFACT", "B", "DUMP_A", "DUMP_B", "OUT")  # and all with FILE or DUMP


def refused(
    ctx: click.Context, what: str, word: str = "", known: Iterable[str] = ()
) -> RewriterError:
    """The error about a command line, below its usage; `word` may be a misspelt one of `known`."""
    from difflib import get_close_matches

    # Without the dashes, which would make all options alike.
    names = {name.lstrip("-"): name for name in known}
    near = get_close_matches(word.lstrip("-"), names, n=1, cutoff=_ALIKE)
    guess = f"Did you mean {names[near[0]]}? " if near else ""
    return _usage_error(ctx, what, f"{guess}`{ctx.command_path} --help` shows what there is.")


def _usage_error(ctx: click.Context, what: str, hint: str) -> RewriterError:
    message(ctx.get_usage())
    _, _, command = ctx.command_path.partition(" ")
    return RewriterError("usage", f"{command}: {what}" if command else what, hint=hint)


class Section:
    """The options below one title of a help. Its methods, and `argument`, make the fields of a
    dataclass that are read from the command line."""

    def __init__(self, title: str) -> None:
        self._title = title

    def option(self, shown: str, help: str, *, default: Any = None, **settings: Any) -> Any:
        """An option as its help shows it, such as `-o, --output OUT`; the settings are click's."""
        words = shown.split(" ")
        names = [word.rstrip(",") for word in words if word.startswith("-")]
        settings |= {"section": self._title, "help": help}
        if len(names) < len(words):
            settings["metavar"] = words[-1]
        if settings.get("multiple"):
            default = () if "callback" not in settings else default
        elif default is not None:  # since click 8.3, None is a value, also of a required option
            settings["default"] = default
        written = next((name for name in names if name.startswith("--")), names[0])
        return _field(lambda name: Option([*names, name], **settings), default, written)

    def flag(self, shown: str, help: str, **settings: Any) -> Any:
        return self.option(shown, help, default=False, is_flag=True, **settings)


def argument(metavar: str, help: str = "", **settings: Any) -> Any:
    """A positional argument; one in brackets may be left out."""
    settings = {"required": not metavar.startswith("["), **settings, "metavar": metavar}
    default = () if settings.get("nargs") == -1 else None
    written = metavar.strip("[]")
    return _field(lambda name: Argument([name], help=help, **settings), default, written)


def _field(make: Callable[[str], click.Parameter], default: Any, written: str) -> Any:
    """A field that `make` makes a parameter of, which messages call as it is `written`."""
    from dataclasses import field

    return field(default=default, metadata={"make": make, "written": written})


class Choice(click.Choice):  # type: ignore[type-arg]  # generic since click 8.2
    """One of some words, of which the error names the nearest."""

    def normalize_choice(self, choice: object, ctx: click.Context | None) -> str:
        """The word itself: what completes the names of options is not for values."""
        return str(choice)

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if value in self.choices:
            return value
        named = param.metavar if isinstance(param, Argument) else "/".join(param.opts)
        what = f"{named} {value!r}: expected one of {', '.join(self.choices)}"
        raise refused(ctx, what, value, self.choices)


class _Parameter(click.Parameter):
    section: str

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Files and directories where the name of the value says so."""
        name = (self.metavar or "").strip("[]")
        if name == "DIR" or name in _FILES or "FILE" in name or "DUMP" in name:
            from click.shell_completion import CompletionItem

            return [CompletionItem(incomplete, type="dir" if name == "DIR" else "file")]
        return super().shell_complete(ctx, incomplete)


class Option(_Parameter, click.Option):
    """An option of a section. It may not be given with the one whose field is `apart`."""

    def __init__(self, *args: Any, section: str, apart: str = "", **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.section, self.apart = section, apart
        self.needs_value = not self.is_flag and "flag_value" not in settings


class Argument(_Parameter, click.Argument):
    """A positional argument with a help; `usage` is what stands for it in the line of usage."""

    section = "positional arguments"

    def __init__(self, *args: Any, help: str = "", usage: str = "", **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.help, self.usage = help, usage

    def get_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [self.usage or str(self.metavar)]

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        return str(self.metavar).strip("[]"), self.help or ""


class _Documented(click.Command):
    """What commands and groups share: their help, and their errors."""

    examples: Sequence[tuple[str, str]] = ()
    more = ""  # what the help ends in

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name, known = error.option_name, self.options(ctx)
            if begun := [x for x in known if x.startswith(name)]:
                raise refused(ctx, f"{name} could be {', '.join(sorted(begun))}") from None
            raise refused(ctx, f"there is no option {name}", name, known) from None
        except click.MissingParameter as error:
            one = error.param
            named = getattr(one, "metavar", "")
            what = f"option {one.opts[0]}" if isinstance(one, Option) else f"argument {named!r}"
            raise refused(ctx, f"missing {what}") from None
        except click.UsageError as error:
            what = error.format_message().replace("\n", r"\n")
            raise refused(ctx, what[0].lower() + what[1:].rstrip(".")) from None

    def options(self, ctx: click.Context) -> list[str]:
        """The names of all options."""
        return [x for param in self.get_params(ctx) for x in param.opts if x.startswith("-")]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """With help of one line: click's script for zsh counts lines."""
        found = super().shell_complete(ctx, incomplete)
        for item in found:
            item.help = item.help and item.help.partition("\n")[0]
        return found

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One line: the options are listed below."""
        words = ["usage:", ctx.command_path, *self.collect_usage_pieces(ctx)]
        formatter.write(f"{' '.join(words)}\n")

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_usage(ctx, formatter)
        formatter.write(f"\n{self.help}\n")
        sections: dict[str, list[tuple[str, str]]] = {"positional arguments": [], "options": []}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                sections.setdefault(getattr(parameter, "section", "options"), []).append(record)
        if isinstance(self, Group):
            sections[self.title] = list(self.summaries.items())
        for title, rows in sorted(sections.items(), key=lambda x: x[0] == "output"):
            if rows:
                with formatter.section(title):
                    width = formatter.width - _COLUMN - 4
                    formatter.write_dl([(name, _lines(x, width)) for name, x in rows], _COLUMN)
        for what, command in self.examples:
            head = "" if (what, command) != self.examples[0] else "\nexamples:\n"
            formatter.write(f"{head}  # {what}\n  {command}\n")
        formatter.write(self.more)


def _lines(text: str, width: int) -> str:
    """A help with lines of its own, in click's form for text that is not to be wrapped."""
    if "\n" not in text:
        return text
    from textwrap import wrap

    lines: list[str] = []
    for line in text.split("\n"):
        lines += wrap(line, width, subsequent_indent="  " * bool(lines))
    return "\n".join(["\b", *lines])


class Command(_Documented):
    """A command whose options are the fields of a dataclass, of which it gets a value."""

    def __init__(
        self, act: Callable[[Any], int], given: type[Any], examples: Sequence[tuple[str, str]]
    ) -> None:
        from dataclasses import fields

        super().__init__(
            None,
            params=[x.metadata["make"](x.name) for x in fields(given) if x.metadata],
            options_metavar="[options]",
            context_settings={**_SETTINGS, "token_normalize_func": self._in_full},
        )
        self.act, self.given, self.examples = act, given, examples
        self._takes_programs = any(field.name == "program" for field in fields(given))

    def _in_full(self, name: str) -> str:
        """The name of an option, from its beginning if no other begins so."""
        name = _OLD_NAMES.get(name, name)
        names = {x.removeprefix("--") for param in self.params for x in param.opts if x[:2] == "--"}
        names.add("help")
        begun = [x for x in names if x.startswith(name)]
        return begun[0] if len(begun) == 1 and len(name) > 1 and name not in names else name

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if self._takes_programs and "--" in args:
            at = args.index("--")
            args, ctx.params["program"] = args[:at], tuple(args[at + 1 :])
        self._require_values(ctx, args)
        rest = super().parse_args(ctx, args)
        typed = click.core.ParameterSource.COMMANDLINE
        given = {x.name: x for x in self.params if ctx.get_parameter_source(x.name or "") is typed}
        for parameter in given.values():
            other = given.get(getattr(parameter, "apart", ""))
            if other is not None and not ctx.resilient_parsing:
                raise refused(ctx, f"{parameter.opts[0]} and {other.opts[0]} exclude each other")
        return rest

    def _require_values(self, ctx: click.Context, args: Sequence[str]) -> None:
        """An option behind one that takes a value is no value: click would take it for one."""
        known = {*self.options(ctx)}
        takes = {
            name
            for param in self.params
            if isinstance(param, Option) and param.needs_value
            for name in param.opts
        }
        for word, behind in pairwise(args):
            name = f"--{self._in_full(word[2:])}" if word.startswith("--") else word
            if name in takes and behind.partition("=")[0] in known and not ctx.resilient_parsing:
                raise refused(ctx, f"{word} takes a value, and {behind} is an option")

    def arguments(self, ctx: click.Context) -> Any:
        """The value for a command line that was parsed."""
        return self.given(words=ctx.find_root().obj, **ctx.params)

    def invoke(self, ctx: click.Context) -> int:
        return self.act(self.arguments(ctx))


def command(given: type[Any], *examples: tuple[str, str]) -> Callable[..., Command]:
    """Makes a command of a function that takes a value of this type, and returns an exit code."""
    return lambda act: Command(act, given, examples)


def later(module: str, arguments: object, act: str = "act") -> int:
    """Has another module act: one that is slow to import, and that imports the type of
    `arguments` from the module of the command."""
    code: int = getattr(import_module(f"rewriter.commands.{module}"), act)(arguments)
    return code


class Group(_Documented, click.Group):
    """Several commands, of which the list of them imports none."""

    def __init__(
        self, title: str, summaries: Mapping[str, str], load: Callable[[str], click.Command]
    ) -> None:
        super().__init__(
            options_metavar="[options]",
            subcommand_metavar=f"{title.removesuffix('s').upper()} ...",
            no_args_is_help=False,
            context_settings=_SETTINGS,
        )
        self.title, self.summaries, self.load = title, summaries, load
        self.gone: Mapping[str, str] = {}  # commands of earlier versions, and what to write instead

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command as lists of them need it: its name and its summary."""
        summary = self.summaries.get(cmd_name)
        return None if summary is None else click.Command(cmd_name, help=summary)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if set(args) <= {"--"} and not ctx.resilient_parsing:
            # Without a command, the help is an error message, as in ruff, uv and click.
            click.echo(ctx.get_help(), err=True)
            ctx.exit(BAD_INPUT)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, *rest = args
        if name in self.summaries:
            command, summary = self.load(name), self.summaries[name]
            command.help = f"{summary[0].upper()}{summary[1:]}."
            return name, command, rest
        if ctx.resilient_parsing:
            return name, None, rest
        if name in self.gone:
            raise _usage_error(ctx, f"{name!r} is no command any more", self.gone[name])
        if os.path.exists(name):
            hint = f"It is a file. Did you mean `{ctx.command_path} list {name}`?"
            raise _usage_error(ctx, f"{name!r} is no command", hint)
        raise refused(ctx, f"{name!r} is no command", name, self.summaries)
