"""`rewriter bisect`: which launches make the difference between a program that fails and one that
passes."""

from __future__ import annotations

from rewriter.commands._click import argument, command, later
from rewriter.commands._options import RUN, JsonOption, WrapperOption, time_limit


class Arguments(JsonOption, WrapperOption):
    artifact: tuple[str, ...] = argument(
        "COMMAND",
        "a program whose exit code is 0 where its numbers are right",
        usage="-- COMMAND ...",
        nargs=-1,
        required=False,
    )
    program: tuple[str, ...] | None = None
    expected: str | None = RUN.option(
        "--expected FILE.pt",
        "the outputs of a call decide, not the exit code: a tensor, or a list of tensors, saved by "
        "torch.save",
    )
    precise: bool = RUN.flag("--precise", "compute in float64 what stands in the place of launches")
    timeout: float | None = RUN.option(
        "--timeout SECONDS",
        "stop each run after this time, which includes imports and compilation: it fails then",
        type=time_limit,
    )


@command(
    Arguments,
    ("a program that exits with 1 if its results are wrong", "rewriter bisect -- python check.py"),
    ("where a launch is right, but not precise enough", "rewriter bisect --precise -- pytest -x"),
)
def act(arguments: Arguments) -> int:
    return later("_bisect", arguments)
