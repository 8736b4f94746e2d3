"""`rewriter repro`: one recorded launch as a script that runs it alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rewriter.commands._click import Choice, Section, argument, command
from rewriter.commands._options import OUTPUT, JsonOption, time_limit
from rewriter.commands._output import emit
from rewriter.core.errors import DIFFERS, OK, RewriterError
from rewriter.core.terminal import message, say

if TYPE_CHECKING:
    from rewriter.reproduction.minimise.types import Minimised
    from rewriter.reproduction.under.tool import Tool, UnderResult

_LAUNCH = re.compile(r"#?(\d+)(?:\.(\d+))?")
_CUT, _CHECKED = Section("what to cut out"), Section("what to do with it")


class Arguments(JsonOption):
    dump: str = argument("DUMP", "a dump whose tensors were saved")
    launch: str = _CUT.option(
        "--launch N", "the launch's index; 12.1 is the second run of #12 in a loop", required=True
    )
    run: str | None = _CUT.option(
        "--run rankN/runN", "the call (default: the first that has the launch)"
    )
    imports: tuple[str, ...] = _CUT.option(
        "--import MODULE",
        "have the script import a module, such as one that registers operators (may be repeated)",
        multiple=True,
    )
    libraries: tuple[str, ...] = _CUT.option(
        "--library FILE.so",
        "copy a shared library, such as one that registers operators, beside the script, "
        "which loads it (may be repeated)",
        multiple=True,
    )
    under: Tool | None = _CHECKED.option(
        "--under TOOL",
        "run the script under a tool, and print the line and argument that the tool reports "
        "(then exit code 1):\nasan: AddressSanitizer and UBSan, with g++, for C++ kernels\n"
        "interpret: Triton's interpreter, which needs no GPU\ncompute-sanitizer\n"
        "triton-sanitizer: the sanitizer of triton-viz\nfpsan: Triton's floating-point "
        "sanitizer: finds results that depend on the size of blocks",
        type=Choice(("asan", "interpret", "compute-sanitizer", "triton-sanitizer", "fpsan")),
    )
    minimise: float | None = _CHECKED.option(
        "--minimise SECONDS",
        "make sizes and values smaller for as long as the fault remains: a crash, NaN that is "
        "made here, a result that differs from what the launch claims to compute, or what "
        "--under asan reports (default: 60 seconds)",
        type=time_limit,
        is_flag=False,
        flag_value="60",
    )
    timeout: float = _CHECKED.option(
        "--timeout SECONDS",
        "stop a tool after this time (default: 600)",
        type=time_limit,
        default=600.0,
    )
    output: str | None = OUTPUT.option(
        "-o, --output DIR",
        "directory to write (default: repro-<N>-<kernel> in the working directory)",
    )
    overwrite: bool = OUTPUT.flag("--overwrite", "replace an existing directory")


@command(
    Arguments,
    (
        "a launch of a dump that `rewriter run --probe save` left",
        "rewriter repro cache.dump --launch 1 -o repro",
    ),
    ("of another call", "rewriter repro cache.dump --launch 1 --run rank0/run3"),
    ("does it read beyond its arguments?", "rewriter repro cache.dump --launch 1 --under asan"),
    ("the smallest values on which it is wrong", "rewriter repro cache.dump --launch 1 --minimise"),
)
def act(arguments: Arguments) -> int:
    from rewriter.reproduction.reproduce import reproduce

    index, iteration = _which(arguments.launch)
    for name in arguments.imports:
        if not all(part.isidentifier() for part in name.split(".")):
            raise RewriterError(
                "bad-module",
                f"--import {name}: no name of a module",
                hint="Expected one such as my_package.my_operators.",
            )
    made = reproduce(
        arguments.dump,
        index,
        arguments.output or _default(arguments.dump, index),
        run=arguments.run,
        iteration=iteration,
        imports=arguments.imports,
        libraries=arguments.libraries,
        overwrite=arguments.overwrite,
    )
    smaller = None
    if arguments.minimise is not None:
        from rewriter.reproduction.minimise.minimise import minimise

        watched = arguments.under == "asan"
        smaller = minimise(made, seconds=arguments.minimise, watched=watched)
        made = smaller.made
    ran = None
    if arguments.under is not None:
        from rewriter.reproduction.under.running import run_under

        ran = run_under(made, arguments.under, timeout=arguments.timeout)
    code = DIFFERS if smaller is not None or (ran is not None and ran.findings) else OK
    if arguments.json:
        from rewriter.commands._documents.repro import ReproDocument

        emit(ReproDocument(made=made, under=ran, minimised=smaller))
        return code
    script = made.directory / "repro.py"
    say(f"{made.recorded.title} of {made.recorded.run.name}: {made.directory}")
    message(f"run it with: python {script}")
    if made.recorded.sharing:
        message(f"note: {made.recorded.sharing}")
    if smaller is not None:
        _say_smaller(smaller)
    if ran is not None:
        _say(ran)
    return code


def _say_smaller(smaller: Minimised) -> None:
    say(smaller.finding)
    for change in smaller.changes if smaller.confirmed else ():
        say(f"  {change.name}: {change.before} -> {change.after}")
    if not smaller.changes:
        message("nothing of it could be made smaller")
    elif smaller.confirmed:
        message("checked once more in a process of its own: it is still found")
    else:
        message("the smaller one did not show it in a process of its own: it is as it was recorded")
    stopped = "; the time was over" if smaller.stopped else ""
    message(f"{smaller.trials} launches in {smaller.seconds:.1f} s{stopped}")


def _say(ran: UnderResult) -> None:
    for finding in ran.findings:
        say(finding.headline)
        if finding.line:
            say(f"  {finding.file}:{finding.line}: {finding.text}")
    if not ran.findings:
        say(f"{ran.tool}: nothing found")
    if ran.note:
        message(ran.note)
    message(f"once more: {ran.command}")


def _which(text: str) -> tuple[int, int]:
    found = _LAUNCH.fullmatch(text)
    if found is None:
        raise RewriterError(
            "bad-launches",
            f"--launch {text}: no index of a launch",
            hint="Expected a number such as 3, or 3.1 for the second run of it in a loop.",
        )
    return int(found[1]), int(found[2] or 0)


def _default(dump: str, index: int) -> str:
    from rewriter.dump.reading import open_dump

    kernels = (
        step.kernel for run in open_dump(dump).runs for step in run.steps if step.launch == index
    )
    kernel = re.sub(r"[^\w.]", "_", next(kernels, "launch"))[:60]
    return f"repro-{index}-{kernel}"
