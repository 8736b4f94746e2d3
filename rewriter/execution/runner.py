"""Runs a wrapper, with or without probes, in its own process, and reads the result.

A run is a `RunRequest`, which is checked, prepared, executed and collected.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from rewriter.artifact.package.model import Package, open_package
from rewriter.artifact.recognise import program_hint
from rewriter.artifact.types import Artifact, Loader, Wrapper
from rewriter.core import files, json_text
from rewriter.core.errors import RewriterError
from rewriter.core.quantities import Calls
from rewriter.core.types import Json
from rewriter.dump import names as dumped
from rewriter.dump.directory import dump_directory, require_free
from rewriter.dump.names import Names
from rewriter.execution import saved_artifact
from rewriter.execution.collecting import collect, kept_dump
from rewriter.execution.host_process import HostRequest, run_host
from rewriter.execution.replay import RecordedCall
from rewriter.execution.run_result import Inputs, RunResult
from rewriter.execution.saved_artifact import loader_of
from rewriter.instrumentation.editable import already_instrumented
from rewriter.instrumentation.instrument import instrument
from rewriter.locate.languages import language
from rewriter.model_names.names import of_artifact
from rewriter.model_names.trace import digest

# The environment of a run whose probes print nothing; its dump has everything.
SILENT: Mapping[str, str] = {"REWRITER_QUIET": "1"}


@dataclass(frozen=True)
class RunRequest(HostRequest):
    """One run of a wrapper. The fields are parameters of `rewriter.run`, which explains them."""

    artifact: Artifact
    recorded: RecordedCall | None = None
    constants: Path | None = None
    # The file of autotuning choices, so that runs that are compared choose the same configurations.
    tuned: Path | None = None
    # On the CPU, with Triton's interpreter.
    interpret: bool = False

    @property
    def wrapper(self) -> Wrapper:
        return self.artifact.only

    @property
    def package(self) -> Package | None:
        return self.artifact if isinstance(self.artifact, Package) else None

    @property
    def loader(self) -> Loader | None:
        """How torch loads the artifact; `None` if only its wrapper is loaded and called."""
        return None if self.args is None else loader_of(self.artifact)

    @property
    def is_probed(self) -> bool:
        """Whether the run leaves a dump."""
        has_probes = self.wrapper.probes is not None and not self.wrapper.replaced
        return self.selection is not None or has_probes

    @property
    def inputs(self) -> Inputs:
        """Where the inputs are from."""
        return "recorded" if self.recorded else "random" if self.args is None else "file"


def run_wrapper(request: RunRequest) -> RunResult:
    """Run a wrapper or a package once; see `rewriter.run`. An interrupted run is a result, too."""
    _check(request)
    with tempfile.TemporaryDirectory(prefix="rewriter-") as scratch:
        file, dump = _prepare(request, Path(scratch))
        # What torch loads goes through its cache, where files of an earlier run may be found
        # instead.
        added = {"TORCHINDUCTOR_CACHE_DIR": str(Path(scratch) / "cache")} if request.loader else {}
        added |= {"TRITON_INTERPRET": "1"} if request.interpret else {}
        specification = _specification(request, file)
        host = run_host(request, specification, Path(scratch), dump, added)
    return collect(
        request.wrapper.path,
        host,
        kept_dump(dump, request.inputs, request.seed),
        launches=request.wrapper.launches,
        inputs=request.inputs,
    )


def blocking_environment() -> dict[str, str]:
    """Variables that make faults on a GPU show where they happen.

    Each launch is waited for. Freed memory is not cached, since a bad access to it would go
    unnoticed: step 2 of the debugging guide of AOTInductor.
    """
    return {"CUDA_LAUNCH_BLOCKING": "1", "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


def _check(request: RunRequest) -> None:
    """Refuse requests that cannot be run, before anything is done."""
    artifact, wrapper, selection = request.artifact, request.wrapper, request.selection
    if wrapper.is_fragment:
        raise RewriterError(
            "not-a-wrapper",
            f"{wrapper.name} is a part of a wrapper, or a program that launches kernels itself",
            hint=program_hint(wrapper.path),
        )
    if not (artifact.is_rebuilt or wrapper.is_module):
        raise RewriterError(
            "not-runnable",
            f"{wrapper.path} is the source of a model compiled ahead of time: it runs only as part "
            "of the package that it was made for",
            hint="Run the .pt2 package; instrument, strip and list work on this file.",
        )
    if request.interpret and (artifact.is_rebuilt or request.loader):
        raise RewriterError(
            "not-interpreted",
            f"{artifact.path} has compiled kernels, and Triton's interpreter needs their source",
            hint="Only the output_code.py of torch.compile can be interpreted.",
        )
    for path in (request.args, request.constants):
        if path is not None:
            files.require_file(path, hint="Make it with torch.save([input, …], FILE).")
    if artifact.is_rebuilt and request.args is None:
        raise RewriterError(
            "no-inputs",
            f"{artifact.path}: a package contains no inputs, and this model takes "
            f"{len(wrapper.located.entries[0].inputs)}",
            hint="Pass --args FILE.pt with a list of what the model's forward takes.",
        )
    if request.constants is not None and (artifact.is_rebuilt or request.loader):
        own = "is a package, which has its own"
        why = own if artifact.is_rebuilt else "is loaded by torch, which sets them"
        raise RewriterError(
            "idle-options",
            f"--constants given, but {artifact.path} {why}",
            hint="Drop the option.",
        )
    if selection is not None and selection.calls and 0 not in Calls(selection.calls):
        raise RewriterError(
            "idle-options",
            f"--calls {selection.calls} leaves nothing: a wrapper that is run alone is called once",
            hint="Its only call is call 0. Of a program: rewriter run --calls … -- COMMAND",
        )
    if selection is not None and wrapper.probes is not None:
        raise already_instrumented(wrapper, "Run it without probe options, or run the plain file.")
    if request.is_probed and request.dump is not None:
        require_free(request.dump, overwrite=request.overwrite)


def _prepare(request: RunRequest, scratch: Path) -> tuple[Path, Path | None]:
    """Make the file to run, with probes, and the directory for its dump, if it leaves one."""
    file, source = _probed_file(request, scratch)
    if not request.is_probed:
        return file, None
    wrapper = request.wrapper
    is_whole = request.artifact.is_rebuilt or request.loader is not None
    name = request.artifact.path if is_whole else wrapper.path
    dump = dump_directory(name, request.dump, overwrite=request.overwrite)
    (dump / wrapper.path.name).write_bytes(source)
    _write_sources(request, dump)
    _write_names(request, dump)
    return file, dump


def _write_sources(request: RunRequest, dump: Path) -> None:
    """Copy the kernels and operators that the wrapper of a package refers to into the dump."""
    package, wrapper = request.package, request.wrapper
    if package is None:
        return
    model = next((x for x in package.models if x.wrapper == wrapper.name), None)
    for name, data in ({} if model is None else model.kernels).items():
        (dump / PurePath(name).name).write_bytes(data)
    operators = language(wrapper.language).operators_file(wrapper.path.name)
    if operators and wrapper.operators:
        text = json_text.encode({"nodes": list(wrapper.operators)})
        (dump / operators).write_text(text, encoding="utf-8")


def _write_names(request: RunRequest, dump: Path) -> None:
    """Add to a dump the names in the model of what the wrapper computes, if they are known."""
    if request.artifact.is_rebuilt:
        return
    if request.recorded is not None:
        run = request.recorded.run
        names: Names | None = replace(run.names, lowered=run.graph)
    else:
        artifact = replace(request.artifact, wrappers=(request.wrapper,))
        names = of_artifact(artifact).get(request.wrapper.name)
    if names is not None:
        dumped.write(dump, {digest(request.wrapper.restored.source): names})


def _probed_file(request: RunRequest, scratch: Path) -> tuple[Path, bytes]:
    """The file to run, and the source of its wrapper."""
    artifact, wrapper, selection = request.artifact, request.wrapper, request.selection
    package = request.package
    if request.loader is not None:
        return saved_artifact.write_copy(artifact, selection, scratch)
    if package is None:
        source = wrapper.source
        if selection is not None:
            source = instrument(artifact, selection).source
        file = scratch / wrapper.path.name
        file.write_bytes(source)
        return file, source
    if package.is_sources:
        raise RewriterError(
            "not-runnable",
            f"{artifact.path} holds sources, which are not built yet",
            hint="Build the package: the script in the directory does that.",
        )
    from rewriter.instrumentation.rebuild import patch, probed_models, script

    if package.is_folder:
        file = scratch / "package.pt2"
        script.copy_zip(package, file)
        package = open_package(file, (package.models[0].name,))
    if selection is None:
        return package.path, wrapper.source
    built = scratch / "probed.pt2"
    # No check: it is run next.
    with patch.begin(package, check=False, runs_here=True) as begun:
        probed = probed_models.instrument(package, selection)
        patch.rebuild(probed, built, begun, report=request.report)
    return built, probed[0].result.source


def _specification(request: RunRequest, file: Path) -> Json:
    """The specification for the host; `rewriter/runtime/host/wrapper.py` explains it."""
    wrapper, package, recorded = request.wrapper, request.package, request.recorded
    entries = wrapper.located.entries
    return {
        "wrapper": str(file),
        "model": package.models[0].name if package else None,
        "saved": request.loader,
        "pickled": package is not None and package.models[0].weights == "pickled",
        "imports": list(request.imports),
        "args": request.args and str(request.args),
        "recorded": recorded
        and {"inputs": list(recorded.inputs), "outputs": list(recorded.outputs)},
        "constants": request.constants and str(request.constants),
        "devices": list(wrapper.devices),
        "seed": request.seed,
        "tuned": request.tuned and str(request.tuned.absolute()),
        "interpret": request.interpret,
        "inputs": len(entries[0].inputs) if entries else 0,
        "loader_globals": list(wrapper.located.loader_globals),
        "beside": None,
    }


def seconds_beside(request: RunRequest, other: bytes | Path) -> tuple[float, float] | str:
    """How long a call of a plain wrapper takes, and one of the same with another source, or of a
    package and another one, timed in turns in one process; or why that cannot be said."""
    _check(request)
    with tempfile.TemporaryDirectory(prefix="rewriter-") as name:
        scratch = Path(name)
        files = scratch / "plain.py", scratch / "beside.py"
        if isinstance(other, Path):
            files = request.artifact.path, other
        else:
            for file, source in zip(files, (request.wrapper.source, other), strict=True):
                file.write_bytes(source)
        specification = _specification(request, files[0]) | {"beside": str(files[1])}
        host = run_host(request, specification, scratch, None, {})
    found = host.report.get("seconds")
    return (found[0], found[1]) if found else host.report.get("message", str(host.ended))
