"""Opens a recorded call, to run it again: its wrapper, its inputs, and what it returned.

The wrapper is the copy in the dump without probes, which must have the hash that the call recorded.
Nothing is executed or loaded here: `rewriter/runtime/host/` loads the saved inputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from rewriter.artifact.types import Artifact
from rewriter.core.errors import RewriterError
from rewriter.core.text import some
from rewriter.core.types import Json
from rewriter.dump import launched
from rewriter.dump.reading import Dump, RunDump, is_dump, open_dump
from rewriter.dump.rows import EventRow, ScalarRow, TensorRow, ValueRow, to_json
from rewriter.execution.dumped_wrappers import plain_wrapper_of
from rewriter.locate.types import EntryPoint, Launch

_LISTED = 8
_CALL = re.compile(r"(?:rank|run)\d+")
_SCALARS = ("int", "float", "bool", "complex", "str")
# Operators, and kernels named after them, that draw random numbers.
_RANDOM = re.compile(
    r"(?:\b|_)(?:rand|randn|randint|randperm|dropout|bernoulli|multinomial|rrelu)(?:\b|_)"
    r"|inductor_(?:seeds?|random)|philox|aten\.(?:normal|uniform|exponential|geometric)"
)


@dataclass(frozen=True)
class RecordedCall:
    """One call. `inputs` are in the wrapper's order: each with `file`, `shape`, `stride` and
    `device`, or with `type` and `value`; empty for `None`. `outputs` are what it returned, each
    with `file` or `sha256`, or `None` if not known. `random` are launches that draw random numbers:
    the state of the generators was not recorded."""

    run: RunDump
    artifact: Artifact
    inputs: tuple[Json, ...]
    outputs: tuple[Json | None, ...]
    random: tuple[str, ...] = ()


def require_call(path: str | Path) -> None:
    """Raise `RewriterError` if a path names a call that is not in its dump."""
    path = Path(path)
    if not _CALL.fullmatch(path.name):
        return
    root = next((parent for parent in path.parents[:2] if is_dump(parent)), None)
    if root is not None and not path.exists():
        raise RewriterError(
            "not-a-dump",
            f"{path}: {root} holds no such call",
            hint=f"Name one of its calls: {_listed(open_dump(root))}",
        )


def open_call(path: str | Path) -> RecordedCall:
    """The call at a path such as `DUMP/rank0/run6`, or the only call of a dump.

    Raises `RewriterError` if there are several, or if it cannot be run from what was recorded.
    """
    dump = open_dump(path)
    if len(dump.runs) > 1:
        raise RewriterError(
            "several-calls",
            f"{path} holds {len(dump.runs)} calls: {_listed(dump)}",
            hint=f"Name one, such as {dump.runs[0].path}.",
        )
    (run,) = dump.runs
    wrapper = plain_wrapper_of(run)
    entry = wrapper.located.entries[0] if wrapper.located.entries else None
    if entry is None or not wrapper.is_module:
        raise RewriterError(
            "not-runnable",
            f"{run.path}: {run.artifact} was compiled ahead of time: it runs only as part of its "
            "package",
            hint="`rewriter run MODEL.pt2 --args FILE.pt` runs that on inputs saved by torch.save; "
            f"those of this call are in {run.path / 'inputs'}.",
        )
    rows = list(run.events())
    return RecordedCall(
        run,
        Artifact(wrapper.path, (wrapper,)),
        tuple(_inputs(run, entry.inputs, rows)),
        tuple(_outputs(run, entry, rows, wrapper.launches)),
        tuple(
            f"#{launch.index} {launch.kernel}"
            for launch in wrapper.launches
            if _RANDOM.search(" ".join((launch.kernel, *launch.origins)))
        ),
    )


def _listed(dump: Dump) -> str:
    return some([run.name for run in dump.runs], _LISTED)


def _inputs(run: RunDump, names: tuple[str, ...], rows: list[EventRow]) -> Iterator[Json]:
    """A description of each input of the call, from which the host makes it."""
    given = {row.arg: row for row in launched.values(rows) if row.phase == "inputs"}
    tensors = launched.tensors([*given.values()])
    unsaved = [row.arg for row in tensors if not _is_there(run, row)]
    if (names and not given) or unsaved:
        what = f"{some(unsaved, _LISTED)} of the inputs" if unsaved else "the inputs"
        only = f" --calls {run.call_index}" if run.call_index else ""
        raise RewriterError(
            "no-saved-inputs",
            f"{run.path}: {what} of the call {'was' if len(unsaved) == 1 else 'were'} not saved",
            hint="Record it with `--probe save`, without --kernels and --launches: "
            f"`rewriter run --probe save{only} -- COMMAND`, or `rewriter run FILE --probe save`.",
        )
    for name in names:
        row = given.get(name)
        if isinstance(row, TensorRow):
            kept = _only(row, "dtype", "shape", "stride", "device")
            yield {**kept, "file": str((run.path / row.file).absolute())}
        elif isinstance(row, ScalarRow) and row.type not in _SCALARS:
            raise RewriterError(
                "no-saved-inputs",
                f"{run.path}: the input {name} is a {row.type}, which no file holds",
                hint="`rewriter run FILE --args` takes inputs that torch.save wrote.",
            )
        else:  # no value is recorded for `None`
            yield _only(row, "type", "value") if isinstance(row, ScalarRow) else {}


def _outputs(
    run: RunDump, entry: EntryPoint, rows: list[EventRow], launches: Sequence[Launch]
) -> Iterator[Json | None]:
    """For each returned value, what was recorded after its last write."""
    last = _last_written(run, rows)
    writers = {x.buffer: launch.index for launch in launches for x in launch.args if x.role != "in"}
    buffers = run.facts.outputs.get(entry.name, ())
    for name, returned in zip_longest(buffers, entry.returned[: len(buffers)], fillvalue=""):
        row = last.get(name)
        # `buf14 = buf12` reuses the memory: it was written under the name that is returned.
        if not isinstance(row, TensorRow) or row.arg not in (name, returned):
            yield None
            continue
        launch, _ = row.which
        if (-1 if launch is None else launch) < writers.get(name, -1):
            # A later write was not recorded because of --roles, --tensors or --when.
            yield None
            continue
        known = _only(row, "shape", "stride", "sha256")
        if _is_there(run, row):
            known["file"] = str((run.path / row.file).absolute())
        yield known if {"file", "sha256"} & known.keys() else None


def _last_written(run: RunDump, rows: list[EventRow]) -> Mapping[str, ValueRow]:
    """By buffer, the row of its last write, or of the input."""
    last: dict[str, ValueRow] = {}
    for row in launched.values(rows):
        if row.phase == "inputs":
            last[row.arg] = row
        elif row.is_result:
            last[launched.buffer_of(run.launch_row(row.which[0]), row.arg)] = row
    return last


def _is_there(run: RunDump, row: TensorRow) -> bool:
    return bool(row.file) and (run.path / row.file).is_file()


def _only(row: ValueRow, *names: str) -> Json:
    return {name: value for name, value in to_json(row).items() if name in names}
