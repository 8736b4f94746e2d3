"""The dump of a C++ wrapper is that of one in Python: runs and files. `tests/runtime` has what the
recorder does alike for both: calls, rotation, what is stored once."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import socket
import threading
import zipfile
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
    bits_of,
    options_of,
    row_of,
    shapes_of,
    tensor_of,
)
from fingerprints import fingerprint
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
    pair.each(lambda runtime: runtime.before(12, torch.ones(2)))
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


def test_names_alone_dump_where_they_are_told_to(both: Callable[..., Both]) -> None:
    runtimes = both("names", rows=[row_of(before=[], after=[])])
    for act in ("before", "before", "after"):
        runtimes.check_said(lambda runtime, act=act: getattr(runtime, act)(12))
    python, native = runtimes.raw("rank0/run0/events.jsonl")
    assert native == python
    assert native.count("\n") == 3


def test_saved_files_are_those_of_python(both: Callable[..., Both]) -> None:
    long = "triton_poi_" + "fused_\N{LATIN SMALL LETTER E WITH ACUTE}_" * 60 + "x/y"
    runtimes = both("save", rows=[row_of(kernel=long, before=[["in", "a/b"]])])
    for dtype in DTYPES:
        flat = tensor_of(dtype, 6000)
        for tensor in shapes_of(flat):
            runtimes.each(lambda runtime, tensor=tensor: runtime.before(12, tensor))
    conjugate = torch.tensor([1 + 2j, 3 - 4j]).conj()
    runtimes.each(lambda runtime: runtime.after(12, conjugate))
    runtimes.finish()
    runtimes.check_rows()
    python, native = runtimes.rows()
    assert [row.get("file") for row in native] == [row.get("file") for row in python]
    assert sum("file" in row for row in native) == len(native)
    for row in native:
        expected, found = (
            torch.load(dump / "rank0/run0" / row["file"], weights_only=True)
            for dump in runtimes.dumps
        )
        mapped = torch.load(
            runtimes.dumps[1] / "rank0/run0" / row["file"], weights_only=True, mmap=True
        )
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        assert found.stride() == expected.stride()
        assert found.storage_offset() == 0
        assert found.untyped_storage().nbytes() == found.numel() * found.itemsize
        assert bits_of(found) == bits_of(expected) == bits_of(mapped)
        with zipfile.ZipFile(runtimes.dumps[1] / "rank0/run0" / row["file"]) as archive:
            assert archive.testzip() is None


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_digests_are_those_of_python_and_of_the_saved_files(
    dtype: torch.dtype, both: Callable[..., Both]
) -> None:
    """Python's are compared with what they are defined to be in test_hash.py."""
    runtimes = both("hash", "save")
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


@pytest.mark.parametrize("names", [["hash"], ["hash", "print"]], ids="-".join)
def test_digests_alone_and_at_the_end_of_a_line(
    names: list[str], both: Callable[..., Both]
) -> None:
    freed = torch.ones(4)
    freed.untyped_storage().resize_(0)
    quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)
    packed = torch.ones(4, dtype=torch.uint8).view(getattr(torch, "float4_e2m1fn_x2", torch.bits8))
    runtimes = both(*names, rows=[row_of(after=[["out", "buf1"], ["in", "s0"]])])
    for value in (freed, quantized, packed, torch.ones(2, device="meta"), torch.ones(3), None):
        runtimes.check_said(lambda runtime, value=value: runtime.after(12, value, 5))
    runtimes.check_rows()
    hashed = ["fingerprint" in row for row in runtimes.rows()[1] if "dtype" in row]
    assert hashed == [False, True, True, False, True]


def test_digests_in_upstream_format(upstream: ctypes.CDLL, capfd: Any) -> None:
    tensor = torch.ones(3)
    line = f"Fingerprint: {fingerprint(tensor)}"
    said = []
    for names in (["hash"], ["print"], ["hash", "print"]):
        native = Native(upstream, options_of(*names, format="upstream"), [row_of()])
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


def test_inputs(
    library: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path))
    labels = [["in", "arg0_1"], ["in", "s0"]]
    options = options_of("names", "print", "save", when="after")
    native = Native(library, options, [row_of()], labels)
    native.begin()
    native.inputs(torch.ones(2, 3), 5)
    native.end()
    out = capfd.readouterr().out
    assert out == (
        "[rewriter 0] inputs  in arg0_1  f32[2, 3]  cpu  min 1 max 1 mean 1 std 0 nan 0 inf 0\n"
        "[rewriter 0] inputs  in s0  int 5\n"
    )
    first, second = (tmp_path / "rank0/run0/events.jsonl").read_text().splitlines()
    row = json.loads(first)
    assert list(row)[:3] == ["phase", "arg", "role"]
    assert row["phase"] == "inputs"
    assert row["file"] == "inputs/aoti_model_inputs_arg0_1_cpu.pt"
    assert torch.load(tmp_path / "rank0/run0" / row["file"], weights_only=True).shape == (2, 3)
    assert json.loads(second) == {
        "phase": "inputs", "arg": "s0", "role": "in", "type": "int", "value": "5",
    }  # fmt: skip


def test_runs_are_never_shared(
    library: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path / "deep" / "dump"))
    monkeypatch.setenv("RANK", "3")
    options = options_of("names", when="after")
    wrappers = [Native(library, options, [row_of()]) for _ in range(4)]

    def work(native: Native) -> None:
        for _ in range(10):
            call = library.test_begin(ctypes.c_void_p(native.wrapper))
            native.at(12, 1, [], call)
            library.test_end(ctypes.c_void_p(call))

    threads = [threading.Thread(target=work, args=(native,)) for native in wrappers * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    runs = sorted((tmp_path / "deep/dump/rank3").iterdir())
    assert len(runs) == 80
    for run in runs:
        assert (run / "events.jsonl").read_text().count("\n") == 1
        assert json.loads((run / "run.json").read_text())["format"] == "rewriter.run"
        assert len(list(run.iterdir())) == 3


def test_without_a_directory_the_model_goes_on(
    library: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path / "file" / "dump"))
    native = Native(library, options_of("print", "save"), [row_of()])
    for _ in range(2):
        native.begin()
        native.before(12, torch.ones(2))
    native.end()
    out, err = capfd.readouterr()
    assert out.count("min 1 max 1") == 2
    assert err.count("\n") == 1
    assert "[rewriter 0] warning: dump: cannot make" in err
    assert "Not a directory" in err


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
    rows = (tmp_path / "rank0/run0/events.jsonl").read_text().splitlines()
    assert [json.loads(row)["launch"] for row in rows] == [12] * len(rows)
    assert os.path.samestat(goes_to, os.stat(os.devnull))


def test_lines_that_cannot_be_printed_are_said_once(
    library: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path))
    native = Native(library, options_of("print"), [row_of()])
    kept = os.dup(1)
    with open("/dev/full", "wb") as full:
        os.dup2(full.fileno(), 1)
    native.begin()
    for _ in range(3):
        native.before(12, torch.ones(2))
    native.end()
    os.dup2(kept, 1)
    os.close(kept)
    problem = "stdout: lines cannot be printed: No space left on device"
    assert capfd.readouterr() == ("", f"[rewriter 0] warning: {problem}\n")
    assert (tmp_path / "rank0/run0/events.jsonl").read_text().count("\n") == 3


def test_a_full_disk_is_said_once(
    library: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path))
    native = Native(library, options_of("save"), [row_of()])
    native.begin()
    (tmp_path / "rank0/run0/000012").write_text("in the way")
    for _ in range(2):
        native.before(12, torch.ones(2))
    native.end()
    err = capfd.readouterr().err
    assert err.count("\n") == 1
    assert "warning: save: " in err
    assert "cannot be saved: Not a directory" in err
    second = json.loads((tmp_path / "rank0/run0/events.jsonl").read_text().splitlines()[1])
    assert second["file"].startswith("000012.1/")
