"""Runs an AOTInductor library that has no source, and records what it launches.

Without a source to put probes into, an interposer sits between the library and torch. The first run
finds out what is launched, in which order, and what each launch changes; the second run passes the
same launches to the probes. Each run is a separate process.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rewriter.artifact.lone_library import LoneLibrary
from rewriter.core import files
from rewriter.core.errors import RewriterError
from rewriter.core.types import Json, Role
from rewriter.dump.directory import dump_directory, require_free
from rewriter.execution import interposer
from rewriter.execution.collecting import collect, kept_dump
from rewriter.execution.host_process import HostRequest, HostRun, run_host
from rewriter.execution.run_result import RunResult
from rewriter.instrumentation.planning import plan_table
from rewriter.locate.arguments import distinct_names
from rewriter.locate.types import Argument, EntryPoint, InputSpec, InsertionPoint, Launch, Located

_SCOPE = "run_impl"
_NOWHERE = InsertionPoint(0, 0, b"")


@dataclass(frozen=True)
class LibraryRequest(HostRequest):
    """One run of a library."""

    library: LoneLibrary


@dataclass(frozen=True)
class LibraryRun:
    """A run of a library. `hidden` are kernels that could not be recorded; `begun` are the launches
    of the first run, if that did not come to its end.
    """

    result: RunResult
    hidden: tuple[str, ...]
    begun: tuple[str, ...] = ()


def run_library(request: LibraryRequest) -> LibraryRun:
    """Run a library. An interrupted run is a result, too. Raises `RewriterError` if it cannot be
    run."""
    _check(request)
    with tempfile.TemporaryDirectory(prefix="rewriter-") as folder:
        scratch = Path(folder)
        built = _build(request, scratch)
        begun = scratch / "begun"
        muted = replace(request.output, muted=request.selection is not None)
        finding = replace(request, output=muted)
        first = _host(finding, scratch, built, {"begun": str(begun)}, None)
        launched = tuple(begun.read_text().splitlines()) if begun.exists() else ()
        if request.selection is None or first.ended.code != 0:
            result = _collected(request, first, (), None)
            return LibraryRun(result, _hidden(first), launched)
        located, order = _located(request.library, first.report, built.names)
        sha256 = hashlib.sha256(request.library.path.read_bytes()).hexdigest()
        table = plan_table(request.library.path.name, sha256, located, request.selection)
        table |= {"order": order, "given": list(located.entries[0].inputs)}
        dump = dump_directory(request.library.path, request.dump, overwrite=request.overwrite)
        second = _host(request, scratch, built, {"table": table}, dump)
        kept = kept_dump(dump, "file", request.seed)
        result = _collected(request, second, located.launches, kept)
        return LibraryRun(result, _hidden(second))


def _hidden(host: HostRun) -> tuple[str, ...]:
    return tuple(host.report.get("hidden", ()))


def _check(request: LibraryRequest) -> None:
    path = request.library.path
    if request.args is None:
        raise RewriterError(
            "no-inputs",
            f"{path}: a library contains no inputs",
            hint="Pass --args FILE.pt with a list of what the model's forward takes.",
        )
    files.require_file(request.args, hint="Make it with torch.save([input, …], FILE).")
    if request.selection is not None and request.dump is not None:
        require_free(request.dump, overwrite=request.overwrite)


def _build(request: LibraryRequest, scratch: Path) -> interposer.Interposer:
    library = request.library
    functions = [call.name for call in library.calls]
    kernels = [kernel.name for kernel in library.kernels]
    return interposer.build(functions, kernels, library.gpu_kernels, scratch / "interposer.so")


def _host(
    request: LibraryRequest,
    scratch: Path,
    built: interposer.Interposer,
    added: Json,
    dump: Path | None,
) -> HostRun:
    library = request.library
    first = len(library.calls)
    specification: Json = {
        "library": str(library.path.resolve()),
        "interposer": str(built.path),
        "names": list(built.names),
        "kernels": [
            {"name": kernel.name, "offset": kernel.offset, "number": first + position}
            for position, kernel in enumerate(library.kernels)
        ],
        "device": library.device,
        "devices": [] if library.device == "cpu" else [library.device],
        "imports": list(request.imports),
        "args": str(request.args),
        "inputs": None,
        "seed": request.seed,
        "table": None,
        **added,
    }
    loaded_first = [str(built.path), os.environ.get("LD_PRELOAD", "")]
    preloaded = {"LD_PRELOAD": ":".join(filter(None, loaded_first))}
    return run_host(request, specification, scratch, dump, preloaded)


def _located(
    library: LoneLibrary, report: Json, names: Sequence[str]
) -> tuple[Located, list[Json]]:
    """The launches of the first run, in the form in which they are located in a source, and their
    order."""
    kinds = {call.name: call.kind for call in library.calls}
    kinds |= dict.fromkeys((kernel.name for kernel in library.kernels), "cpp")
    launches, order = [], []
    for index, row in enumerate(report["launches"]):
        kernel = names[row["name"]]
        arguments = distinct_names([_argument(kernel, *one) for one in _marked(kernel, row)])
        launches.append(
            Launch(
                index, _SCOPE, kernel, kinds.get(kernel, "triton"), 0, arguments, (), (), _NOWHERE
            )
        )
        order.append({"name": row["name"], "args": [argument.name for argument in arguments]})
    inputs = tuple(report["inputs"])
    specs = tuple(map(InputSpec, inputs))
    entry = EntryPoint(_SCOPE, 0, b"", inputs, 0, tuple(report["returned"]), specs)
    return Located(tuple(launches), (), (entry,), 0), order


def _marked(kernel: str, row: Json) -> list[tuple[str, bool, bool, bool, str]]:
    """The arguments of a launch. `op_out` writes its first one, by the convention of the C shim."""
    arguments = [tuple(one) for one in row["args"]]
    if kernel.startswith("aoti_torch_") and kernel.endswith("_out") and arguments:
        base, is_new, _, was_written, shape = arguments[0]
        arguments[0] = base, is_new, True, was_written, shape
    return arguments


def _argument(
    kernel: str, base: str, is_new: bool, is_changed: bool, was_written: bool, shape: str
) -> Argument:
    """An argument, with its role by what the launch did: an unchanged one was read."""
    role: Role = "in"
    if is_new or (not was_written):
        # It held no value that could have been read.
        role = "out"
    elif is_changed:
        role = "out" if kernel.endswith("_out") else "inout"
    return Argument(base, f"{base} {shape}", base, role, "tensor")


def _collected(
    request: LibraryRequest, host: HostRun, launches: tuple[Launch, ...], dump: Path | None
) -> RunResult:
    path = request.library.path
    return collect(path, host, dump, launches=launches, inputs="file")
