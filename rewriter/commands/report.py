"""`rewriter report`: a dump as one HTML file that can be read anywhere."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rewriter.commands._output import emit
from rewriter.commands._parser import Parser
from rewriter.core import files
from rewriter.core.errors import DIFFERS, OK, RewriterError
from rewriter.core.terminal import level_style, message


def add(parser: Parser) -> None:
    parser.add_argument(
        "dump", metavar="DUMP", help="a dump, one rank of it (DUMP/rank1) or one run (…/run3)"
    )
    group = parser.group("what to show")
    group.add_argument(
        "--artifact",
        metavar="FILE",
        help="take the kernels' sources from here (default: the copy that the dump holds)",
    )
    group.add_argument(
        "--run",
        dest="runs",
        metavar="rankN/runN",
        action="append",
        default=[],
        help="only this run (may be repeated; default: all)",
    )
    group.add_argument(
        "--no-histograms",
        dest="histograms",
        action="store_false",
        help="do not read the saved tensors",
    )
    output = parser.group("output")
    output.add_argument(
        "-o",
        "--output",
        metavar="FILE.html",
        help="file to write, - for standard output (default: <dump>.html in the working directory)",
    )
    output.add_argument("--overwrite", action="store_true", help="replace an existing file")
    output.add_argument(
        "--json",
        action="store_true",
        help="print what the page shows as one JSON object; the page is written only with -o",
    )
    parser.add_examples(
        ("a page to open in a browser: cache.dump.html", "rewriter report cache.dump"),
        ("of one call alone", "rewriter report cache.dump --run rank0/run3 -o call.html"),
        ("exit code 1 if there is a NaN", "rewriter report cache.dump --json"),
    )
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    from rewriter.diagnosis.element import follow
    from rewriter.dump.reading import open_dump
    from rewriter.dump.where import where
    from rewriter.report import model, sources
    from rewriter.report.histogram import histogram

    to_stdout = arguments.output == "-"
    if to_stdout and arguments.json:
        raise RewriterError(
            "two-outputs",
            "-o - and --json both print to standard output",
            hint="Name a file with -o.",
        )
    dump = open_dump(arguments.dump)
    kernels = (
        sources.of_dump() if arguments.artifact is None else sources.of_artifact(arguments.artifact)
    )
    report = model.report(
        dump,
        runs=arguments.runs,
        sources=kernels,
        histogram=histogram if arguments.histograms else None,
        where=where if arguments.histograms else None,
        follow=follow if arguments.histograms else None,
    )
    if arguments.output or not arguments.json:
        from rewriter.report.page import page

        text = page(report, command=arguments.command_line).encode()
        if to_stdout:
            sys.stdout.flush()
            sys.stdout.buffer.write(text)
        else:
            output = Path(arguments.output or f"{dump.path.absolute().name}.html")
            files.write(output, text, overwrite=arguments.overwrite)
            message(f"report: {output} ({len(text) / 1e6:.1f} MB)")
    if arguments.json:
        from rewriter.commands._documents.report import report_document

        emit(report_document(report))
    else:
        message(report.verdict, style=level_style("error" if report.found else "good"))
    return DIFFERS if report.found else OK
