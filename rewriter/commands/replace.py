"""`rewriter replace`: torch's operators in the place of a launch, as a hot-fix that ships."""

from __future__ import annotations

from rewriter.commands._click import Choice, Section, argument, command, later
from rewriter.commands._options import RUN, output_option
from rewriter.commands._package_options import BuildOptions

_WHAT = Section("what is replaced")


class Arguments(BuildOptions):
    artifact: str = argument(
        "ARTIFACT", "a wrapper, a package, or a directory or log that holds several wrappers"
    )
    output: str | None = output_option("<stem>.replaced<ext> beside the input")
    launch: str = _WHAT.option(
        "--launch N[,M-K]", "the launches, by their numbers in `rewriter list`", required=True
    )
    by: str = _WHAT.option(
        "--by reference",
        "what stands in their place: what the graph of the wrapper says",
        type=Choice(("reference",)),
        default="reference",
    )
    precise: bool = _WHAT.flag("--precise", "compute it in float64")
    graph: str | None = _WHAT.option(
        "--graph PATH", "for a wrapper outside of its cache: what TORCH_COMPILE_DEBUG=1 left"
    )
    imports: tuple[str, ...] = RUN.option(
        "--import MODULE",
        "import this module or file first: it registers custom operators",
        multiple=True,
    )
    args: str | None = RUN.option(
        "--args FILE.pt",
        "inputs, for its cost: a list saved by torch.save (default: the wrapper's own get_args(), "
        "which a package does not have)",
    )


@command(
    Arguments,
    (
        "launch 3, into output_code.replaced.py",
        "rewriter replace output_code.py --launch 3 --by reference",
    ),
    (
        "in the cache, as `rewriter bisect` has named it; `rewriter strip` gives every byte back",
        "rewriter replace cache/ov/covyb6kx.py --launch 1 --by reference --in-place",
    ),
)
def act(arguments: Arguments) -> int:
    return later("_replace", arguments)
