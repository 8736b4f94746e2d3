"""`rewriter compare`: two dumps, or the ranks of one, and the first launch that went wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewriter.commands._click import Section, argument, command
from rewriter.commands._comparison import show_culprit, show_rows
from rewriter.commands._options import OUTPUT, JsonOption, kernels_option
from rewriter.commands._output import counting, emit, write_page
from rewriter.comparison.dumps.blame import worst
from rewriter.comparison.dumps.types import Comparison, LaunchComparison
from rewriter.core.errors import DIFFERS, OK, RewriterError
from rewriter.core.quantities import comma_separated
from rewriter.core.terminal import level_style, say
from rewriter.core.text import counted, some
from rewriter.dump.launched import OUTPUTS

if TYPE_CHECKING:
    from rewriter.comparison.dumps.ranks import Ranks
    from rewriter.comparison.dumps.replica import Divergence

_CULPRITS = 3  # shown with all their figures
_SAME_MODEL = 4  # runs of the same model have at least one launch of so many in common
_RANKS, _EQUAL = Section("the ranks of one dump"), Section("what counts as equal")


class Arguments(JsonOption):
    a: str = argument("DUMP_A", "a dump, one rank of it (DUMP/rank1) or one run (…/run3)")
    b: str | None = argument("[DUMP_B]", "the dump with the expected values")
    ranks: str | None = _RANKS.option(
        "--ranks A,B,…",
        "instead of DUMP_B: compare the ranks of one dump, or only these, with the first one",
        is_flag=False,
        flag_value="",
    )
    data: str | None = _RANKS.option(
        "--data GLOB[,GLOB…]", "with --ranks: inputs that are meant to differ between ranks"
    )
    rtol: str | None = _EQUAL.option("--rtol X", "relative tolerance (default: by dtype)")
    atol: str | None = _EQUAL.option("--atol X", "absolute tolerance (default: by dtype)")
    kernels: str | None = kernels_option(_EQUAL)
    strict: bool = _EQUAL.flag(
        "--strict",
        "also exit 1 if a launch has no counterpart, or if rounding explains all differences",
    )
    all: bool = OUTPUT.flag("--all", "list every launch, equal ones too")
    html: str | None = OUTPUT.option("--html FILE", "also write a report of the comparison")
    overwrite: bool = OUTPUT.flag("--overwrite", "replace an existing report")


@command(
    Arguments,
    ("a run against one that is right", "rewriter compare new.dump old.dump"),
    ("with a page", "rewriter compare new.dump old.dump --html compared.html"),
    ("looser", "rewriter compare new.dump old.dump --rtol 1e-2 --atol 1e-3"),
    ("the ranks of one job", "rewriter compare cache.dump --ranks --data 'primals_3'"),
)
def act(arguments: Arguments) -> int:
    from rewriter.core import files

    _require_two(arguments)
    if arguments.data is not None and arguments.ranks is None:
        raise RewriterError(
            "not-two-dumps",
            f"--data {arguments.data!r} and no --ranks",
            hint="--data names inputs that differ from rank to rank: DUMP --ranks --data NAMES.",
        )
    if arguments.html:
        files.require_free(Path(arguments.html), overwrite=arguments.overwrite)
    return _act_ranks(arguments) if arguments.b is None else _act(arguments, arguments.b)


def _require_two(arguments: Arguments) -> None:
    if (arguments.b is None) != (arguments.ranks is None):
        return
    raise RewriterError(
        "not-two-dumps",
        f"one dump ({arguments.a}) and no --ranks"
        if arguments.b is None
        else f"two dumps ({arguments.a}, {arguments.b}) and --ranks",
        hint="Expected DUMP_A DUMP_B, or DUMP --ranks for the ranks of one dump.",
    )


def _options(arguments: Arguments) -> Any:
    """What both ways to compare take."""
    from rewriter.comparison.dumps.tolerance import Tolerances, number

    tolerances = Tolerances(
        None if arguments.rtol is None else number(arguments.rtol),
        None if arguments.atol is None else number(arguments.atol),
    )
    kernels = comma_separated(arguments.kernels or "")
    return {"tolerances": tolerances, "kernels": kernels or None}


def _act(arguments: Arguments, b: str) -> int:
    from rewriter.comparison.dumps.compare import compare

    options = _options(arguments)
    with counting() as progress:
        comparison = compare(arguments.a, b, progress=progress, **options)
    minded = arguments.strict and (_is_unmatched(comparison) or comparison.rounded)
    equal = comparison.equal and not minded
    return _conclude(arguments, comparison, None, OK if equal else DIFFERS)


def _conclude(
    arguments: Arguments, compared: Comparison | Ranks, data: list[str] | None, code: int
) -> int:
    """Print and write what was found, which stands also if nobody reads all of it."""
    try:
        if arguments.html:
            from rewriter.report import compared as pairs
            from rewriter.report import page, ranked

            report = (
                pairs.report(compared)
                if isinstance(compared, Comparison)
                else ranked.report(compared)
            )
            text = page.page(report, command=arguments.command_line)
            write_page(text, Path(arguments.html), overwrite=arguments.overwrite)
        if arguments.json:
            from rewriter.commands._documents.compare import document

            emit(document(compared))
        elif isinstance(compared, Comparison):
            _show(compared, everything=arguments.all)
        else:
            _show_ranks(compared, data, everything=arguments.all)
    except BrokenPipeError as error:
        error.exit_code = code  # type: ignore[attr-defined]
        raise
    return code


def _is_unmatched(comparison: Comparison) -> bool:
    lone = any(launch.unmatched for launch in comparison.launches)
    return bool(comparison.unmatched or comparison.unpaired or lone)


def _act_ranks(arguments: Arguments) -> int:
    from rewriter.comparison.dumps.ranks import compare_ranks

    options, ranks = _options(arguments), _ranks(arguments.ranks or "")
    data = None if arguments.data is None else arguments.data.split(",")
    with counting() as progress:
        compared = compare_ranks(arguments.a, ranks, data=data, progress=progress, **options)
    apart = any(x.comparison is None for x in compared.replicas)
    apart = apart or any(map(_is_unmatched, compared.comparisons))
    equal = not (
        compared.first or (compared.is_unexplained and data is None) or (arguments.strict and apart)
    )
    return _conclude(arguments, compared, data, OK if equal else DIFFERS)


def _ranks(text: str) -> list[int]:
    """`0,2` as numbers."""
    parts = comma_separated(text)
    if wrong := [part for part in parts if not (part.isascii() and part.isdecimal())]:
        raise RewriterError(
            "bad-ranks",
            f"--ranks {text!r}: {wrong[0]!r} is no rank",
            hint="Write numbers, such as --ranks 0,2; put DUMP before --ranks.",
        )
    return list(map(int, parts))


def _of_interest(first: Divergence) -> LaunchComparison:
    """The launch where a rank parts; of the inputs of a call, those that agreed before."""
    if first.reason not in ("inputs", "parameters"):
        return first.launch
    named = tuple(x for x in first.launch.results if x.name in first.names)
    return replace(first.launch, results=named, reasons=(), state=worst([x.state for x in named]))


def _show_ranks(ranks: Ranks, data: list[str] | None, *, everything: bool) -> None:
    from rewriter.comparison.dumps import describe_ranks

    say(describe_ranks.verdict(ranks), style=_style(equal=not ranks.first))
    if hint := describe_ranks.own_data(ranks, data):
        say(hint)
    if ranks.parted and (first := ranks.first):
        say("")
        say(f"A is rank {ranks.parted.rank}, B is rank {ranks.reference}")
        if why := describe_ranks.reason(first):
            say(why)
        if first.launch.matched:
            show_culprit(_of_interest(first))
        assert ranks.parted.comparison is not None
        runs = ranks.parted.comparison.runs
        launches = next(x.launches for x in runs if first.run in (x.a, x.b))
        # The row of the inputs is about those that parted, not about data of each rank's own.
        rows = [_of_interest(first) if x is first.launch else x for x in launches]
        show_rows(rows, everything)
    say("")
    for line in describe_ranks.lines(ranks):
        say(line)
    if groups := describe_ranks.groups(ranks):
        say(groups)


def _show(comparison: Comparison, *, everything: bool) -> None:
    from rewriter.comparison.dumps import describe
    from rewriter.diagnosis.next_commands import after_comparison

    say(describe.verdict(comparison), style=_style(equal=comparison.equal))
    counts = describe.count(comparison)
    of_a, of_b = counts.matched + counts.only_a, counts.matched + counts.only_b
    if _SAME_MODEL * counts.matched < max(of_a, of_b):
        say(
            f"note: only {counts.matched} of {of_a} launches of A and {of_b} of B have a "
            "counterpart: these may be runs of different models"
        )
    for launch in comparison.culprits[:_CULPRITS]:
        say("")
        show_culprit(launch)
    show_rows(comparison.launches, everything)
    say("")
    for line in _summary(comparison):
        say(line)
    if following := after_comparison(comparison):
        first, *more = following[0].splitlines()
        say(f"next: {first}", *(f"      {line}" for line in more))


def _style(*, equal: bool) -> str:
    return level_style("good" if equal else "error")


def _summary(comparison: Comparison) -> Iterator[str]:
    from rewriter.comparison.dumps import describe

    counts = describe.count(comparison)
    rounding = f", {counts.rounding} up to rounding" if counts.rounding else ""
    yield (
        f"{counted(counts.matched, 'launch')} compared: {counts.equal} equal, {counts.identical} "
        f"of them bit for bit{rounding}; {counts.culprits} went wrong, "
        f"{counts.downstream} downstream of that; {counts.unknown} not comparable"
    )
    yield (
        f"without a counterpart: {counts.only_a} of A, {counts.only_b} of B"
        + (f"; in another order: {counts.moved}" if counts.moved else "")
    )
    outputs = [
        x for launch in comparison.launches if launch.place.kernel == OUTPUTS for x in launch.reads
    ]
    if outputs and counts.only_a + counts.only_b:
        # What launches without a counterpart came to is seen there.
        equal = sum(x.state == "equal" for x in outputs)
        yield f"outputs compared: {equal} of {len(outputs)} equal"
    if (needed := describe.needed(comparison)) and math.isfinite(needed.atol):
        alone = f" or rtol {needed.rtol:.3g}" if math.isfinite(needed.rtol) else ""
        yield f"all saved results pass from atol {needed.atol:.3g}{alone}"
    yield from describe.limits(comparison)
    if lone := [f"{x.place}: {', '.join(x.unmatched)}" for x in comparison.launches if x.unmatched]:
        more = f" and of {len(lone) - _CULPRITS} more" if len(lone) > _CULPRITS else ""
        yield f"on one side alone: {'; '.join(lone[:_CULPRITS])}{more}"
    for launch in comparison.launches:
        # Of one to blame they are said with it.
        if launch.place.kernel == OUTPUTS and launch.blame != "culprit":
            run = f"{launch.place.run}: " if len(comparison.runs) > 1 else ""
            yield from (f"{run}{reason}" for reason in launch.reasons)
    if unpaired := comparison.unpaired:
        has = "has" if len(unpaired) == 1 else "have"
        yield f"{some(unpaired, _CULPRITS)} {has} no counterpart"
