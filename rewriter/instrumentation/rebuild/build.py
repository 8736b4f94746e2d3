"""Runs compiler and linker for the recipes of a package, in a directory that goes away again."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event

from rewriter.artifact.package.pack import sha256
from rewriter.core.errors import FAILED, RewriterError
from rewriter.core.processes import Process
from rewriter.instrumentation.rebuild import build_cache
from rewriter.instrumentation.rebuild.build_steps import (
    ORIGIN,
    PRELUDE,
    RESULT,
    BuildStep,
    Job,
    beside,
    compile_steps,
    link_step,
    without_header,
)
from rewriter.instrumentation.rebuild.machine import Machine
from rewriter.instrumentation.rebuild.recipe import Flags

# Of weights behind a library, torch/csrc/inductor/aoti_runtime/model_base.h.
_ALIGNMENT = 0x4000
# What takes a compiler less time and changes nothing that it writes: no warnings, which nobody
# would see; the assembler at the same time; no collection of memory below 1 GiB (it is in KiB, and
# clang ignores it).
_QUICKER = ("-w", "-pipe", "--param=ggc-min-heapsize=1048576")
_ERROR = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<what>.*)$", re.M
)
_MORE = 3  # errors that are shown

Report = Callable[[str], None]


@dataclass
class _Run:
    """What runs now, so that all of it can be stopped."""

    stopped: Event = field(default_factory=Event)
    processes: set[Process] = field(default_factory=set)


def build(jobs: Mapping[str, Job], scratch: Path, report: Report) -> dict[str, Path]:
    """Build the library of each job; returns their files in `scratch` by the same names.

    Raises `RewriterError` with the line that does not compile. Everything that was started has
    ended by then.
    """
    folders = {name: scratch / str(number) for number, name in enumerate(jobs)}
    compiles: list[BuildStep] = []
    links: list[BuildStep] = []
    keys: dict[str, str] = {}
    headers: dict[Path, Sequence[Path]] = {}  # by source; of those of which they are known
    for name, job in jobs.items():
        folders[name].mkdir()
        steps = compile_steps(job, folders[name])
        linking = link_step(job, folders[name])
        if build_cache.directory() is not None:
            key = _key(job, [*steps, linking], folders[name])
            if (kept := build_cache.find(key)) is not None:
                (folders[name] / RESULT).write_bytes(kept.content)
                (folders[name] / RESULT).chmod(0o755)
                report(f"{linking.about}: built before, nothing to compile")
                continue
            keys[name] = key
            steps = [replace(step, key=_object_key(step)) for step in steps]
        compiles += map(_as_compiled, steps)
        links.append(linking)
        if job.links:
            (folders[name] / ORIGIN).mkdir()
            assert job.unpacked is not None
            os.symlink(job.unpacked.path.resolve(), folders[name] / beside(job.recipe.model))

    # What is compiled does not wait for what is found: some objects have hundreds of headers.
    _run_all(compiles, lambda step, state: _compiled(step, state, headers, report))
    _run_all(links, lambda step, state: _run(step, state, report))
    for name, job in jobs.items():
        if not (folders[name] / RESULT).is_file():
            raise RewriterError(
                "link-failed",
                f"the compiler said nothing and wrote no library of {job.recipe.model.name}",
                hint="Nothing was written. Name another compiler in CXX.",
                code=FAILED,
            )
        if name in keys:
            _keep(keys[name], folders[name], headers)
        if not job.links and job.recipe.model.weights == "behind the library":
            _append_weights(job, folders[name] / RESULT)
    return {name: folder / RESULT for name, folder in folders.items()}


def _key(job: Job, steps: Sequence[BuildStep], folder: Path) -> str:
    """What a build is known by: everything but the headers that its compiler will read."""
    given = {path for kind in ("*.bin", "*.map") for path in folder.glob(kind)}
    read = sorted({step.source for step in steps if step.source} | given)
    read += [folder / PRELUDE] if (folder / PRELUDE).is_file() else []
    read += [job.recorder] if isinstance(job.recorder, Path) else []
    read += [path for _, path in job.gpu_kernels]
    return _key_of(steps, folder, read, [job.unpacked.digest] if job.links and job.unpacked else [])


def _key_of(
    steps: Sequence[BuildStep], folder: Path, read: Sequence[Path], digests: Sequence[str] = ()
) -> str:
    here = Machine.detect()
    return build_cache.key(
        [[part.replace(str(folder), ".") for part in step.command] for step in steps],
        [*(sha256(path) for path in read), *digests],
        # Flags may ask for code for the processor at hand.
        f"{here.torch and here.torch.version} {here.processor} {' '.join(sorted(here.features))}",
    )


def _as_compiled(step: BuildStep) -> BuildStep:
    """A compilation that takes less time, and also tells which headers it read."""
    if step.source is None or step.source.suffix == ".s":
        return step
    listing = ("-MD", "-MF", f"{step.source.name}.d")
    return replace(step, command=(*step.command, *_QUICKER, *listing))


def _keep(key: str, folder: Path, headers: Mapping[Path, Sequence[Path]]) -> None:
    """Keep a library that was just linked, if the compiler told what it is made of."""
    sources = list(folder.glob("*.cpp"))
    if sources and all(source in headers for source in sources):
        read = [path for source in sources for path in headers[source]]
        build_cache.keep(key, folder / RESULT, read)


def _object_key(step: BuildStep) -> str:
    """What the object of a source is known by, as `_key`: whatever package it is for."""
    if step.source is None or step.source.suffix != ".cpp":
        return ""
    prelude = [step.folder / PRELUDE] if PRELUDE in step.command else []
    return _key_of([step], step.folder, [step.source, *prelude])


def _compiled(
    step: BuildStep, state: _Run, headers: dict[Path, Sequence[Path]], report: Report
) -> None:
    """Take an object that was compiled before, if there is one; or compile it, and keep it, if the
    compiler told what it is made of."""
    assert step.source is not None
    if step.key and (kept := build_cache.find(step.key)) is not None:
        (step.folder / step.target).write_bytes(kept.content)
        headers[step.source] = kept.headers
        report(f"{step.about}: compiled before")
        return
    _run(step, state, report)
    rules = step.source.with_name(f"{step.source.name}.d")
    if rules.is_file():
        read = build_cache.headers_in(rules.read_text("utf-8", "replace"), step.folder)
        headers[step.source] = read
        if step.key:
            build_cache.keep(step.key, step.folder / step.target, read)


def _append_weights(job: Job, target: Path) -> None:
    """Put the weights that stand behind a library behind a new one, as the loader maps them."""
    constants = job.library.constants
    assert constants is not None
    assert job.unpacked is not None
    with job.unpacked.path.open("rb") as source, target.open("ab") as output:
        source.seek(constants.offset)
        size = int.from_bytes(source.read(8), "little")
        output.write(b" " * (-output.tell() % _ALIGNMENT))
        source.seek(job.unpacked.path.stat().st_size - size)
        shutil.copyfileobj(source, output, 1 << 20)


def _run_all(steps: Sequence[BuildStep], work: Callable[[BuildStep, _Run], None]) -> None:
    """Do some work for each step side by side; the first failure stops the others and is raised."""
    state = _Run()
    workers = max(1, min(len(steps), os.cpu_count() or 1))
    with ThreadPoolExecutor(workers) as pool:
        running = [pool.submit(work, step, state) for step in steps]
        try:
            for future in as_completed(running):
                future.result()
        except BaseException:
            state.stopped.set()
            for process in tuple(state.processes):
                process.kill()
            raise


def _run(step: BuildStep, state: _Run, report: Report) -> None:
    if state.stopped.is_set():
        return
    code, errors = _execute(step, state)
    if code and "-include" in step.command and "internal compiler error" in errors:
        # g++ 12 crashes on some wrappers with a precompiled header, and not without.
        report(f"the compiler crashed with the precompiled header; {step.about} again without")
        plain = without_header(Flags(step.command[0], step.command[1:])).arguments
        code, errors = _execute(replace(step, command=(step.command[0], *plain)), state)
    if state.stopped.is_set():
        return
    if code:
        raise _failed(step, code, errors)
    report(f"{'linked' if step.source is None else 'compiled'} {step.about}")


def _execute(step: BuildStep, state: _Run) -> tuple[int, str]:
    """Run a command; its exit code, and what it wrote to standard error."""
    environment = {**os.environ, "LC_ALL": "C", "TMPDIR": str(step.folder)}
    try:
        process = Process.start(
            step.command,
            environment,
            folder=step.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        return 127, f"{step.command[0]}: {error.strerror}"
    state.processes.add(process)
    code, _, errors = process.communicate()
    state.processes.discard(process)
    return code, errors


def _failed(step: BuildStep, code: int, output: str) -> RewriterError:
    """The first errors of a compiler with the lines that they are about."""
    if step.source is None:
        lines = [line for line in output.splitlines() if line.strip()]
        return RewriterError(
            "link-failed",
            f"{step.about} does not link (exit code {code}):\n    " + "\n    ".join(lines[-_MORE:]),
            hint="Nothing was written. `rewriter doctor` compares the package with this machine.",
            code=FAILED,
        )
    errors = list(_ERROR.finditer(output))
    shown = [_shown(match, step, output) for match in errors[:_MORE]]
    if not shown:
        shown = [line for line in output.splitlines() if line.strip()][-_MORE:] or ["(no message)"]
    more = f"\n    and {len(errors) - _MORE} more" if len(errors) > _MORE else ""
    return RewriterError(
        "compile-failed",
        f"{step.about} does not compile (exit code {code}):\n    " + "\n    ".join(shown) + more,
        hint="Nothing was written. `rewriter doctor` compares the package with this machine; "
        "`rewriter instrument FILE --no-rebuild` writes the sources and a build script.",
        code=FAILED,
    )


def _shown(match: re.Match[str], step: BuildStep, output: str) -> str:
    """An error with the line of the source that it is about, or that it comes from."""
    assert step.source is not None
    file, number = match["file"], int(match["line"])
    text = f"{Path(file).name}:{number}: {match['what']}"
    if Path(file).name != step.source.name:
        # In a header: what of the source led there stands in front of it, if it is said at all.
        before = output[: match.start()]
        places = re.findall(rf"\b{re.escape(step.source.name)}:(\d+)", before)
        if not places:
            return text
        number = int(places[-1])
        text += f"\n    from {step.source.name}:{number}:"
    lines = step.source.read_text("utf-8", "replace").splitlines()
    return f"{text}\n        {lines[number - 1].strip()}" if number <= len(lines) else text
