"""Runs a wrapper, plain or probed, in a process of its own, and reads back what it left."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rewriter.artifact.types import Artifact
from rewriter.core import json_text
from rewriter.core.errors import BAD_INPUT, FAILED, INTERRUPTED, RewriterError
from rewriter.core.types import Json
from rewriter.dump.directory import dump_directory, require_free
from rewriter.dump.reading import is_recorded, open_dump
from rewriter.dump.summary import summarise
from rewriter.execution.exit_status import ExitStatus
from rewriter.execution.replay import RecordedCall
from rewriter.execution.watch import watch
from rewriter.instrumentation import api
from rewriter.instrumentation.types import Selection
from rewriter.locate.types import Launch
from rewriter.runtime.calls import Calls

# Random ones are those of the wrapper's own `get_args()`.
Inputs = Literal["random", "file", "recorded"]
# What to do about a problem that the host reports.
_HINTS = {
    "loader-globals": "Pass --constants FILE.pt with a dict from these names to tensors, or drop "
    "--args: the wrapper's own get_args() then fills them with random values.",
    "no-entry": "Expected the output_code.py of torch.compile.",
    "no-inputs": "Pass --args FILE.pt with a list of inputs.",
    "bad-args-file": "Make it with torch.save([input, …], FILE); only tensors and numbers load.",
    "no-device": "`rewriter doctor` compares an artifact with this machine; list, instrument and "
    "strip work without the device.",
    "missing-module": "`rewriter doctor` says what this machine lacks for the wrapper.",
    "bad-import": "Pass a module that can be imported from here, or the path of a Python file.",
}


@dataclass(frozen=True)
class Ran:
    """What a run left. `events` are the rows of `events.jsonl` of every call, in order.

    `code` is that of the contract: 0 it ran, 1 there is a finding: it crashed, was given what it
    does not expect, or there are NaN, or infinities that a launch computed, or a recorded call
    returned something else. `outputs` describe what it returned, with a digest of the bytes;
    `random_globals` were filled with random values because only Inductor's loader knows theirs.
    `signal` is the signal that ended the process, if one did; `timed_out` says that it was stopped
    at the time limit. `exit_code` is the process's own; `interrupted` is the signal that this one
    was given, which is why it was stopped, and then `code` is 130. `inputs` says where its inputs
    are from, and `replayed`, of a recorded call, of each output whether it is `equal` to the
    recorded one, bit for bit, `differs`, is `unknown`, or a `value` that is no tensor.
    """

    path: Path
    code: int
    dump: Path | None
    launches: tuple[Launch, ...]
    events: tuple[Json, ...]
    outputs: tuple[Json, ...]
    random_globals: tuple[str, ...]
    seconds: float
    message: str = ""
    signal: int = 0
    timed_out: bool = False
    exit_code: int | None = 0
    interrupted: int = 0
    inputs: Inputs = "random"
    replayed: tuple[str, ...] = ()

    @property
    def ended(self) -> ExitStatus:
        """How the process ended."""
        return ExitStatus(
            self.exit_code, self.signal, self.timed_out, self.message, self.interrupted
        )

    @property
    def crashed(self) -> bool:
        """Whether it did not come to its end."""
        return self.exit_code != 0

    @property
    def unexpected(self) -> tuple[Json, ...]:
        """The rows of inputs that are not what the wrapper expects."""
        return tuple(row for row in self.events if "unexpected" in row)

    @property
    def is_timed(self) -> bool:
        """Whether launches were timed."""
        return any("time" in row for row in self.events)

    @property
    def last_launch(self) -> Launch | None:
        """The launch that the last event belongs to: after a crash, the one that was running."""
        if (last := self._last) is None:
            return None
        return next(launch for launch in self.launches if launch.index == last["launch"])

    @property
    def last_phase(self) -> str:
        """The phase of the last event, empty if no launch left one."""
        return self._last["phase"] if self._last else ""

    @property
    def _last(self) -> Json | None:
        return next(
            (row for row in reversed(self.events) if "launch" in row and "time" not in row), None
        )


class InterruptedRunError(KeyboardInterrupt):
    """This process was told to end while a wrapper ran, which was stopped: `ran` is what it left.

    To a caller that does not catch it, it is a KeyboardInterrupt like any other.
    """

    def __init__(self, ran: Ran) -> None:
        super().__init__(str(ran.ended))
        self.ran = ran


def run(
    artifact: str | Path | Artifact,
    selection: Selection | None = None,
    *,
    args: str | Path | None = None,
    recorded: RecordedCall | None = None,
    constants: str | Path | None = None,
    imports: Sequence[str] = (),
    dump: str | Path | None = None,
    seed: int = 0,
    overwrite: bool = False,
    timeout: float | None = None,
    environment: Mapping[str, str] = {},
    command: str = "",
    quiet: bool = False,
    muted: bool = False,
    progress: Callable[[int], None] | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> Ran:
    """Run a wrapper once, with its own `get_args()`, the inputs in `args`, or those of a call that
    was recorded.

    A model of a package is run as its loader does, on what its `forward` takes; with a selection it
    is built with probes first, and `report` is told of the steps.

    With a selection, or where the wrapper is instrumented already, a dump is written to `dump`;
    by default a new directory beside the current one's other files. `progress` is called with the
    number of launches begun, while the wrapper runs. `quiet` sends its standard output to standard
    error, `muted` drops both. After `timeout` seconds the process is killed. `environment` is added
    to that of the process; see `blocking_environment`.

    Raises `RewriterError` where the inputs do not fit, `InterruptedRunError` on Ctrl-C. A crash of
    the wrapper is a result.
    """
    if not isinstance(artifact, Artifact):
        artifact = api.open(artifact)
    wrapper = artifact.only
    if artifact.package is None and not wrapper.is_module:
        raise RewriterError(
            "not-runnable",
            f"{wrapper.path} is the source of a model compiled ahead of time: it runs only as part "
            "of the package that it was made for",
            hint="Run the .pt2 package; instrument, strip and list work on this file.",
        )
    for path in (args, constants):
        if path is not None and not Path(path).is_file():
            raise RewriterError(
                "unreadable",
                f"cannot read {path}: no such file",
                hint="Make it with torch.save([input, …], FILE).",
            )
    if artifact.package is not None and args is None:
        raise RewriterError(
            "no-inputs",
            f"{artifact.path}: a package brings no inputs, and this model takes "
            f"{len(wrapper.located.entries[0].inputs)}",
            hint="Pass --args FILE.pt with a list of what the model's forward takes.",
        )
    if artifact.package is not None and constants is not None:
        raise RewriterError(
            "idle-options",
            f"--constants given, but {artifact.path} is a package, which has its own",
            hint="Drop the option.",
        )
    if selection is not None and selection.calls and 0 not in Calls(selection.calls):
        raise RewriterError(
            "idle-options",
            f"--calls {selection.calls} leaves nothing: a wrapper that is run alone is called once",
            hint="Its only call is call 0. Of a program: rewriter run --calls … -- COMMAND",
        )
    target = None
    if selection is not None and wrapper.probes is not None:
        raise api.already_instrumented(
            wrapper, "Run it without probe options, or run the plain file."
        )
    with tempfile.TemporaryDirectory(prefix="rewriter-") as scratch:
        dumps = selection is not None or wrapper.probes is not None
        if dumps and dump is not None:
            require_free(Path(dump), overwrite=overwrite)
        file, source = _prepare(artifact, selection, Path(scratch), report)
        if dumps:
            name = artifact.path if artifact.package else wrapper.path
            target = dump_directory(name, dump, overwrite=overwrite)
            (target / wrapper.path.name).write_bytes(source)
        said_in = Path(scratch) / "report.json"
        entries = wrapper.located.entries
        package = artifact.package
        spec = {
            "wrapper": str(file),
            "model": package.models[0].name if package else None,
            "pickled": package is not None and package.models[0].weights == "pickled",
            "imports": list(imports),
            "args": args and str(args),
            "recorded": recorded
            and {"inputs": list(recorded.inputs), "outputs": list(recorded.outputs)},
            "constants": constants and str(constants),
            "devices": list(wrapper.devices),
            "seed": seed,
            "inputs": len(entries[0].inputs) if entries else 0,
            "loader_globals": list(wrapper.located.loader_globals),
            "report": str(said_in),
        }
        started = time.perf_counter()
        added = {**environment, "REWRITER_COMMAND": command or "rewriter.run"}
        ended = _host(
            spec,
            Path(scratch),
            target,
            added,
            timeout=timeout,
            quiet=quiet,
            muted=muted,
            progress=progress,
        )
        seconds = time.perf_counter() - started
        said: dict[str, Any] = (
            json_text.parse_object(said_in.read_bytes()) if said_in.exists() else {}
        )
    if target is not None and not (target / "manifest.json").exists():
        # Nothing was recorded: what is there is no dump.
        shutil.rmtree(target)
        target = None
    origin: Inputs = "recorded" if recorded else "random" if args is None else "file"
    if target is not None:
        _tell_inputs(target, origin, seed)
    code = ended.code
    if code == BAD_INPUT and "problem" in said:
        raise RewriterError(
            said["problem"],
            f"{wrapper.path}: {said['message']}",
            hint=_HINTS[said["problem"]],
            code=FAILED if said["problem"] == "missing-module" else BAD_INPUT,
        )
    if code is not None and code > 0 and not said:
        raise RewriterError(
            "host-failed",
            f"the process that runs {wrapper.path} could not start (exit code {code})",
            hint="`rewriter doctor` says whether torch can be imported.",
            code=FAILED,
        )
    runs = open_dump(target).runs if target and is_recorded(target) else ()
    events = tuple(row for each in runs for row in each.events())
    findings = summarise(target).findings if target else ()
    finding = code != 0 or findings or any(row.get("nan") for row in said.get("outputs", ()))
    finding = finding or "differs" in said.get("replayed", ())
    ran = Ran(
        path=wrapper.path,
        code=INTERRUPTED if ended.interrupted else int(bool(finding)),
        dump=target,
        launches=wrapper.launches,
        events=events,
        outputs=tuple(said.get("outputs", ())),
        random_globals=tuple(said.get("random_globals", ())),
        seconds=seconds,
        message=ended.message or said.get("message", ""),
        signal=ended.signal,
        timed_out=ended.timed_out,
        exit_code=code,
        interrupted=ended.interrupted,
        inputs=origin,
        replayed=tuple(said.get("replayed", ())),
    )
    if ran.interrupted:
        raise InterruptedRunError(ran)
    return ran


def blocking_environment() -> dict[str, str]:
    """What makes faults on a GPU show where they happen.

    Each launch is waited for, and no memory is kept that a fault could fall into unnoticed: step 2
    of the debugging guide of AOTInductor.
    """
    return {"CUDA_LAUNCH_BLOCKING": "1", "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


def _prepare(
    artifact: Artifact, selection: Selection | None, scratch: Path, report: Callable[[str], None]
) -> tuple[Path, bytes]:
    """The file to run, and the source of its wrapper as it will be."""
    wrapper, package = artifact.only, artifact.package
    if package is None:
        source = wrapper.source
        if selection is not None:
            source = api.instrument(artifact, selection).source
        file = scratch / wrapper.path.name
        file.write_bytes(source)
        return file, source
    if package.is_sources:
        raise RewriterError(
            "not-runnable",
            f"{artifact.path} holds sources, which are not built yet",
            hint="Build the package: the script in the directory does that.",
        )
    from rewriter.rebuild import patch

    if package.is_folder:
        file = scratch / "package.pt2"
        patch.copy_zip(package, file)
        artifact = api.open(file, models=[package.models[0].name])
    if selection is None:
        return artifact.path, wrapper.source
    probed = patch.instrument(artifact, selection)
    built = scratch / "probed.pt2"
    # Running it checks it.
    patch.rebuild(artifact, probed, built, check=False, runs_here=True, report=report)
    return built, probed[0].result.source


def _tell_inputs(dump: Path, inputs: Inputs, seed: int) -> None:
    """Add to the manifest of a dump where the inputs were from: who reads it has to know."""
    path = dump / "manifest.json"
    facts = json_text.parse_object(path.read_bytes()) | {"inputs": inputs, "seed": seed}
    path.write_text(json_text.encode(facts, indent=1) + "\n", encoding="utf-8")


def _event_files(dump: Path) -> list[Path]:
    """The events of every call, by rank and by the number of the call."""

    def numbers(file: Path) -> list[int]:
        return [int(number) for number in re.findall(r"\d+", str(file.relative_to(dump)))]

    return sorted(dump.glob("rank*/run*/events.jsonl"), key=numbers)


def _host(
    spec: Json,
    scratch: Path,
    dump: Path | None,
    added: Mapping[str, str],
    *,
    timeout: float | None,
    quiet: bool,
    muted: bool,
    progress: Callable[[int], None] | None,
) -> ExitStatus:
    """Run the host process; how it ended."""
    file = scratch / "spec.json"
    file.write_text(json_text.encode(spec), encoding="utf-8")
    # The child finds this very package, whatever the working directory holds.
    home = str(Path(__file__).parents[2])
    program = (
        f"import sys; sys.path[0] = {home!r}; "
        "from rewriter.runtime.host.wrapper import script; script()"
    )
    environment = {**os.environ, **added}
    if dump is None:
        environment.pop("REWRITER_DUMP", None)
    else:
        environment["REWRITER_DUMP"] = str(dump)

    def look() -> None:
        if progress and dump:
            progress(_launches_begun(dump))

    return watch(
        [sys.executable, "-c", program, str(file)],
        environment,
        timeout=timeout,
        stdout=subprocess.DEVNULL if muted else sys.stderr if quiet else None,
        stderr=subprocess.DEVNULL if muted else None,
        look=look if progress and dump else None,
    )


def _launches_begun(dump: Path) -> int:
    """How far the running wrapper is, from the end of its events."""
    files = _event_files(dump)
    if not files:
        return 0
    try:
        with files[-1].open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return 0  # of an earlier call, which the dump does not keep
    try:
        return int(json_text.parse_object(lines[-1]).get("launch", -1)) + 1 if lines else 0
    except (ValueError, TypeError):
        return 0
