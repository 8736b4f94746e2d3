"""What surroundings do to programs: each of these once broke something."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import programs
import rewriter
import tables
from capture import Compiled, captured_sources
from harness import call, events
from rewriter.cli import main
from rewriter.runtime import attach
from rewriter.runtime.plain import Silent

SAMPLE = Path(__file__).parents[2] / "fixtures/artifacts/cuda-torch2.11/mlp/python/output_code.py"
Compile = Callable[[str], Compiled]

OPTIONS = tables.options("names", "print", "save", values=True)
TABLE = [tables.row(before=[["in", "x"], ["in", "y"]], after=[["in", "x"], ["out", "z"]])]


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path / "dump"))
    return attach(OPTIONS, TABLE)


def _freed() -> torch.Tensor:
    tensor = torch.ones(1 << 20)
    tensor.untyped_storage().resize_(0)
    return tensor


class _Unprintable:
    def __repr__(self) -> str:
        raise ValueError("no repr")


@pytest.mark.parametrize(
    "make",
    [
        _freed,
        lambda: torch.empty(3, device="meta"),
        lambda: torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8),
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        lambda: torch.ones(2, 2).to_mkldnn(),
        _Unprintable,
        lambda: None,
    ],
    ids=["freed", "meta", "quantized", "sparse", "nested", "mkldnn", "unprintable", "none"],
)
def test_a_value_that_cannot_be_read_costs_nothing_but_itself(
    make: Callable[[], object],
    recorder: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No crash; the name, the other values, and the events are all there."""
    recorder.begin()
    recorder.before(0, make(), torch.arange(3))
    recorder.after(0, make(), torch.arange(3) + 1)
    recorder.end()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "[rewriter 0] #0 before k"
    assert any("in y  i64[3]  cpu  min 0 max 2" in line for line in lines)
    assert any("out z  i64[3]  cpu  min 1 max 3" in line for line in lines)
    rows = {(row["phase"], row["arg"]): row for row in events(tmp_path / "dump")}
    saved = tmp_path / "dump/rank0/run0" / rows["after", "z"]["file"]
    assert torch.load(saved, weights_only=True).tolist() == [1, 2, 3]


def test_events_are_strict_json(recorder: Any, tmp_path: Path) -> None:
    """JSON knows no infinity: a statistic beyond float64 is a string."""
    huge = torch.tensor([1.7e308, -1.7e308, float("nan")], dtype=torch.float64)
    recorder.begin()
    recorder.before(0, huge, torch.ones(1))

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    text = (tmp_path / "dump/rank0/run0/events.jsonl").read_text()
    first, second = (json.loads(line, parse_constant=refuse) for line in text.splitlines())
    assert first["nan"] == 1
    assert first["std"] == "inf"
    assert second["std"] is None


def test_a_table_that_cannot_be_read_probes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(attach({}, TABLE), Silent)
    assert "no probes" in capsys.readouterr().err


def test_modes_of_the_program_do_not_see_the_probes(recorder: Any) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x = torch.ones(4)
    with Watching():
        recorder.begin()
        recorder.before(0, x, x)
        recorder.after(0, x, x)
    assert seen == []


# As a Python does that is started without standard streams.
CLOSE = "import os, sys\nos.closerange(1, 3)\nsys.stdout = sys.stderr = None\n"


@pytest.mark.parametrize(
    ("redirect", "first"),
    [
        (">/dev/full 2>/dev/full", ""),
        ("", CLOSE),
        pytest.param(">&- 2>&-", "", marks=pytest.mark.exhaustive),
        pytest.param("2>&-", "", marks=pytest.mark.exhaustive),
    ],
    ids=["full", "closed by the program", "closed", "errors alone closed"],
)
def test_streams_that_cannot_be_written_do_not_stop_the_model(
    redirect: str, first: str, mlp_wrapper: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if "-" not in redirect:  # a warm start needs the streams of who asks
        request.getfixturevalue("warm_python")
    probed = rewriter.instrument(mlp_wrapper, rewriter.select("names,print", values=True))
    (tmp_path / "probed.py").write_bytes(probed.source)
    program = (
        f"{first}import runpy, torch\n"
        f"module = runpy.run_path({str(tmp_path / 'probed.py')!r})\n"
        "torch.set_grad_enabled(False)\n"
        f"module['call'](torch.load({str(mlp_wrapper.parent / 'inputs.pt')!r}))\n"
        f"open({str(tmp_path / 'done')!r}, 'w').close()\n"
    )
    (tmp_path / "program.py").write_text(program)
    line = f"{sys.executable} {tmp_path / 'program.py'} {redirect}"
    programs.run("sh", "-c", line, code=None, RANK="x", REWRITER_DUMP="/proc/nowhere")
    assert (tmp_path / "done").exists()


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["list", "{sample}", ">/dev/full"], 3),
        (["list", "{sample}", ">&-"], 0),
        (["instrument", "--help"], 0),  # with an encoding that does not have all of it
        (["instrument", "{sample}", "-o", "x" * 300], 2),
        (["instrument", "{sample}", "--launches", "0-99999999999", "-o", "{out}"], 0),
        (["instrument", "{sample}", "-o", "/dev/null", "--overwrite"], 2),
        (["demo", "-d", "/proc/nowhere"], 2),
    ],
    ids=["full", "closed", "ascii", "long name", "long range", "device", "demo"],
)
def test_exit_codes_hold(command: list[str], code: int, tmp_path: Path) -> None:
    words = [part.format(sample=SAMPLE, out=tmp_path / "o.py") for part in command]
    line = f"{sys.executable} -m rewriter {' '.join(words)}"
    about = {"PYTHONIOENCODING": "ascii"} if "--help" in words else {}
    done = programs.run("sh", "-c", line, code=code, cwd=tmp_path, **about)
    assert "Traceback" not in done.stderr


def test_a_link_is_followed_and_its_file_is_changed(tmp_path: Path) -> None:
    real, link = tmp_path / "real.py", tmp_path / "link.py"
    real.write_bytes(SAMPLE.read_bytes())
    link.symlink_to(real)
    assert main(["instrument", str(link), "--in-place"]) == 0
    assert link.is_symlink()
    assert real.read_bytes() != SAMPLE.read_bytes()
    assert main(["strip", str(link), "--in-place"]) == 0
    assert real.read_bytes() == SAMPLE.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.py", "real.py"]


def test_in_place_keeps_the_true_original(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """However often probes are exchanged, the backup is the file that was never instrumented."""
    path = tmp_path / "w.py"
    path.write_bytes(SAMPLE.read_bytes())
    backup = tmp_path / "w.py.orig"
    for probe in ("names", "print", "save"):
        assert main(["instrument", str(path), "--in-place", "--replace", "--probe", probe]) == 0
        assert backup.read_bytes() == SAMPLE.read_bytes()
    assert main(["strip", str(path), "--in-place"]) == 0
    assert path.read_bytes() == SAMPLE.read_bytes()
    assert not backup.exists()
    backup.write_text("somebody else's")
    assert main(["instrument", str(path), "--in-place"]) == 2
    assert path.read_bytes() == SAMPLE.read_bytes()
    assert backup.read_text() == "somebody else's"


@pytest.mark.parametrize("command", ["instrument", "strip"])
def test_json_is_one_object(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "w.py"
    path.write_bytes(SAMPLE.read_bytes())
    if command == "strip":
        assert main(["instrument", str(path), "--in-place"]) == 0
    for options in (["--diff"], ["--check"], ["--diff", "--check"], ["-o", str(tmp_path / "o.py")]):
        capsys.readouterr()
        main([command, str(path), "--json", *options])
        said = json.loads(capsys.readouterr().out)
        assert said["format"] == f"rewriter.{command}"
        assert said["changed"] is True
        assert (said["diff"] is not None) == ("--diff" in options)
        assert (said["output"] is None) == ("-o" not in options)
    assert main([command, str(path), "--json", "-o", "-"]) == 2
    assert main([command, str(path), "--diff", "-o", "-"]) == 2


@pytest.mark.parametrize(
    "name",
    ["torch.py", pytest.param("json.py", marks=pytest.mark.exhaustive), "wrapper", "wrapper.txt"],
)
def test_a_wrapper_may_have_any_name(
    name: str, mlp_wrapper: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if not name.endswith(".py"):  # It hides no module that is imported.
        request.getfixturevalue("warm_python")
    path = tmp_path / name
    path.write_bytes(mlp_wrapper.read_bytes())
    assert rewriter.run(path, dump=tmp_path / "D").code == 0


@pytest.mark.usefixtures("warm_python")
def test_the_api_runs_more_than_once(mlp_wrapper: Path, tmp_path: Path) -> None:
    """The module that implements `run` must not take its place."""
    for number in range(2):
        ran = rewriter.run(mlp_wrapper, rewriter.select("names"), dump=tmp_path / f"D{number}")
        assert [event["launch"] for event in ran.events] == [0, 1, 2, 3, 4]


def test_a_call_inside_a_profilers_block_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`profiler_mark_wrapper_call` puts a whole call, return included, under a `with`."""
    import torch._inductor.config as config

    sources: list[str] = []
    x = torch.randn(4, 4)
    torch._dynamo.reset()
    settings = {"profiler_mark_wrapper_call": True, "force_disable_caches": True}
    with captured_sources(sources), config.patch(settings), torch.no_grad():
        torch.compile(lambda x: torch.mm(x, x).relu())(x)
    path = tmp_path / "output_code.py"
    path.write_text(sources[0])
    artifact = rewriter.open(path)
    assert artifact.unrecognised == ()
    assert len(artifact.launches) == 2
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path / "dump"))
    probed = rewriter.instrument(path, rewriter.select("names,print,save")).source
    assert call(probed, [x], tmp_path) == call(sources[0].encode(), [x], tmp_path)
