"""Which launches use memory of another stream without waiting: real wrappers, with a line changed.

The wrapper with user streams of torch 2.15 has its events above its kernels, as nothing held them
in their places when the fixture was made. Put behind the kernels, they order the streams.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from artifacts import Fixture, get
from changed_wrappers import Change, behind, instead, then, without
from rewriter.artifact.opening import open_artifact
from rewriter.cli import main
from rewriter.diagnosis.wrapper_text import examine_races
from rewriter.locate.races import find_races

STREAMS = get("cuda-torch2.15/streams")
_EVENTS = "torch.ops.streams."
_FIRST, _SECOND, _FREE = "triton_poi_fused_0.run(", "triton_poi_fused_1.run(", "del buf6"
_RECORD, _WAIT = f"{_EVENTS}record_event.default(2, 0)", f"{_EVENTS}wait_event.default(2, 1)"
_BACK, _WAIT_BACK = f"{_EVENTS}record_event.default(3, 1)", f"{_EVENTS}wait_event.default(3, 0)"
Races = list[tuple[int, int, str, str]]


def _unordered(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if _EVENTS not in line)


# The wrapper with its events where the graph has them: behind the kernels that they follow.
_ordered = then(_unordered, behind(_FIRST, _RECORD, _WAIT), behind(_FREE, _BACK, _WAIT_BACK))


def _races(tmp_path: Path, source: Fixture, change: Change) -> Races:
    path = tmp_path / source.path.name
    path.write_text(change(source.path.read_text()))
    return [
        (race.launch.index, race.other.index, race.argument.name, race.sentence.split()[0])
        for race in find_races(open_artifact(path).only.located)
    ]


_RECORDED_BY = "done = torch.cuda.Event()\n                done.record(default_stream)"
WAITING = {
    "events": (),
    "the host waits for the event": (instead(_WAIT, f"{_EVENTS}synchronize_event.default(2)"),),
    "waits for the stream": (
        without(_RECORD), instead(_WAIT, f"{_EVENTS}wait_stream.default(1, 0)")
    ),
    "the host waits for the stream": (
        without(_RECORD), instead(_WAIT, f"{_EVENTS}synchronize_stream.default(0)")
    ),
    "the host waits for everything": (
        without(_BACK), instead(_WAIT_BACK, "torch.cuda.synchronize()")
    ),
    "a method of the stream": (
        without(_RECORD), instead(_WAIT, "stream1.wait_stream(default_stream)")
    ),
    "an event of one's own": (
        instead(_RECORD, _RECORDED_BY), instead(_WAIT, "done.wait(stream1)")
    ),
    "the context manager": (instead("with stream1:", "with torch.cuda.stream(stream1):"),),
    "one stream": (_unordered, instead("with stream1:", "with default_stream:")),
}  # fmt: skip


@pytest.mark.parametrize("changes", WAITING.values(), ids=WAITING)
def test_launches_that_wait_are_no_race(tmp_path: Path, changes: tuple[Change, ...]) -> None:
    assert _races(tmp_path, STREAMS, then(_ordered, *changes)) == []


_THERE_RACES, _BACK_RACES = [(1, 0, "buf5", "reads")], [(3, 2, "buf7", "reads")]
_HANDLE = "triton_poi_fused_1.run(buf5, buf6, 512, stream=raw_stream"
RACING: dict[str, tuple[tuple[Change, ...], Races]] = {
    "does not wait": ((without(_WAIT),), _THERE_RACES),
    "not recorded": ((without(_RECORD),), _THERE_RACES),
    "not on the way back": ((without(_WAIT_BACK),), _BACK_RACES),
    "the wrong stream waits": ((instead(_WAIT, _WAIT.replace("2, 1", "2, 0")),), _THERE_RACES),
    "recorded on the wrong stream": (
        (instead(_RECORD, _RECORD.replace("2, 0", "2, 1")),), _THERE_RACES
    ),
    "waits for another event": ((instead(_WAIT, _WAIT.replace("2, 1", "7, 1")),), _THERE_RACES),
    "recorded before the last kernel": ((without(_BACK), behind(_SECOND, _BACK)), _BACK_RACES),
    "waits behind the reader": ((without(_WAIT), behind(_SECOND, _WAIT)), _THERE_RACES),
    "a kernel on the handle of another stream": (
        (instead(f"{_HANDLE})", f"{_HANDLE}0)"),), [(2, 1, "buf6", "reads")]
    ),
    "overwrites what is still read": (
        (without(_WAIT_BACK), instead("_2.run(buf7, buf8", "_2.run(buf8, buf5")),
        [(3, 1, "buf5", "writes")],
    ),
    "overwrites what is still written": (
        (without(_WAIT_BACK), instead("_2.run(buf7, buf8", "_2.run(buf5, buf7")), _BACK_RACES
    ),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "races"), RACING.values(), ids=RACING)
def test_launches_that_do_not_wait_are_named(
    tmp_path: Path, changes: tuple[Change, ...], races: Races
) -> None:
    assert _races(tmp_path, STREAMS, then(_ordered, *changes)) == races


def test_events_above_all_kernels_order_nothing(tmp_path: Path) -> None:
    assert _races(tmp_path, STREAMS, lambda text: text) == _THERE_RACES + _BACK_RACES


# AOTInductor's wrapper, with its second kernel on a stream of its own as torch 2.15 writes it.
AOTI = get("cuda-torch2.11/mlp aoti")
_GUARD = "_aoti_current_stream_guard"
_SIDE = "_aoti_aux_stream_cache.get(1, this->device_idx_, stream)"
_GELU, _MM = "call_triton_poi_fused_addmm_gelu_0(buf1", "aoti_torch_cuda_mm_out(buf0"
_ADDMM = "aoti_torch_cuda_addmm_out("

_CHECK = "AOTI_RUNTIME_CUDA_CHECK"


def _event(number: int) -> str:
    return f"_aoti_event_cache.get({number}, this->device_idx_)"


def _record(number: int, stream: str) -> str:
    return f"{_CHECK}(cudaEventRecord({_event(number)}, {stream}));"


def _wait(number: int, stream: str) -> str:
    return f"{_CHECK}(cudaStreamWaitEvent({stream}, {_event(number)}, 0));"


def _on_side(*between: str, back: tuple[str, ...] = (), stream: str = "stream1") -> Change:
    """The GELU on a side stream, with lines before and behind it."""
    enter = f"{_GUARD} = std::make_unique<AOTICudaStreamGuard>({_SIDE}, this->device_idx_);"
    return then(
        behind(
            "AOTICudaStreamGuard stream_guard(",
            "_aoti_aux_stream_cache.ensure(2, this->device_idx_, stream);",
            f"std::unique_ptr<AOTICudaStreamGuard> {_GUARD};",
            f"cudaStream_t stream1 = {_SIDE};",
        ),
        behind(_MM, *between, enter),
        instead(
            "512L, this->device_idx_, stream, kernels",
            f"512L, this->device_idx_, {stream}, kernels",
        ),
        behind(_GELU, f"{_GUARD}.reset();", *back),
    )


_THERE = _record(0, "stream"), _wait(0, _SIDE)
_HERE = _record(1, _SIDE), _wait(1, "stream")
_READS, _READ_BACK = [(1, 0, "buf1", "reads")], [(2, 1, "buf1", "reads")]
CPP: dict[str, tuple[Change, Races]] = {
    "events": (_on_side(*_THERE, back=_HERE), []),
    "the host waits for the event": (
        _on_side(_THERE[0], f"{_CHECK}(cudaEventSynchronize({_event(0)}));", back=_HERE), []
    ),
    "the host waits for everything": (
        _on_side(
            f"{_CHECK}(cudaDeviceSynchronize());",
            back=(f"{_CHECK}(cudaStreamSynchronize(stream1));",),
        ),
        [],
    ),
    "by its name": (_on_side(*_THERE, back=(_record(1, "stream1"), _HERE[1])), []),
    "the kernel is given the stream": (_on_side(stream="stream", back=()), []),
    "no events": (_on_side(), _READS + _READ_BACK),
    "not on the way back": (_on_side(*_THERE), _READ_BACK),
    "not on the way there": (_on_side(back=_HERE), _READS),
    "does not wait": (_on_side(_THERE[0], back=_HERE), _READS),
    "not recorded": (_on_side(_THERE[1], back=_HERE), _READS),
    "the wrong stream waits": (_on_side(_THERE[0], _wait(0, "stream"), back=_HERE), _READS),
    "recorded on the wrong stream": (_on_side(_record(0, _SIDE), _THERE[1], back=_HERE), _READS),
    "waits for another event": (_on_side(_THERE[0], _wait(3, _SIDE), back=_HERE), _READS),
    "waits for the event of the way there": (
        _on_side(*_THERE, back=(_HERE[0], _wait(0, "stream"))), _READ_BACK
    ),
    "the side stream waits for itself": (
        _on_side(*_THERE, back=(_HERE[0], _wait(1, _SIDE))), _READ_BACK
    ),
    "waits behind the reader": (then(_on_side(*_THERE), behind(_ADDMM, *_HERE)), _READ_BACK),
    "waits before it is recorded": (
        then(_on_side(*_THERE, back=(_HERE[1],)), behind(_ADDMM, _HERE[0])), _READ_BACK
    ),
    "recorded on the stream that waits": (
        _on_side(*_THERE, back=(_record(1, "stream"), _HERE[1])), _READ_BACK
    ),
    "the guard stays": (
        then(_on_side(*_THERE, back=_HERE), instead(f"{_GUARD}.reset();", "")),
        [(3, 2, "buf6", "reads"), (4, 3, "buf6", "reads")],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "races"), CPP.values(), ids=CPP)
def test_cpp_wrappers_are_read_alike(tmp_path: Path, change: Change, races: Races) -> None:
    assert _races(tmp_path, AOTI, change) == races


_REDUCE = "torch.ops._c10d_functional.all_reduce_.default({}, 'sum', '0')"
_DONE = "torch.ops._c10d_functional.wait_tensor.default({})"
_REDUCES = _REDUCE.format("buf5")
COLLECTIVES: dict[str, tuple[tuple[str, ...], Races]] = {
    "waited for": ((_REDUCES, _DONE.format("buf5")), []),
    "an input": ((_REDUCE.format("x_1"), _DONE.format("x_1")), []),
    "used by nobody": ((_REDUCE.format("x_1"),), []),
    "not waited for": ((_REDUCES,), [(2, 1, "buf5", "reads")]),
    "waits for another": ((_REDUCES, _DONE.format("x_1")), [(3, 1, "buf5", "reads")]),
    "overwrites what is reduced": (
        (f"buf9 = {_REDUCES}", "extern_kernels.mm(w_1, w_1, out=buf5)"),
        [(2, 1, "buf5", "reads")],
    ),
}


@pytest.mark.parametrize(("lines", "races"), COLLECTIVES.values(), ids=COLLECTIVES)
def test_collectives_run_beside_the_stream(
    tmp_path: Path, lines: tuple[str, ...], races: Races
) -> None:
    assert _races(tmp_path, STREAMS, then(_ordered, behind(_FIRST, *lines))) == races


def test_list_and_a_diagnosis_say_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", str(STREAMS.path)]) == 0
    assert main(["list", "--strict", str(STREAMS.path)]) == 1
    message = (
        "launch #1 triton_poi_fused_1 (line 188) reads buf5 on stream1, which launch #0 "
        "triton_poi_fused_0 (line 182) writes on the stream of the call: no event between"
    )
    assert f"race: output_code.py: {message}" in capsys.readouterr().err
    assert main(["list", "--json", str(STREAMS.path)]) == 0
    assert [
        (one["launch"], one["other"]) for one in json.loads(capsys.readouterr().out)["races"]
    ] == [(1, 0), (3, 2)]
    finding = examine_races(open_artifact(STREAMS.path).only).findings[0]
    assert (finding.kind, finding.launch, finding.others) == ("race", 1, (0,))
    path = tmp_path / "output_code.py"
    path.write_text(_ordered(STREAMS.path.read_text()))
    assert "2 streams" in examine_races(open_artifact(path).only).ruled_out
