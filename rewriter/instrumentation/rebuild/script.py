"""Writes the sources of a patched package with a build script, for a machine that can build it."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from rewriter.artifact.package import pack
from rewriter.artifact.package.model import Model, Package
from rewriter.core import json_text
from rewriter.core.errors import RewriterError
from rewriter.instrumentation.rebuild import build_steps, probed_models, recipe, unpack
from rewriter.instrumentation.rebuild.build_steps import BuildStep
from rewriter.instrumentation.rebuild.probed_models import Probed
from rewriter.instrumentation.rebuild.recipe import Recipe
from rewriter.instrumentation.rebuild.types import Route
from rewriter.version import __version__

NAME = "build.sh"

# What recipe.portable makes of an include directory.
_DIRECTORY = re.compile(r"(?:-I|-isystem)\$(?:TORCH|CUDA_HOME)(?=/)")

_HEAD = """\
#!/bin/sh
# Builds the package with probes out of the sources beside this file; inductor-rewriter {version}
# wrote it, and need not be installed. Run it where the package runs, with the torch that made it:
#
#     sh {name} [OUTPUT.pt2]
#
# PYTHON names the Python that has torch, CXX the compiler, CUDA_HOME the CUDA toolkit. What the
# linker says of _binary_constants_bin_start is of no consequence.
set -eu
name={package}
output=$(realpath -m "${{1:-$(dirname "$0")/../$name}}")
cd "$(dirname "$0")"
: "${{PYTHON:=python3}}" "${{CXX:=g++}}" "${{CUDA_HOME:=/usr/local/cuda}}"
TORCH=$("$PYTHON" -c '
import importlib.util
print(*importlib.util.find_spec("torch").submodule_search_locations)')
"""
_BUILD = """
echo {about}
mkdir -p {folder}/{origin}
"$PYTHON" {pack} extract {library} {folder}/{beside}
cd {folder}
{commands}
cd ../..
"""
_TAIL = """
"$PYTHON" {pack} pack "$output"
echo "$output"
"""


def write(package: Package, probed: Sequence[Probed], folder: Path) -> None:
    """Write the directory. It has the package in it, so that `strip` gives that back."""
    folder.mkdir()
    copy_zip(package, folder / pack.ORIGINAL)
    packer = Path(pack.__file__)
    shutil.copyfile(packer, folder / packer.name)
    name = shlex.quote(f"{package.path.stem}.instrumented.pt2")
    text = _HEAD.format(version=__version__, name=NAME, package=name)
    sources, libraries = {}, {}
    for patched in probed:
        place = Path("models") / patched.model.name
        (folder / place).mkdir(parents=True)
        sources[patched.model.name] = place / PurePosixPath(patched.model.wrapper).name
        libraries[patched.model.name] = place / build_steps.RESULT
        (folder / sources[patched.model.name]).write_bytes(patched.result.source)
        if patched.model.library is not None:
            text += _commands(patched.model, place, _steps(package, patched, folder / place))
    changes = probed_models.changes(probed, sources, libraries)
    routes: list[Route] = ["link" if patched.model.library else "sources" for patched in probed]
    content = {
        "format": pack.FORMAT,
        "version": pack.VERSION,
        "manifest": probed_models.manifest(probed, routes),
        "root": package.root,
        "replaced": {member: str(file) for member, file in changes.replaced.items()},
        "renamed": changes.renamed,
        "added": [[member, str(file), after] for member, file, after in changes.added],
        "original": {"sha256": pack.sha256(folder / pack.ORIGINAL)},
    }
    (folder / pack.SOURCES).write_text(json_text.encode(content, indent=2) + "\n", encoding="utf-8")
    text += _TAIL.format(pack=packer.name)
    (folder / NAME).write_text(text, encoding="utf-8")
    (folder / NAME).chmod(0o755)


def _steps(package: Package, probed: Probed, folder: Path) -> list[BuildStep]:
    """Write the sources of a model; returns how they are compiled and linked.

    Raises where the package's own library cannot be linked to.
    """
    model = probed.model
    library = unpack.library_of(package, model, check=True)
    assert library is not None
    if obstacle := recipe.obstacle("link", model, library):
        raise RewriterError(
            "no-route",
            f"{package.path}: model {model.name!r}: {obstacle}",
            hint="A build script only links. Where the package runs, `rewriter instrument FILE "
            "--route full` may build it.",
        )
    flags = recipe.compile_flags(model.command("Compile"), recipe.portable, header=False)
    wrapper = PurePosixPath(model.wrapper)
    # The package gets the instrumented text; compiled is what is made of it.
    job = replace(
        probed_models.job(probed, Recipe(model, "link", "", flags), library),
        file=f"{wrapper.stem}.compiled{wrapper.suffix}",
    )
    return [*build_steps.compile_steps(job, folder), build_steps.link_step(job, folder)]


def _commands(model: Model, place: Path, steps: Sequence[BuildStep]) -> str:
    lines = [" ".join(['"$CXX"', *map(_quoted, step.command[1:])]) for step in steps]
    return _BUILD.format(
        about=shlex.quote(f"building the model {model.name}"),
        folder=shlex.quote(str(place)),
        origin=shlex.quote(build_steps.ORIGIN),
        beside=shlex.quote(build_steps.beside(model)),
        pack=Path(pack.__file__).name,
        library=shlex.quote(str(model.library)),
        commands="\n".join(lines),
    )


def _quoted(part: str) -> str:
    """An argument for the shell, in which the script's own directories are expanded, no more."""
    if part.startswith("-ffile-prefix-map="):
        return '"-ffile-prefix-map=$PWD=."'
    match = _DIRECTORY.match(part)
    return f'"{match[0]}"{shlex.quote(part[match.end() :])}' if match else shlex.quote(part)


def copy_zip(package: Package, output: Path) -> None:
    """Write a package as a `.pt2` file, also one that was unpacked."""
    if package.is_folder:
        # Torch's loader takes the directory of the first member for that of the archive.
        names = sorted(package.container.names, key=lambda name: "/" in name)
        pack.write(output, [(name, package.path / name) for name in names])
    else:
        shutil.copyfile(package.path, output)
