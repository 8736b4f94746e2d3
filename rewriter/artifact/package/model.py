"""A package of AOTInductor, as a `.pt2` file or unpacked, and its models: which member is the
wrapper, the kernels, the library, the weights."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from rewriter.artifact.package import pack
from rewriter.artifact.package.container import (
    MODELS,
    WEIGHTS,
    Container,
    Folder,
    Overlay,
    is_folder,
    open_folder,
    open_zip,
    root_of,
)
from rewriter.artifact.types import Artifact, Form, Wrapper
from rewriter.core import json_text, limits
from rewriter.core.errors import RewriterError
from rewriter.core.source import check_text
from rewriter.core.types import Json
from rewriter.locate import proxy_operators
from rewriter.locate.cpp.recognition import ENTRY

if TYPE_CHECKING:
    from rewriter.core.documents import WrapperName

Weights = Literal[
    "in the library", "behind the library", "in a blob", "pickled", "with the sources"
]

BuildStep = Literal["Compile", "Link"]

_FORM = Form("package", "a package")

_COMMAND = re.compile(r"^// (Compile|Link) cmd[ \t]*\r?\n// (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Model:
    """One model of a package. Members are named as in the package.

    `source` is that of the wrapper, `kernels` are the other sources by their names. `library` is
    None in a package of sources, which its loader compiles (`package_cpp_only`); `operators` is
    None without operators that go through the proxy executor. `metadata` is what
    `aoti_load_package` gives as `get_metadata()`.
    """

    name: str
    members: tuple[str, ...]
    wrapper: WrapperName
    source: bytes
    kernels: Mapping[str, bytes]
    library: str | None
    operators: str | None
    metadata: Mapping[str, str]
    weights: Weights

    @property
    def operators_file(self) -> str:
        """The member that has, or would have, the nodes of the proxy executor, for the loader."""
        stem = (self.library or self.wrapper).rpartition(".")[0]
        return self.operators or f"{stem}.json"

    @cached_property
    def text(self) -> str:
        return self.source.decode("utf-8", "replace")

    @property
    def device(self) -> str:
        """The type of device that the model was compiled for, such as `cuda`."""
        return self.metadata.get("AOTI_DEVICE_KEY", "cpu")

    def command(self, step: BuildStep) -> tuple[str, ...]:
        """How the wrapper was compiled, or the library linked; empty if it does not say."""
        return self._commands[step]

    @cached_property
    def _commands(self) -> dict[BuildStep, tuple[str, ...]]:
        return {step: recorded(self.text, step, self.wrapper) for step in get_args(BuildStep)}

    @property
    def original_library(self) -> str:
        """The name of the original library in a patched package: the new one takes its old name.

        As long as the old name, since in a zip file it takes its place.
        """
        assert self.library is not None
        stem = self.library.removesuffix(".so")
        if stem.endswith(".wrapper"):
            head, ends = stem.removesuffix(".wrapper"), [".kernels", ".kernel2", ".kernel3"]
        else:  # releases up to 2.6
            head, size = stem[:-1], len(stem[-1].encode())
            ends = [letter * size for letter in "_-+"]
        names = (f"{head}{end}.so" for end in ends)
        return next(name for name in names if name not in self.members)


def recorded(text: str, step: BuildStep, name: object = "a source") -> tuple[str, ...]:
    """The last recorded command of a kind; a source that was compiled again has several.

    `name` is what a message calls the source.
    """
    commands = [command for which, command in _COMMAND.findall(text) if which == step]
    if not commands:
        return ()
    limits.require_size(
        f"{name}: its {step.lower()} command", len(commands[-1]), limits.COMMAND_BYTES
    )
    try:
        return tuple(shlex.split(commands[-1].rstrip(" \t\r")))
    except ValueError:
        return ()


@dataclass(frozen=True, kw_only=True)
class Package(Artifact):
    """A package, its models, whose wrappers are in the same order, and, where it is patched, what
    its manifest says."""

    container: Container
    root: str
    models: tuple[Model, ...]
    manifest: Json | None
    form: Form = _FORM

    is_text: ClassVar[bool] = False
    is_rebuilt: ClassVar[bool] = True

    @property
    def is_folder(self) -> bool:
        """Whether it was unpacked to a directory."""
        return isinstance(self.container, Folder)

    @property
    def is_sources(self) -> bool:
        """Whether it is a directory with sources and a build script."""
        return isinstance(self.container, Overlay)

    def hashes(self) -> dict[str, str]:
        """The SHA-256 of each member, by its name without the archive's own."""
        found = {}
        for name in self.container.names:
            digest = hashlib.sha256()
            for block in self.container.blocks(name):
                digest.update(block)
            found[name.removeprefix(self.root)] = digest.hexdigest()
        return found

    def require_target(
        self, output: str | None, *, in_place: bool, shown: bool, probing: bool
    ) -> None:
        super().require_target(output, in_place=in_place, shown=shown, probing=probing)
        if in_place and self.path.is_dir():
            raise RewriterError(
                "in-place-directory",
                f"{self.path} is a directory, which is not replaced in place",
                hint="Name a new directory with -o.",
            )

    def several(self, hint: str) -> RewriterError:
        listed = "\n    ".join(model.name for model in self.models)
        return RewriterError(
            "several-wrappers",
            f"{self.path} holds {len(self.models)} wrappers:\n    {listed}",
            hint="Pass --model with one of these names.",
        )

    def choose(self, patterns: Sequence[str]) -> Package:
        if patterns:
            raise RewriterError(
                "idle-options",
                f"--wrapper given, but {self.path} is a package, which has models",
                hint="Pass --model with the name of one.",
            )
        return self


def open_unpacked(path: Path, models: tuple[str, ...] | None) -> Package | None:
    """Open a directory that contains a package; `None` if a path is not one."""
    return open_package(path, models) if is_folder(path) else None


def open_package(path: Path, names: tuple[str, ...] | None = None) -> Package:
    """Open a `.pt2` file or an unpacked one; `names` choose models. Raises `RewriterError` saying
    what it is instead."""
    container = _container(path)
    root = root_of(container.names)
    members: dict[str, list[str]] = {}
    for name in container.names:
        head, inside = name[: len(root) + len(MODELS)], name[len(root) + len(MODELS) :]
        if head == root + MODELS and "/" in inside:
            members.setdefault(inside.partition("/")[0], []).append(name)
    if not members:
        raise RewriterError(
            "not-a-package",
            f"{path} is no package of AOTInductor's: {_what(container.names)}",
            hint="Expected what torch._inductor.aoti_compile_and_package writes.",
        )
    if len(members) > limits.MODELS:
        raise limits.too_large(path, f"{len(members):,} models", f"{limits.MODELS:,}")
    pickled = any(name.startswith(root + WEIGHTS) for name in container.names)
    models = {
        name: _model(container, name, tuple(inside), pickled) for name, inside in members.items()
    }
    manifest = _manifest(container, root)
    chosen = tuple(_select(path, models, names))
    return Package(
        path,
        tuple(_wrapper(container, model) for model in chosen),
        container=container,
        root=root,
        models=chosen,
        manifest=manifest,
    )


def _select(
    path: Path, models: Mapping[str, Model], names: Iterable[str] | None
) -> Iterator[Model]:
    """The models of these names, or all. Raises on a name that there is not."""
    for name in models if names is None else dict.fromkeys(names):
        if name not in models:
            raise RewriterError(
                "unknown-model",
                f"{path} has no model {name!r}",
                hint=f"Models: {', '.join(models)}.",
            )
        yield models[name]


def _wrapper(container: Container, model: Model) -> Wrapper:
    file = container.path / model.wrapper
    check_text(str(file), model.source)
    operators: tuple[Json, ...] = ()
    if model.operators is not None:
        data = container.read(model.operators, limits.JSON_BYTES)
        operators = proxy_operators.read(container.path / model.operators, data)
    return Wrapper(model.wrapper, model.source, "cpp", file, operators)


def _container(path: Path) -> Container:
    if not path.is_dir():
        return open_zip(path)
    if not (file := path / pack.SOURCES).is_file():
        return open_folder(path)
    sources = _read_manifest(file, limits.read(file, limits.JSON_BYTES))
    original = open_zip(path / pack.ORIGINAL)
    return Overlay(path, original.names, original, sources.get("replaced", ()), sources)


def _model(container: Container, name: str, members: tuple[str, ...], pickled: bool) -> Model:
    texts = [member for member in members if member.endswith(".cpp")]
    total = sum(container.size(member) for member in texts)
    limits.require_size(f"{container.path}: all .cpp of {name}", total, limits.SOURCES_BYTES)
    sources = {member: container.read(member, limits.WRAPPER_BYTES) for member in texts}
    wrappers = [member for member, source in sources.items() if ENTRY.search(source)]
    if len(wrappers) != 1:
        problem = "no wrapper" if not wrappers else f"{len(wrappers)} wrappers"
        raise RewriterError(
            "no-wrapper-source",
            f"{container.path}: the model {name} holds {problem}",
            hint="Expected one .cpp with AOTInductorModel::run_impl beside the library. Packages "
            "without sources cannot be instrumented.",
        )
    wrapper = wrappers[0]
    stem = wrapper.removesuffix(".cpp")
    operators = f"{stem}.json" if f"{stem}.json" in members else None
    library = _library(members, stem)
    return Model(
        name=name,
        members=members,
        wrapper=wrapper,
        source=sources[wrapper],
        kernels={member: source for member, source in sources.items() if member != wrapper},
        library=library,
        operators=operators,
        metadata=_metadata(container, members, stem),
        weights=_weights(container.path / wrapper, sources[wrapper], members, library, pickled),
    )


def _library(members: tuple[str, ...], stem: str) -> str | None:
    """The library that a loader takes: that of the wrapper's name, or the last one."""
    libraries = [member for member in members if member.endswith(".so")]
    if f"{stem}.so" in libraries:
        return f"{stem}.so"
    return libraries[-1] if libraries else None


def _metadata(container: Container, members: tuple[str, ...], stem: str) -> dict[str, str]:
    name = f"{stem}_metadata.json"
    if name not in members:
        return {}
    try:
        loaded = json_text.parse_object(container.read(name, limits.JSON_BYTES))
        return {key: str(value) for key, value in loaded.items()}
    except json_text.JsonError as error:
        raise RewriterError(
            "corrupt-package",
            f"{container.path}: {name} is no JSON object: {error}",
            hint="Copy the package again; torch cannot load it either.",
        ) from error


def _weights(
    name: Path, source: bytes, members: tuple[str, ...], library: str | None, pickled: bool
) -> Weights:
    """Where a model has its constants: `determine_aoti_mmap_flags`, torch/_inductor/utils.py."""
    flags = recorded(source.decode("utf-8", "replace"), "Compile", name)
    if any(member.endswith(".blob") for member in members) or "USE_MMAP_EXTERNAL" in flags:
        return "in a blob"
    if pickled and any(member.endswith("/weights_config.json") for member in members):
        return "pickled"
    if library is None:
        return "with the sources"
    return "behind the library" if "USE_MMAP_SELF" in flags else "in the library"


def _manifest(container: Container, root: str) -> Json | None:
    if isinstance(container, Overlay):
        fields, original = (container.sources.get(key) for key in ("manifest", "original"))
        if not isinstance(fields, dict) or not isinstance(original, dict):
            raise _unknown(container.path / pack.SOURCES)
        return {**fields, "original": original}
    name = root + pack.MANIFEST
    if name not in container.names:
        if root + pack.DIRECTORY in container.names:
            raise _unknown(container.path / name)
        return None
    manifest = _read_manifest(container.path / name, container.read(name, limits.JSON_BYTES))
    if not _has_members(manifest.get("models"), container.names):
        raise _unknown(container.path / name)
    return manifest


def _has_members(models: object, names: tuple[str, ...]) -> bool:
    """Whether a manifest says of each model which two libraries of the package are its own."""
    if not isinstance(models, dict):
        return False
    members = set(names)
    seen: list[str] = []
    for about in models.values():
        if not isinstance(about, dict):
            return False
        pair = (about.get("library"), about.get("original_library"))
        if pair == (None, None):
            continue
        libraries = [name for name in pair if isinstance(name, str) and name.endswith(".so")]
        folders = {PurePosixPath(name).parent for name in libraries}
        if len(libraries) != len(pair) or len(folders) != 1 or not members.issuperset(libraries):
            return False
        seen += libraries
    return len(set(seen)) == len(seen)


def _read_manifest(path: Path, data: bytes) -> Json:
    try:
        # Forged numbers are for those who use them: the members can still be restored.
        manifest = json_text.parse_object(data, lenient=True)
    except json_text.JsonError:
        raise _unknown(path) from None
    if (manifest.get("format"), manifest.get("version")) != (pack.FORMAT, pack.VERSION):
        raise _unknown(path)
    return manifest


def _unknown(path: Path) -> RewriterError:
    return RewriterError(
        "bad-manifest",
        f"{path}: no manifest that this version knows",
        hint="The package was patched by another version of inductor-rewriter, or damaged "
        "since: strip it with that version, or go back to the original.",
    )


def _what(names: tuple[str, ...]) -> str:
    """What a zip file without models of AOTInductor's is."""
    parts = {part for name in names for part in name.split("/")}
    if any("/models/" in f"/{name}" for name in names):
        return "it holds a program of torch.export that was not compiled"
    if "constants.pkl" in parts:
        return "it is a TorchScript model"
    if "data.pkl" in parts:
        return "it is a file of torch.save"
    return f"it has no {MODELS} directory"
