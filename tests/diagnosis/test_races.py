"""Which launches use memory of another stream without waiting: real wrappers, with a line changed.

The wrapper with user streams of torch 2.15 has its events above its kernels, as nothing held them
in their places when the fixture was made. Put behind the kernels, they order the streams.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from artifacts import Fixture, get
from rewriter.artifact.opening import open_artifact
from rewriter.cli import main
from rewriter.diagnosis.wrapper_text import examine_races
from rewriter.locate.races import find_races

STREAMS = get("cuda-torch2.15/streams")
_EVENTS = "torch.ops.streams."
_FIRST, _FREE = "triton_poi_fused_0.run(", "del buf6"
Change = Callable[[str], str]


def _line(text: str, part: str) -> str:
    return next(line for line in text.splitlines(keepends=True) if part in line)


def _without(part: str) -> Change:
    return lambda text: text.replace(_line(text, part), "", 1)


def _instead(old: str, new: str) -> Change:
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return change


def _behind(part: str, *new: str) -> Change:
    def change(text: str) -> str:
        line = _line(text, part)
        indent = line[: len(line) - len(line.lstrip())]
        return text.replace(line, line + "".join(f"{indent}{one}\n" for one in new), 1)

    return change


def _then(*changes: Change) -> Change:
    def change(text: str) -> str:
        for one in changes:
            text = one(text)
        return text

    return change


def _ordered(text: str) -> str:
    """The wrapper with its events where the graph has them: behind the kernels that they follow."""
    plain = "".join(line for line in text.splitlines(keepends=True) if _EVENTS not in line)
    first = f"{_EVENTS}record_event.default(2, 0)", f"{_EVENTS}wait_event.default(2, 1)"
    second = f"{_EVENTS}record_event.default(3, 1)", f"{_EVENTS}wait_event.default(3, 0)"
    return _then(_behind(_FIRST, *first), _behind(_FREE, *second))(plain)


_RECORD, _WAIT = f"{_EVENTS}record_event.default(2, 0)", f"{_EVENTS}wait_event.default(2, 1)"
_BACK, _WAIT_BACK = f"{_EVENTS}record_event.default(3, 1)", f"{_EVENTS}wait_event.default(3, 0)"


def _races(tmp_path: Path, source: Fixture, change: Change) -> list[tuple[int, int, str, str]]:
    path = tmp_path / source.path.name
    path.write_text(change(source.path.read_text()))
    return [
        (race.launch.index, race.other.index, race.argument.name, race.sentence.split()[0])
        for race in find_races(open_artifact(path).only.located)
    ]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_ordered, id="events"),
        pytest.param(
            _then(_ordered, _instead(_WAIT, f"{_EVENTS}synchronize_event.default(2)")),
            id="the host waits for the event",
        ),
        pytest.param(
            _then(
                _ordered, _without(_RECORD), _instead(_WAIT, f"{_EVENTS}wait_stream.default(1, 0)")
            ),
            id="waits for the stream",
        ),
        pytest.param(
            _then(
                _ordered,
                _without(_RECORD),
                _instead(_WAIT, f"{_EVENTS}synchronize_stream.default(0)"),
            ),
            id="the host waits for the stream",
        ),
        pytest.param(
            _then(_ordered, _without(_BACK), _instead(_WAIT_BACK, "torch.cuda.synchronize()")),
            id="the host waits for everything",
        ),
        pytest.param(
            _then(
                _ordered, _without(_RECORD), _instead(_WAIT, "stream1.wait_stream(default_stream)")
            ),
            id="a method of the stream",
        ),
        pytest.param(
            _then(
                _ordered,
                _instead(
                    _RECORD,
                    "done = torch.cuda.Event()\n                done.record(default_stream)",
                ),
                _instead(_WAIT, "done.wait(stream1)"),
            ),
            id="an event of one's own",
        ),
        pytest.param(
            _then(_ordered, _instead("with stream1:", "with torch.cuda.stream(stream1):")),
            id="the context manager",
        ),
        pytest.param(
            _then(
                lambda text: "".join(
                    line for line in text.splitlines(keepends=True) if _EVENTS not in line
                ),
                _instead("with stream1:", "with default_stream:"),
            ),
            id="one stream",
        ),
    ],
)
def test_launches_that_wait_are_no_race(tmp_path: Path, change: Change) -> None:
    assert _races(tmp_path, STREAMS, change) == []


@pytest.mark.parametrize(
    ("change", "races"),
    [
        pytest.param(
            lambda text: text,
            [(1, 0, "buf5", "reads"), (3, 2, "buf7", "reads")],
            id="events above all kernels",
        ),
        pytest.param(
            _then(_ordered, _without(_WAIT)), [(1, 0, "buf5", "reads")], id="does not wait"
        ),
        pytest.param(
            _then(_ordered, _without(_RECORD)), [(1, 0, "buf5", "reads")], id="not recorded"
        ),
        pytest.param(
            _then(_ordered, _without(_WAIT_BACK)),
            [(3, 2, "buf7", "reads")],
            id="not on the way back",
        ),
        pytest.param(
            _then(_ordered, _instead(_WAIT, _WAIT.replace("2, 1", "2, 0"))),
            [(1, 0, "buf5", "reads")],
            id="the wrong stream waits",
        ),
        pytest.param(
            _then(_ordered, _instead(_RECORD, _RECORD.replace("2, 0", "2, 1"))),
            [(1, 0, "buf5", "reads")],
            id="recorded on the wrong stream",
        ),
        pytest.param(
            _then(_ordered, _instead(_WAIT, _WAIT.replace("2, 1", "7, 1"))),
            [(1, 0, "buf5", "reads")],
            id="waits for another event",
        ),
        pytest.param(
            _then(_ordered, _without(_BACK), _behind("triton_poi_fused_1.run(", _BACK)),
            [(3, 2, "buf7", "reads")],
            id="recorded before the last kernel",
        ),
        pytest.param(
            _then(_ordered, _without(_WAIT), _behind("triton_poi_fused_1.run(", _WAIT)),
            [(1, 0, "buf5", "reads")],
            id="waits behind the reader",
        ),
        pytest.param(
            _then(
                _ordered,
                _instead(
                    "triton_poi_fused_1.run(buf5, buf6, 512, stream=raw_stream)",
                    "triton_poi_fused_1.run(buf5, buf6, 512, stream=raw_stream0)",
                ),
            ),
            [(2, 1, "buf6", "reads")],
            id="a kernel on the handle of another stream",
        ),
        pytest.param(
            _then(
                _ordered, _without(_WAIT_BACK), _instead("_2.run(buf7, buf8", "_2.run(buf8, buf5")
            ),
            [(3, 1, "buf5", "writes")],
            id="overwrites what is still read",
        ),
        pytest.param(
            _then(
                _ordered, _without(_WAIT_BACK), _instead("_2.run(buf7, buf8", "_2.run(buf5, buf7")
            ),
            [(3, 2, "buf7", "reads")],
            id="overwrites what is still written",
        ),
    ],
)
def test_launches_that_do_not_wait_are_named(
    tmp_path: Path, change: Change, races: list[tuple[int, int, str, str]]
) -> None:
    assert _races(tmp_path, STREAMS, change) == races


# AOTInductor's wrapper, with its second kernel on a stream of its own as torch 2.15 writes it.
AOTI = get("cuda-torch2.11/mlp aoti")
_GUARD = "_aoti_current_stream_guard"
_SIDE = "_aoti_aux_stream_cache.get(1, this->device_idx_, stream)"
_GELU, _MM = "call_triton_poi_fused_addmm_gelu_0(buf1", "aoti_torch_cuda_mm_out(buf0"
_ADDMM = "aoti_torch_cuda_addmm_out("


def _event(number: int) -> str:
    return f"_aoti_event_cache.get({number}, this->device_idx_)"


def _record(number: int, stream: str) -> str:
    return f"AOTI_RUNTIME_CUDA_CHECK(cudaEventRecord({_event(number)}, {stream}));"


def _wait(number: int, stream: str) -> str:
    return f"AOTI_RUNTIME_CUDA_CHECK(cudaStreamWaitEvent({stream}, {_event(number)}, 0));"


def _on_side(*between: str, back: tuple[str, ...] = (), stream: str = "stream1") -> Change:
    """The GELU on a side stream, with lines before and behind it."""
    enter = f"{_GUARD} = std::make_unique<AOTICudaStreamGuard>({_SIDE}, this->device_idx_);"
    return _then(
        _behind(
            "AOTICudaStreamGuard stream_guard(",
            "_aoti_aux_stream_cache.ensure(2, this->device_idx_, stream);",
            f"std::unique_ptr<AOTICudaStreamGuard> {_GUARD};",
            f"cudaStream_t stream1 = {_SIDE};",
        ),
        _behind(_MM, *between, enter),
        _instead(
            "512L, this->device_idx_, stream, kernels",
            f"512L, this->device_idx_, {stream}, kernels",
        ),
        _behind(_GELU, f"{_GUARD}.reset();", *back),
    )


_THERE = _record(0, "stream"), _wait(0, _SIDE)
_HERE = _record(1, _SIDE), _wait(1, "stream")


@pytest.mark.parametrize(
    ("change", "races"),
    [
        pytest.param(_on_side(*_THERE, back=_HERE), [], id="events"),
        pytest.param(
            _on_side(
                _THERE[0],
                f"AOTI_RUNTIME_CUDA_CHECK(cudaEventSynchronize({_event(0)}));",
                back=_HERE,
            ),
            [],
            id="the host waits for the event",
        ),
        pytest.param(
            _on_side(
                "AOTI_RUNTIME_CUDA_CHECK(cudaDeviceSynchronize());",
                back=("AOTI_RUNTIME_CUDA_CHECK(cudaStreamSynchronize(stream1));",),
            ),
            [],
            id="the host waits for everything",
        ),
        pytest.param(
            _on_side(*_THERE, back=(_record(1, "stream1"), _HERE[1])), [], id="by its name"
        ),
        pytest.param(_on_side(stream="stream", back=()), [], id="the kernel is given the stream"),
        pytest.param(
            _on_side(), [(1, 0, "buf1", "reads"), (2, 1, "buf1", "reads")], id="no events"
        ),
        pytest.param(_on_side(*_THERE), [(2, 1, "buf1", "reads")], id="not on the way back"),
        pytest.param(_on_side(back=_HERE), [(1, 0, "buf1", "reads")], id="not on the way there"),
        pytest.param(
            _on_side(_THERE[0], back=_HERE), [(1, 0, "buf1", "reads")], id="does not wait"
        ),
        pytest.param(_on_side(_THERE[1], back=_HERE), [(1, 0, "buf1", "reads")], id="not recorded"),
        pytest.param(
            _on_side(_THERE[0], _wait(0, "stream"), back=_HERE),
            [(1, 0, "buf1", "reads")],
            id="the wrong stream waits",
        ),
        pytest.param(
            _on_side(_record(0, _SIDE), _THERE[1], back=_HERE),
            [(1, 0, "buf1", "reads")],
            id="recorded on the wrong stream",
        ),
        pytest.param(
            _on_side(_THERE[0], _wait(3, _SIDE), back=_HERE),
            [(1, 0, "buf1", "reads")],
            id="waits for another event",
        ),
        pytest.param(
            _on_side(*_THERE, back=(_HERE[0], _wait(0, "stream"))),
            [(2, 1, "buf1", "reads")],
            id="waits for the event of the way there",
        ),
        pytest.param(
            _on_side(*_THERE, back=(_HERE[0], _wait(1, _SIDE))),
            [(2, 1, "buf1", "reads")],
            id="the side stream waits for itself",
        ),
        pytest.param(
            _then(_on_side(*_THERE), _behind(_ADDMM, *_HERE)),
            [(2, 1, "buf1", "reads")],
            id="waits behind the reader",
        ),
        pytest.param(
            _then(_on_side(*_THERE, back=(_HERE[1],)), _behind(_ADDMM, _HERE[0])),
            [(2, 1, "buf1", "reads")],
            id="waits before it is recorded",
        ),
        pytest.param(
            _on_side(*_THERE, back=(_record(1, "stream"), _HERE[1])),
            [(2, 1, "buf1", "reads")],
            id="recorded on the stream that waits",
        ),
        pytest.param(
            _then(_on_side(*_THERE, back=_HERE), _instead(f"{_GUARD}.reset();", "")),
            [(3, 2, "buf6", "reads"), (4, 3, "buf6", "reads")],
            id="the guard stays",
        ),
    ],
)
def test_cpp_wrappers_are_read_alike(
    tmp_path: Path, change: Change, races: list[tuple[int, int, str, str]]
) -> None:
    assert _races(tmp_path, AOTI, change) == races


_REDUCE = "torch.ops._c10d_functional.all_reduce_.default({}, 'sum', '0')"
_DONE = "torch.ops._c10d_functional.wait_tensor.default({})"


@pytest.mark.parametrize(
    ("lines", "races"),
    [
        pytest.param((_REDUCE.format("buf5"), _DONE.format("buf5")), [], id="waited for"),
        pytest.param((_REDUCE.format("x_1"), _DONE.format("x_1")), [], id="an input"),
        pytest.param((_REDUCE.format("x_1"),), [], id="used by nobody"),
        pytest.param((_REDUCE.format("buf5"),), [(2, 1, "buf5", "reads")], id="not waited for"),
        pytest.param(
            (_REDUCE.format("buf5"), _DONE.format("x_1")),
            [(3, 1, "buf5", "reads")],
            id="waits for another",
        ),
        pytest.param(
            (f"buf9 = {_REDUCE.format('buf5')}", "extern_kernels.mm(w_1, w_1, out=buf5)"),
            [(2, 1, "buf5", "reads")],
            id="overwrites what is reduced",
        ),
    ],
)
def test_collectives_run_beside_the_stream(
    tmp_path: Path, lines: tuple[str, ...], races: list[tuple[int, int, str, str]]
) -> None:
    assert _races(tmp_path, STREAMS, _then(_ordered, _behind(_FIRST, *lines))) == races


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
