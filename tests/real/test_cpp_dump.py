"""The dump of a C++ wrapper is that of one in Python: runs and files. `tests/runtime` has what the
recorder does alike for both: calls, rotation, what is stored once."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cpp_driver import (
    DTYPES,
    MARKS,
    Both,
    Native,
    options_of,
    row_of,
    shapes_of,
    tensor_of,
)
from fingerprints import fingerprint
from harness import events
from rewriter.dump.reading import open_dump

pytestmark = MARKS


# --- Dump ----------------------------------------------------------------------------------------


def test_dump_is_that_of_python(both: Callable[..., Both]) -> None:
    rows = [
        row_of(12, kernel='a "kernel" \\ with \N{GREEK SMALL LETTER MU} and \N{SNAKE}\t\x7f'),
        row_of(13, source_nodes=[], origins=[], repeats=True, before=[]),
        row_of(14, after=None),
        row_of(15, buffers={"buf1": "buf0"}),
        row_of(16, buffers={"buf18": "buf17", "view": "arg0_1"}),
    ]
    rows[2].pop("after")
    runtimes = both("names", "print", rows=rows)
    runtimes.each(lambda runtime: runtime.before(12, torch.ones(2, 3)))
    runtimes.each(lambda runtime: runtime.before(13))
    runtimes.each(lambda runtime: runtime.before(13))
    runtimes.each(lambda runtime: runtime.after(13, torch.zeros(0)))
    runtimes.check_rows()
    python, native = runtimes.raw("rank0/run0/events.jsonl")
    assert native == python
    changes = r'"(pid|started)": [0-9.]+'
    python, native = runtimes.raw("rank0/run0/run.json")
    assert re.sub(changes, "", native) == re.sub(changes, "", python)
    python, native = runtimes.raw("rank0/run0/launches.json")
    assert native == python
    python, native = runtimes.raw("manifest.json")
    assert native == python
    assert sorted(path.name for path in runtimes.dumps[1].iterdir()) == ["manifest.json", "rank0"]


@pytest.mark.parametrize(
    ("variables", "rank", "size"),
    [
        ({"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "SLURM_PROCID": "9"}, 5, 8),
        ({"LOCAL_RANK": "3"}, 3, 0),
        ({"LOCAL_RANK": "3", "GROUP_RANK": "2", "LOCAL_WORLD_SIZE": "4"}, 11, 0),
        ({"SLURM_PROCID": "6", "SLURM_LOCALID": "2", "SLURM_NTASKS": "16"}, 6, 16),
        ({"SLURM_PROCID": "6", "SLURM_LOCALID": "2", "LOCAL_RANK": "2"}, 6, 0),
        # A task that starts several processes itself.
        ({"SLURM_PROCID": "6", "SLURM_LOCALID": "0", "LOCAL_RANK": "2"}, 2, 0),
        # A batch script, which no `srun` started.
        ({"SLURM_NTASKS": "16"}, 0, 0),
        ({"RANK": "one", "LOCAL_RANK": "-1", "SLURM_PROCID": "٣", "WORLD_SIZE": "9" * 10}, 0, 0),
        ({"RANK": "9" * 5000, "LOCAL_RANK": "2"}, 2, 0),
    ],
)
def test_ranks_are_found_as_in_python(
    both: Callable[..., Both],
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    rank: int,
    size: int,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    pair = both("names")
    said = pair.each(lambda runtime: runtime.before(12, torch.ones(2)))
    assert said == (f"[rewriter {rank}] #12 before triton_poi_fused_0\n",) * 2
    pair.finish()
    for dump in pair.dumps:
        assert [path.name for path in dump.glob("rank*")] == [f"rank{rank}"]
        facts = json.loads((dump / "manifest.json").read_text())
        assert (facts.get("ranks", 0), facts["host"]) == (size, socket.gethostname())
        assert json.loads((dump / f"rank{rank}/run0/run.json").read_text())["host"]


def test_the_table_of_launches_is_in_a_dump_once(both: Callable[..., Both]) -> None:
    """Each call has a name of its file; one that is gone is written again."""
    pair = both("names", rows=[row_of(before=[], after=[])])
    for number in range(4):
        for runtime in (pair.python, pair.native):
            runtime.begin()
        if number == 1:
            for dump in pair.dumps:
                (dump / "rank0/run2/launches.json").unlink()
    pair.finish()
    for dump in pair.dumps:
        tables = [dump / f"rank0/run{number}/launches.json" for number in (0, 1, 3, 4)]
        found = [path.stat().st_ino for path in tables]
        assert found[0] == found[1] != found[2] == found[3]
        assert len({path.read_bytes() for path in tables}) == 1
        opened = open_dump(dump)
        assert [len(run.facts.launches) for run in opened.runs] == [1, 1, 0, 1, 1]
        assert opened.runs[0].facts.launches is opened.runs[1].facts.launches


def test_a_dump_that_somebody_removed_is_begun_again(both: Callable[..., Both]) -> None:
    pair = both("names", rows=[row_of(before=[], after=[])])
    for runtime in (pair.python, pair.native):
        runtime.begin()
    pair.finish()
    for dump in pair.dumps:
        shutil.rmtree(dump)
    for runtime in (pair.python, pair.native):
        runtime.begin()
        runtime.before(12)
    pair.finish()
    for dump in pair.dumps:
        (run,) = open_dump(dump).runs
        assert [step.launch for step in run.steps] == [12]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_digests_are_those_of_python_and_of_the_saved_files(
    dtype: torch.dtype, both: Callable[..., Both]
) -> None:
    """Python's are compared with what they are defined to be in test_hash.py, the files with those
    of torch in `tests/runtime`."""
    long = "triton_poi_" + "fused_\N{LATIN SMALL LETTER E WITH ACUTE}_" * 60 + "x/y"
    runtimes = both("hash", "save", rows=[row_of(kernel=long, before=[["in", "a/b"]])])
    tensors = shapes_of(tensor_of(dtype, 6000))
    if dtype.is_complex:
        tensors += [tensors[-1].conj(), tensors[10].permute(3, 1, 0, 2).conj()]
    for tensor in tensors:
        runtimes.check_said(lambda runtime, tensor=tensor: runtime.before(12, tensor))
    runtimes.finish()
    runtimes.check_rows()
    rows = runtimes.rows()[1]
    assert len(rows) == len(tensors)
    for row in rows:
        saved = torch.load(runtimes.dumps[1] / "rank0/run0" / row["file"], weights_only=True)
        assert row["fingerprint"] == fingerprint(saved)


def test_digests_in_upstream_format(library: ctypes.CDLL, capfd: Any) -> None:
    tensor = torch.ones(3)
    line = f"Fingerprint: {fingerprint(tensor)}"
    said = []
    for names in (["hash"], ["print"], ["hash", "print"]):
        native = Native(library, options_of(*names, format="upstream"), [row_of()])
        native.begin()
        native.after(12, tensor)
        native.end()
        said.append(capfd.readouterr().out.splitlines())
    assert said[0] == ["[  after_launch - triton_poi_fused_0 - buf1  ]:", line, ""]
    assert said[2] == [*said[1][:-1], line, ""]


def test_what_cannot_be_saved_is_said_once(
    library: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path))
    native = Native(library, options_of("save"), [row_of()])
    native.begin()
    freed = torch.ones(4)
    freed.untyped_storage().resize_(0)
    for tensor in (torch.eye(3).to_sparse(), torch.eye(2).to_sparse(), freed):
        native.before(12, tensor)
    quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)
    native.before(12, quantized)
    native.end()
    err = capfd.readouterr().err
    assert err.count("warning: #12 x0: cannot be saved: ") == err.count("\n") == 2
    assert not list(tmp_path.rglob("*.pt"))


def test_lines_do_not_go_into_a_file_that_has_the_number_of_a_closed_stream(
    library: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path))
    native = Native(library, options_of("names", "print", "save"), [row_of()])
    kept = os.dup(1)
    os.close(1)
    native.begin()
    native.before(12, torch.ones(2))
    native.end()
    goes_to = os.fstat(1)
    os.dup2(kept, 1)
    os.close(kept)
    assert {row["launch"] for row in events(tmp_path)} == {12}
    assert os.path.samestat(goes_to, os.stat(os.devnull))
