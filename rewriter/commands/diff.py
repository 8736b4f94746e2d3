"""`rewriter diff`: what differs between two artifacts, launch by launch."""

from __future__ import annotations

from collections.abc import Iterator

from rewriter.commands._click import argument, command
from rewriter.commands._options import OUTPUT, JsonOption, ModelOption
from rewriter.commands._output import emit
from rewriter.comparison.artifacts.types import Difference
from rewriter.core import text_diff
from rewriter.core.errors import DIFFERS, OK
from rewriter.core.terminal import say, say_text


class Arguments(JsonOption, ModelOption):
    a: str = argument("A", "a wrapper, a .pt2 package, or a directory")
    b: str = argument("B", "another of the same kind")
    unified: bool = OUTPUT.flag(
        "-u, --unified", "also show a unified diff of the sources, without probes"
    )
    all: bool = OUTPUT.flag("--all", "show every change, however many")


@command(
    Arguments,
    ("is it the same without its probes?", "rewriter diff output_code.py probed.py"),
    ("with the sources", "rewriter diff -u old_code.py output_code.py"),
    ("what another torch makes of a program", "rewriter diff old_debug torch_compile_debug"),
)
def act(arguments: Arguments) -> int:
    from rewriter.commands._diff_text import lines
    from rewriter.comparison.artifacts.compare import diff

    difference = diff(arguments.a, arguments.b, models=arguments.models)
    if arguments.json:
        from msgspec import UNSET

        from rewriter.commands._documents.diff import DiffDocument

        text = "".join(_unified(difference)) if arguments.unified else UNSET
        emit(DiffDocument(difference=difference, unified=text))
    else:
        say(*lines(difference, everything=arguments.all))
        if arguments.unified:
            say_text("".join(_unified(difference)), text_diff.style)
    return DIFFERS if difference.verdict in ("unverified", "different") else OK


def _unified(difference: Difference) -> Iterator[str]:
    """The texts of wrappers without probes, and of kernels that stand elsewhere."""
    for wrapper in difference.wrappers:
        if wrapper.verdict == "different":
            a, b = (data.decode("utf-8", "replace") for data in (wrapper.plain_a, wrapper.plain_b))
            yield text_diff.unified(a, b, f"a/{wrapper.name_a}", f"b/{wrapper.name_b}")
            for kernel in wrapper.kernels:
                if kernel.apart:
                    yield kernel.diff
