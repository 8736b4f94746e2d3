"""`rewriter diff`: what differs between two artifacts, launch by launch."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator

from rewriter import textdiff
from rewriter.commands._common import add_model_option, emit_json, printable
from rewriter.commands._parser import Parser
from rewriter.difference.types import Difference
from rewriter.errors import DIFFERS, OK


def add(parser: Parser) -> None:
    parser.add_argument("a", metavar="A", help="a wrapper, a .pt2 package, or a directory")
    parser.add_argument("b", metavar="B", help="another of the same kind")
    add_model_option(parser)
    group = parser.group("output")
    group.add_argument(
        "-u",
        "--unified",
        action="store_true",
        help="the differences of the texts, too, without probes",
    )
    group.add_argument("--all", action="store_true", help="show every change, however many")
    group.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_examples(
        ("is it the same without its probes?", "rewriter diff output_code.py probed.py"),
        ("with the sources", "rewriter diff -u old_code.py output_code.py"),
        ("what another torch makes of a program", "rewriter diff old_debug torch_compile_debug"),
    )
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    from rewriter.difference.compare import diff
    from rewriter.difference.text import lines, to_json

    found = diff(arguments.a, arguments.b, models=arguments.models)
    if arguments.json:
        content = to_json(found)
        if arguments.unified:
            content["unified"] = "".join(_unified(found))
        emit_json("diff", content)
    else:
        _print(
            (printable(line.text), line.style) for line in lines(found, everything=arguments.all)
        )
        if arguments.unified:
            text = "".join(_unified(found))
            # For `patch`, the texts are as they are.
            written = printable if sys.stdout.isatty() else str
            _print((written(line), _style(line)) for line in text.split("\n")[:-1])
    return DIFFERS if found.verdict == "different" else OK


def _unified(found: Difference) -> Iterator[str]:
    """The texts of wrappers without probes, and of kernels that stand elsewhere."""
    for wrapper in found.wrappers:
        if wrapper.verdict == "different":
            a, b = (data.decode("utf-8", "replace") for data in (wrapper.plain_a, wrapper.plain_b))
            yield textdiff.unified(a, b, f"a/{wrapper.name_a}", f"b/{wrapper.name_b}")
            for kernel in wrapper.kernels:
                if kernel.apart:
                    yield kernel.diff


def _style(line: str) -> str:
    if line.startswith(("--- ", "+++ ")):
        return "bold"
    return {"-": "red", "+": "green", "@": "cyan"}.get(line[:1], "")


def _print(lines: Iterable[tuple[str, str]]) -> None:
    """Print lines, with colours where a terminal shows them."""
    if not sys.stdout.isatty():
        for text, _ in lines:
            print(text)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)  # heeds NO_COLOR
    for text, style in lines:
        console.print(Text(text, style))
