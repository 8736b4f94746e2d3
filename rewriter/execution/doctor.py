"""Checks whether an artifact can run on this machine, and if not, why.

The checks read the text of the artifact and the installed torch; the artifact itself is not run.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator
from importlib import import_module, metadata
from pathlib import Path
from pkgutil import resolve_name

from rewriter.artifact.opening import open_artifact
from rewriter.artifact.package.model import Package
from rewriter.artifact.types import Wrapper
from rewriter.core.scan import spans
from rewriter.core.text import counted
from rewriter.instrumentation.probes import PLAIN
from rewriter.instrumentation.rebuild import build_cache, machine
from rewriter.instrumentation.rebuild.types import Check
from rewriter.locate.python.imports import imported_from_torch
from rewriter.runtime import cache_directory, extension, recorder_library
from rewriter.runtime.build import Unavailable

_PROPERTIES = re.compile(r"DeviceProperties\(")
_CAPABILITY = re.compile(r"\bcc=(\d+)|(?P<stop>\))")
_INCLUDE = re.compile(r'#include "(/[^"]+)"')
_CUBIN = re.compile(r'loadKernel\(\s*"(/[^"]+)"')
_CUSTOM_OPERATOR = re.compile(r"torch\.ops\.(\w+)\.(\w+)")


def diagnose(path: str | Path | None = None) -> list[Check]:
    """Check this machine, and an artifact if one is given."""
    artifact = open_artifact(path) if path is not None else None
    checks = list(_machine())
    if isinstance(artifact, Package):
        from rewriter.instrumentation.rebuild.examine import examine

        checks += examine(artifact)
    elif artifact is not None and "torch" in sys.modules:
        for wrapper in artifact.wrappers:
            checks += _artifact(wrapper)
    return checks


def _machine() -> Iterator[Check]:
    yield Check("python", f"{platform.python_version()} ({sys.executable})")
    system, processor = platform.system(), platform.machine()
    is_tested = (system, processor) == ("Linux", "x86_64")
    state = "tested" if is_tested else "untested: what only reads and writes text is meant to work"
    yield Check("platform", f"{system} {processor}: {state}", True if is_tested else None)
    for name in ("torch", "libcst", "tree-sitter", "tree-sitter-cpp", "pyelftools"):
        yield _package(name, f"pip install {name}")
    yield _package("triton", "needed for wrappers with Triton kernels", is_required=False)
    hint = "install g++, or name a compiler in CXX: CPU kernels are compiled"
    compiler = machine.compiler()
    yield _required("C++ compiler", compiler or "none found", hint, is_there=bool(compiler))
    yield _builds()
    yield from _torch()
    yield from _recorder()


def _required(name: str, found: str, hint: str, *, is_there: bool) -> Check:
    """Something that has to be there; the hint says what to do if it is not."""
    return Check(name, found, is_there, "" if is_there else hint)


def _package(name: str, hint: str, *, is_required: bool = True) -> Check:
    try:
        return Check(name, metadata.version(name), True if is_required else None)
    except metadata.PackageNotFoundError:
        return Check(name, "not installed", False if is_required else None, hint)


def _torch() -> Iterator[Check]:
    """Whether torch works, and its GPU."""
    try:
        torch = import_module("torch")
    except Exception as error:
        yield Check("import torch", f"{type(error).__name__}: {error}", False, "reinstall torch")
        return
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    yield Check("GPU", name, None)


def _recorder() -> Iterator[Check]:
    """What records, which may be built first."""
    recorder, plain = recorder_library.find(), f"the probes {', '.join(PLAIN)} work, slower"
    if isinstance(recorder, Unavailable):
        yield Check("recorder", f"none: {recorder}", None, f"in wrappers in Python, {plain}")
        return
    yield Check("recorder", recorder._name, None)
    lines = extension.load()
    if isinstance(lines, Unavailable):
        yield Check("recorder in Python", f"none: {lines}", None, plain)
    else:
        yield Check("recorder in Python", str(lines.__file__), None)
    torch = machine.installed_torch()
    if torch is not None and "torch" in sys.modules and sys.modules["torch"].cuda.is_available():
        compiler: bytes = recorder.inductor_rewriter_gpu_compiler(os.fsencode(torch.root / "lib"))
        yield Check("measuring on the GPU", compiler.decode(), None)


def _builds() -> Check:
    """The cache of compiled libraries of packages."""
    usage = build_cache.usage()
    if usage is None:
        return Check("cache of builds", f"off ({cache_directory.VARIABLE})", None)
    size = f"{usage.size / 1e6:.1f} of {build_cache.LIMIT / 1e6:.0f} MB"
    what = f"{counted(usage.count, 'library')}, {size}, {usage.directory}"
    return Check("cache of builds", what, None)


def _artifact(wrapper: Wrapper) -> Iterator[Check]:
    text = wrapper.plain.data.decode("utf-8")
    launches = wrapper.launches
    kinds = sorted({launch.kind for launch in launches})
    yield Check(wrapper.name, f"{len(launches)} launches ({', '.join(kinds) or 'none'})")
    if wrapper.unrecognised:
        lines = ", ".join(str(call.line) for call in wrapper.unrecognised)
        yield Check("unrecognised calls", f"line {lines}", None, "they are not instrumented")
    if wrapper.probes is not None:
        exact = wrapper.probes.sha256
        yield Check("probes", f"{', '.join(wrapper.probes.probes)}; original {exact[:16]}", None)
    if wrapper.is_module:
        yield _torch_interface(wrapper)
    else:
        what = "the source of a model compiled ahead of time"
        hint = "it can be listed, instrumented and stripped; it runs as part of its package"
        yield Check("kind of wrapper", what, None, hint)
    yield from _devices(wrapper, text)
    if "async_compile.triton(" in text and wrapper.is_module:
        yield _package("triton", "pip install triton")
    yield from _files(wrapper, text)
    yield from _operators(text)
    if names := wrapper.located.loader_globals:
        hint = "Inductor's loader sets them; get_args() makes random ones, --constants real ones"
        yield Check("loader globals", ", ".join(names), None, hint)


def _torch_interface(wrapper: Wrapper) -> Check:
    """Whether this torch has what the wrapper imports: wrappers do not name their release of torch.

    Functions of the wrapper's device are skipped: builds for other devices lack them.
    """
    own = [f"_{device}_" for device in wrapper.devices]
    missing = [
        name
        for name in imported_from_torch(wrapper.plain)
        if not _resolves(name) and not any(part in name for part in own)
    ]
    has = f"lacks {', '.join(missing)}" if missing else "has all that the wrapper imports"
    found = f"torch {metadata.version('torch')} {has}"
    hint = "the wrapper comes from another release of torch: install that one"
    return _required("torch interface", found, hint, is_there=not missing)


def _resolves(dotted: str) -> bool:
    try:
        return resolve_name(dotted) is not None
    except (ImportError, AttributeError):
        return False


def _devices(wrapper: Wrapper, text: str) -> Iterator[Check]:
    torch = import_module("torch")
    for device in wrapper.devices:
        module = getattr(torch, device, None)
        here = bool(module) and bool(getattr(module, "is_available", lambda: False)())
        found = f"{device}: {'available' if here else 'not on this machine'}"
        hint = "it can be listed, instrumented and stripped here, but not run"
        yield _required("device", found, hint, is_there=here)
    if not wrapper.devices:
        yield Check("device", "cpu")
    capabilities = {match[1] for _, match in spans(_PROPERTIES, _CAPABILITY, text)}
    if "cuda" in wrapper.devices and capabilities and torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        if capabilities != {str(major * 10 + minor)}:
            found = f"made for {', '.join(sorted(capabilities))}, here {major * 10 + minor}"
            hint = "tile sizes were chosen for the other GPU; results may differ in the last bits"
            yield Check("compute capability", found, None, hint)


def _files(wrapper: Wrapper, text: str) -> Iterator[Check]:
    """Files that a wrapper refers to by their path in the cache of the machine that compiled it:
    a header, up to torch 2.6, and the kernels of C++ wrappers for GPUs.
    """
    kernels = [("kernels", _CUBIN)] if wrapper.is_module else []  # a package contains them
    for what, pattern in (("headers", _INCLUDE), *kernels):
        missing = sorted(path for path in set(pattern.findall(text)) if not Path(path).exists())
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            found = f"not on this machine: {', '.join(missing[:3])}{more}"
            hint = "they lie in the Inductor cache of the machine that made the wrapper"
            yield Check(what, found, False, hint)


def _operators(text: str) -> Iterator[Check]:
    torch = import_module("torch")
    code = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    missing = sorted(
        f"torch.ops.{space}.{name}"
        for space, name in set(_CUSTOM_OPERATOR.findall(code))
        if not name.startswith("_") and not hasattr(getattr(torch.ops, space), name)
    )
    if missing:
        hint = "pass `rewriter run --import MODULE` with the module that registers them"
        yield Check("custom operators", f"not registered: {', '.join(missing)}", None, hint)
