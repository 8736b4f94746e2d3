"""`rewriter sanitize`: memory that kernels use and must not."""

from __future__ import annotations

from rewriter.commands._click import Section, command, later
from rewriter.commands._options import TextOptions, programs_argument

_LOOKED_FOR = Section("what is looked for")


class Arguments(TextOptions):
    artifact: tuple[str, ...] = programs_argument(
        "ARTIFACT | -- COMMAND ...", "a wrapper or a package, or after -- a program"
    )
    only: str = _LOOKED_FOR.option(
        "--only CHECK[,CHECK…]",
        "only these checks (default: all):\nbounds: stores and reads outside of a buffer\n"
        "poison: reads of memory that nothing wrote\nstale: reads of memory that was released\n"
        "corrupt: memory that changes between launches\nrace: streams that do not wait for each "
        "other",
        default="",
    )
    guard: str = _LOOKED_FOR.option(
        "--guard SIZE",
        "size of the guard bands before and behind each buffer, such as 64K (default: 4096)",
        default="",
    )


@command(
    Arguments,
    ("a program whose numbers are wrong now and then", "rewriter sanitize -- python train.py"),
    ("a package, with its inputs", "rewriter sanitize model.pt2 --args inputs.pt"),
    ("only stores out of bounds", "rewriter sanitize output_code.py --only bounds"),
    ("races in the text of a wrapper: nothing is run", "rewriter sanitize model.py --only race"),
)
def act(arguments: Arguments) -> int:
    return later("_sanitize", arguments)
