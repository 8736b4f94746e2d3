"""`rewriter diagnose`, after a crash: C++ kernels with arrays of their own are run alone under
AddressSanitizer."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from rewriter.commands._output import from_here
from rewriter.core.errors import RewriterError
from rewriter.core.terminal import message
from rewriter.core.text import counted
from rewriter.diagnosis import heap
from rewriter.diagnosis.verdict import CrashVerdict
from rewriter.dump.reading import Dump, open_dump

_LIMIT = 300.0  # seconds of the compiler, and of the kernel
_UNDER = "--under asan: "  # begins errors that the command `repro` has, too


def watch(
    crashes: Sequence[CrashVerdict], dump: Path, folder: Path | None = None
) -> tuple[heap.Watched, ...]:
    """What AddressSanitizer says of the kernels that may have damaged the memory of a program that
    crashed. A `folder` keeps what is run."""
    opened = open_dump(dump)
    suspected = heap.own_arrays(crashes, opened)
    if not suspected:
        return ()
    message(
        f"running {counted(len(suspected), 'C++ kernel')} alone, compiled with AddressSanitizer: "
        "does one store outside of an array of its own, so that the program dies later"
    )
    kept = tempfile.TemporaryDirectory() if folder is None else nullcontext(folder)
    with kept as place:
        return tuple(
            _watched(array, opened, Path(place) / f"alone-{number}", is_kept=folder is not None)
            for number, array in enumerate(suspected)
        )


def _watched(own: heap.OwnArray, dump: Dump, folder: Path, *, is_kept: bool) -> heap.Watched:
    from rewriter.reproduction.under.asan import UNDEFINED
    from rewriter.reproduction.under.running import run_alone

    step = own.step
    assert step.launch is not None
    try:
        alone = run_alone(
            dump.path, own.run.name, step.launch, step.iteration, folder, timeout=_LIMIT
        )
    except RewriterError as error:
        return heap.Watched(own, unknown=error.message.removeprefix(_UNDER))
    values = "the values that were recorded"
    if alone.made_up:
        values = f"random values for {', '.join(alone.made_up)}, which were not saved"
    stopped = [x for x in alone.result.findings if x.is_own or x.kind != UNDEFINED]
    if not stopped:
        return heap.Watched(own, values=values)
    found = stopped[0]
    if not found.is_own:  # memory of an argument, of which the script may have a part only
        return heap.Watched(
            own, unknown=f"on {values}, it stopped at another fault: {found.headline}"
        )
    text = [f"{found.file}:{found.line}: {found.text}"] if found.line else []
    if is_kept:
        text.append(f"once more: sh {from_here(folder / 'asan' / 'run.sh')}")
    return heap.Watched(own, found.of_own_array, values, tuple(text))
