"""The options that several commands share: of each command's value, the classes that it is made of.
Importing them imports nothing heavy."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, get_args

import click

from rewriter.commands._click import Section, argument, refused
from rewriter.core.errors import RewriterError
from rewriter.core.types import ArgsMode

if TYPE_CHECKING:
    from typing import dataclass_transform
else:  # part of typing since Python 3.11

    def dataclass_transform(**_):
        return lambda cls: cls


ARTIFACT = "a wrapper, a .pt2 package, or a directory or log that holds several"
WHICH: tuple[ArgsMode, ...] = get_args(ArgsMode)
ARGS = (
    "which arguments print, hash and save read: written (what launches write, after them, and the "
    "inputs of each call; default), all (all arguments, before and after launches) or ends (each "
    "value where it is written and where it is last read)"
)
INPUTS = (
    "inputs: a list saved by torch.save, for a package also a dict of keyword arguments (default: "
    "the wrapper's own get_args())"
)
OUTPUT, PROBES, RUN = Section("output"), Section("probes"), Section("the run")
_WHICH = Section("which wrappers")


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Value:
    """Its subclasses are frozen dataclasses, all of whose fields are named."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)


class Arguments(Value):
    """What a command is given; `words` are those of its command line."""

    words: tuple[str, ...] = ()

    @property
    def command_line(self) -> str:
        return shlex.join(["rewriter", *self.words])


class JsonOption(Arguments):
    json: bool = OUTPUT.flag("--json", "print one JSON object")


class ModelOption(Arguments):
    """The choice among the models of a package."""

    models: tuple[str, ...] = _WHICH.option(
        "--model NAME",
        "in a package, only this model (may be repeated; default: all)",
        multiple=True,
    )


def wrapper_option(of_a_program: str = "") -> Any:
    return _WHICH.option(
        "--wrapper GLOB",
        "in a directory or log, only wrappers of this name, or of this kind of graph: "
        f"forward, backward, inference{of_a_program} (may be repeated; default: all)",
        multiple=True,
    )


class WrapperOption(Arguments):
    """The choice among the wrappers of a directory or a log."""

    wrappers: tuple[str, ...] = wrapper_option()


class WhichOptions(JsonOption, ModelOption, WrapperOption):
    """The choice among what an artifact holds."""


class OutputOptions(JsonOption, WrapperOption):
    """Of a command that writes a changed artifact."""

    output: str | None = None
    in_place: bool = OUTPUT.flag(
        "--in-place", "replace the file, and keep the original beside it as *.orig", apart="output"
    )
    diff: bool = OUTPUT.flag("--diff", "print what changes instead of writing")
    check: bool = OUTPUT.flag("--check", "write nothing; exit 1 if something would change")
    overwrite: bool = OUTPUT.flag("--overwrite", "replace an existing output")


def output_option(default: str) -> Any:
    what = f"file to write, - for standard output (default: {default})"
    return OUTPUT.option("-o, --output OUT", what)


def time_limit(text: str) -> float:
    """Parse a number of seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise click.BadParameter(f"{text!r}: expected a number of seconds above 0")
    return seconds


class RunOptions(WhichOptions):
    """How an artifact or a program is run, and its dump. `program` are the words behind `--`."""

    artifact: tuple[str, ...] = ()
    program: tuple[str, ...] | None = None
    wrappers: tuple[str, ...] = wrapper_option("; for a program only a name, such as 'c24mei*'")
    args: str | None = RUN.option("--args FILE.pt", INPUTS)
    constants: str | None = RUN.option(
        "--constants FILE.pt",
        "a dict of the globals that Inductor's loader sets, such as _frozen_param0",
    )
    imports: tuple[str, ...] = RUN.option(
        "--import MODULE",
        "import this module or file first: it registers custom operators",
        multiple=True,
    )
    seed: int = RUN.option(
        "--seed N", "random seed of get_args() and of the run itself", type=int, default=0
    )
    timeout: float | None = RUN.option(
        "--timeout SECONDS",
        "stop the program after this time, which includes imports and compilation, and name "
        "the launch that was running",
        type=time_limit,
    )
    dump: str | None = OUTPUT.option(
        "-d, --dump DUMP",
        "directory to dump to (default: a new <stem>.dump, or <stem>.sanitize or .diagnosis; "
        "for a program cache.dump)",
    )
    overwrite: bool = OUTPUT.flag("--overwrite", "replace an existing dump")


def programs_argument(usage: str, help: str) -> Any:
    """The artifacts of a command that also takes a program behind `--`."""
    return argument("ARTIFACT", help, usage=usage, nargs=-1, required=False)


def only_artifact(arguments: RunOptions, command: str) -> str:
    """The artifact of a command that takes one, or a program behind `--`."""
    if not arguments.artifact:
        raise refused(click.get_current_context(), "missing argument 'ARTIFACT'")
    if len(arguments.artifact) > 1:
        raise RewriterError(
            "several-artifacts",
            f"{command} takes one artifact, and was given {', '.join(arguments.artifact)}",
            hint="For a program, put -- in front of its command line.",
        )
    return arguments.artifact[0]


class CheckOptions(RunOptions):
    """Of a command that runs something to check it."""

    calls: str = PROBES.option(
        "--calls N[-M][,…]", "only these calls of a wrapper, from 0", default=""
    )
    strict: bool = OUTPUT.flag(
        "--strict",
        "exit 1 also if a launch could not be checked, or an output of diagnose not compared",
    )


class TextOptions(CheckOptions):
    """Of a command that also looks at texts alone."""

    text: bool = RUN.flag(
        "--text",
        "run nothing: only what the text of the wrappers shows (in any case for parts of wrappers, "
        "and for wrappers whose device is not here)",
    )


def kernels_option(section: Section = PROBES) -> Any:
    what = "only launches of these kernels"
    return section.option("--kernels GLOB[,GLOB…]", what)


def graph_option(section: Section) -> Any:
    what = "for a package: what TORCH_COMPILE_DEBUG=1 left when it was compiled"
    return section.option("--graph PATH", what)


def options_given(arguments: Arguments, *names: str) -> list[str]:
    """The options that have other values than their defaults; `names` are those of their fields."""
    known = {field.name: field for field in fields(arguments)}
    return [
        known[name].metadata["written"]
        for name in names
        if getattr(arguments, name) != known[name].default
    ]


def refuse_options(arguments: Arguments, names: str, why: str, hint: str = "") -> None:
    """As `refuse_idle`, for those of the fields in `names` that were given."""
    refuse_idle(options_given(arguments, *names.split()), why, hint)


def refuse_idle(given: Sequence[str], why: str, hint: str = "") -> None:
    """Raise `RewriterError` if options are `given` that would change nothing; `why` is the rest of
    a sentence: `a, b given, but …`."""
    if given:
        hint = hint or f"Drop {'it' if len(given) == 1 else 'them'}."
        raise RewriterError("idle-options", f"{', '.join(given)} given, but {why}", hint=hint)
