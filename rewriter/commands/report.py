"""`rewriter report`: a dump as one HTML file that can be read anywhere, a table, or a trace."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from rewriter.commands._click import Choice, Section, argument, command
from rewriter.commands._options import OUTPUT, JsonOption, refuse_options
from rewriter.commands._output import emit, write_page
from rewriter.core import files, json_text
from rewriter.core.errors import DIFFERS, OK, RewriterError
from rewriter.core.terminal import level_style, message, say
from rewriter.core.text import counted
from rewriter.core.types import TrendStatistic

if TYPE_CHECKING:
    from rewriter.dump.reading import Dump
    from rewriter.report.trends import Trends

_STATISTICS: tuple[TrendStatistic, ...] = get_args(TrendStatistic)
_SHOWN = Section("what to show")
_TRENDS = 40  # rows of a table of trends
_DATA = (".parquet", ".arrow", ".json", ".ndjson")
_PAGE = ("", ".html", ".htm")


class Arguments(JsonOption):
    dump: str = argument("DUMP", "a dump, one rank of it (DUMP/rank1) or one run (…/run3)")
    artifact: str | None = _SHOWN.option(
        "--artifact FILE",
        "read the sources of kernels from here (default: from the copy in the dump)",
    )
    runs: tuple[str, ...] = _SHOWN.option(
        "--run rankN/runN", "only this run (may be repeated; default: all)", multiple=True
    )
    no_histograms: bool = _SHOWN.flag(
        "--no-histograms", "do not read saved tensors, and draw no histograms or heat maps"
    )
    trend: TrendStatistic | None = _SHOWN.option(
        "--trend STATISTIC",
        f"print how this statistic changes from call to call, for each launch: "
        f"{', '.join(_STATISTICS)}; the page is written only with -o",
        type=Choice(_STATISTICS),
    )
    output: str | None = OUTPUT.option(
        "-o, --output FILE",
        "the page, FILE.html, - for standard output (default: <dump>.html in the working "
        "directory); or a table with a row for each value, FILE.parquet or FILE.arrow (needs "
        "pyarrow); or the times of launches for Perfetto and chrome://tracing, FILE.json; or a log "
        "for tritonparse, FILE.ndjson",
    )
    open: bool = OUTPUT.flag("--open", "open the page in a browser")
    overwrite: bool = OUTPUT.flag("--overwrite", "replace an existing file")
    json: bool = OUTPUT.flag(
        "--json", "print what the page shows as one JSON object; the page is written only with -o"
    )


@command(
    Arguments,
    ("a page to open in a browser: cache.dump.html", "rewriter report cache.dump"),
    ("of one call alone", "rewriter report cache.dump --run rank0/run3 -o call.html"),
    ("for pandas.read_parquet", "rewriter report cache.dump -o cache.parquet"),
    (
        "the standard deviation of what launches write, call by call",
        "rewriter report cache.dump --trend std",
    ),
    ("exit code 1 if there is a NaN", "rewriter report cache.dump --json"),
)
def act(arguments: Arguments) -> int:
    from rewriter.dump.reading import open_dump
    from rewriter.report import model, sources, trends

    to_stdout = arguments.output == "-"
    if to_stdout and arguments.json:
        raise RewriterError(
            "two-outputs",
            "-o - and --json both print to standard output",
            hint="Name a file with -o.",
        )
    if to_stdout or ((arguments.json or arguments.trend) and not arguments.output):
        refuse_options(arguments, "open", "no page is written", "Name a file with -o.")
    suffix = Path(arguments.output or "").suffix
    if suffix not in (*_PAGE, *_DATA):
        raise RewriterError(
            "unknown-format",
            f"-o {arguments.output}: no report is written as {suffix}",
            hint=f"Expected a page, FILE.html, or one of {', '.join(_DATA)}.",
        )
    dump = open_dump(arguments.dump)
    if arguments.output and suffix in _DATA:
        return _write_data(arguments, dump, Path(arguments.output))
    report = model.report(
        dump,
        runs=arguments.runs,
        sources=None if arguments.artifact is None else sources.of_artifact(arguments.artifact),
        tensors=not arguments.no_histograms,
        trend=arguments.trend or (None if arguments.json else trends.DEFAULT),
    )
    if arguments.trend and not arguments.json and not to_stdout:
        _print_trends(report.trends)
    if arguments.output or not (arguments.json or arguments.trend):
        from rewriter.report.page import page

        text = page(report, command=arguments.command_line)
        if to_stdout:
            sys.stdout.flush()
            sys.stdout.buffer.write(text.encode())
        else:
            output = Path(arguments.output or f"{Path(arguments.dump).absolute().name}.html")
            write_page(text, output, overwrite=arguments.overwrite)
            if arguments.open:
                _open(output)
    if arguments.json:
        from rewriter.commands._documents.report import ReportDocument

        emit(ReportDocument(report=report))
    else:
        show = message if to_stdout else say
        show(report.verdict, style=level_style("error" if report.found else "good"))
    return DIFFERS if report.found else OK


def _open(page: Path) -> None:
    import webbrowser

    if not webbrowser.open(page.absolute().as_uri()):
        message(f"warning: no browser was found; open {page} in one")


def _write_data(arguments: Arguments, dump: Dump, output: Path) -> int:
    """Write the table of a dump, or the trace of its times."""
    from rewriter.dump import timing
    from rewriter.report import launch_log, model, sources, table

    idle = "artifact no_histograms trend json open"
    refuse_options(arguments, idle, f"{output} is no page", "Drop the option.")
    files.require_free(output, overwrite=arguments.overwrite)
    runs = model.named(dump, arguments.runs)
    if output.suffix == ".json":
        trace = timing.trace(runs)
        data, what = json_text.encode(trace).encode(), counted(len(trace["traceEvents"]), "event")
    elif output.suffix == ".ndjson":
        lines = [json_text.encode(x) for x in launch_log.events(runs, sources.of_dump())]
        data, what = "".join(f"{x}\n" for x in lines).encode(), counted(len(lines), "event")
    else:
        made = table.table(dump, runs)
        data, what = table.encoded(made, output.suffix), counted(made.num_rows, "row")
    files.write(output, data, overwrite=arguments.overwrite)
    message(f"{output}: {what} ({len(data) / 1e6:.1f} MB)")
    return OK


def _print_trends(found: Trends | None) -> None:
    from rewriter.core.terminal import table

    if found is None or not found.rows:
        say("no statistic of a launch over several calls was recorded")
        return
    rows = found.table(_TRENDS)
    say(*found.summary(len(rows) - 1))
    if len(rows) > 1:
        say(*table(rows))
