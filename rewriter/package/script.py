"""Writes the sources of a patched package with a build script, for a machine that can build it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from rewriter.artifact import Artifact
from rewriter.errors import RewriterError
from rewriter.package import build, pack, patch, recipe
from rewriter.package.container import ORIGINAL, SOURCES
from rewriter.package.model import Model, Package
from rewriter.types import Json
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
# PYTHON names the Python that has torch, CXX the compiler, CUDA_HOME the CUDA toolkit.
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
rm -rf {folder}/build
mkdir -p {folder}/build/{origin}
"$PYTHON" {pack} extract {library} {folder}/build/{origin}/{kernels}
cd {folder}/build
"$CXX" {flags} -c ../{source} -o wrapper.o
"$CXX" -shared -fPIC -o out.so wrapper.o {origin}/{kernels}
cd ../../..
"""
_TAIL = """
"$PYTHON" {pack} pack "$output"
echo "$output"
"""


def write(artifact: Artifact, probed: Sequence[patch.Probed], folder: Path) -> None:
    """Write the directory. It has the package in it, so that `strip` gives that back."""
    package = artifact.package
    assert package is not None
    folder.mkdir()
    _copy_package(package, folder / ORIGINAL)
    shutil.copyfile(Path(pack.__file__), folder / Path(pack.__file__).name)
    text = _HEAD.format(
        version=__version__,
        name=NAME,
        package=shlex.quote(f"{artifact.path.stem}.instrumented.pt2"),
    )
    replaced, renamed, added, routes = {}, {}, [], []
    for one in probed:
        model = one.model
        place = f"models/{model.name}"
        (folder / place).mkdir(parents=True)
        source = PurePosixPath(model.wrapper).name
        (folder / place / source).write_bytes(one.result.source)
        replaced[model.wrapper] = f"{place}/{source}"
        routes.append(_route(package, model, folder))
        if model.library is not None:
            kernels = patch.kernels_name(model)
            renamed[model.library] = kernels
            added.append([model.library, f"{place}/build/out.so", kernels])
            text += _commands(model, place, source, folder)
    about = patch.about(probed, routes)
    sources: Json = {
        "format": pack.FORMAT,
        "version": pack.VERSION,
        **about,
        "about": about,
        "root": package.root,
        "replaced": replaced,
        "renamed": renamed,
        "added": added,
        "original": {"sha256": pack.sha256(folder / ORIGINAL)},
    }
    (folder / SOURCES).write_text(json.dumps(sources, indent=2) + "\n", encoding="utf-8")
    text += _TAIL.format(pack=Path(pack.__file__).name)
    (folder / NAME).write_text(text, encoding="utf-8")
    (folder / NAME).chmod(0o755)


def _route(package: Package, model: Model, scratch: Path) -> recipe.Route:
    """The route of the script; raises where the package's own library cannot be linked to."""
    file = scratch / "library"
    library = patch.extract_library(package, model, file)
    file.unlink(missing_ok=True)
    route: recipe.Route = "sources" if library is None else "link"
    if found := recipe.obstacle(route, model, library):
        raise RewriterError(
            "no-route",
            f"{package.path}: the model {model.name}: {found}",
            hint="A build script only links. Where the package runs, `rewriter instrument` finds "
            "another way.",
        )
    return route


def _commands(model: Model, place: str, source: str, folder: Path) -> str:
    assert model.library is not None
    flags = recipe.compile_flags(model.command("Compile"), recipe.portable, header=False)
    arguments = [_quoted(part) for part in flags.arguments]
    if model.weights == "behind the library":
        (folder / place / build.PRELUDE).write_text(build.PRELUDE_TEXT)
        arguments += ["-include", f"../{build.PRELUDE}"]
    return _BUILD.format(
        about=shlex.quote(f"building the model {model.name}"),
        folder=shlex.quote(place),
        origin=shlex.quote(build.ORIGIN),
        pack=Path(pack.__file__).name,
        library=shlex.quote(model.library),
        kernels=shlex.quote(PurePosixPath(patch.kernels_name(model)).name),
        flags=" ".join(arguments),
        source=shlex.quote(source),
    )


def _quoted(part: str) -> str:
    """An argument for the shell, in which the script's own directories are expanded, no more."""
    found = _DIRECTORY.match(part)
    return f'"{found[0]}"{shlex.quote(part[found.end() :])}' if found else shlex.quote(part)


def _copy_package(package: Package, output: Path) -> None:
    if not package.is_folder:
        shutil.copyfile(package.path, output)
        return
    pack.write(output, [(name, package.path / name) for name in package.container.names])
