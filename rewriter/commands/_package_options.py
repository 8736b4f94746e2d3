"""The options of `instrument` for packages."""

from __future__ import annotations

from rewriter.commands._click import Choice, Section
from rewriter.commands._options import ModelOption, OutputOptions
from rewriter.instrumentation.rebuild.types import ROUTES, Route

_PACKAGES = Section("packages (.pt2)")


class BuildOptions(OutputOptions, ModelOption):
    """How packages are built again and checked."""

    route: Route | None = _PACKAGES.option(
        "--route",
        "how it is built again: link compiles the wrapper and keeps kernels and weights; full "
        "compiles all; sources leaves compiling to the loader (default: the first that works)",
        type=Choice(ROUTES),
    )
    no_check: bool = _PACKAGES.flag("--no-check", "do not load the result")
    imports: tuple[str, ...] = _PACKAGES.option(
        "--import MODULE",
        "for the check, import this module first: it registers custom operators",
        multiple=True,
    )


class PackageOptions(BuildOptions):
    """The same, or that nothing is built."""

    no_rebuild: bool = _PACKAGES.flag(
        "--no-rebuild", "compile nothing: write a directory with the sources and a build script"
    )
