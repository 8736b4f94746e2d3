"""`rewriter run DUMP/rank0/run6`: a recorded call once more, on the inputs that it had.

The wrappers need no compiler.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import dumps
from programs import document
from rewriter.cli import main
from rewriter.commands._run import replay_line
from rewriter.core.errors import RewriterError
from rewriter.dump.reading import is_dump
from rewriter.execution import replay
from rewriter.runtime.host import recorded_values

pytestmark = pytest.mark.usefixtures("warm_python")

# It updates an input, takes a size, a transposed tensor and nothing, and draws random numbers. It
# returns memory under another name than it was made with.
WRAPPER = """import torch
from torch._inductor.select_algorithm import extern_kernels
empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu
reinterpret_tensor = torch._C._dynamo.guards._reinterpret_tensor


def call(args):
    s0, arg0_1, arg1_1, arg2_1 = args
    args.clear()
    assert s0 == 2 and arg0_1.stride() == (1, 2) and arg2_1 is None
    buf0 = empty_strided_cpu((2, 2), (2, 1), torch.float32)
    buf1 = buf0; del buf0  # reuse
    extern_kernels.mm(arg0_1, arg1_1, out=buf1)
    extern_kernels.addmm(arg1_1, arg0_1, buf1, alpha=1, beta=1, out=arg1_1)
    return (buf1, reinterpret_tensor(arg1_1, (4, ), (1, ), 0), s0)


def get_args():
    return [2, torch.log(torch.randn(2, 2)).t(), torch.randn(2, 2), None]
"""


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory, warm_module: None) -> Path:
    """A dump of the wrapper on random inputs, which give NaN."""
    folder = tmp_path_factory.mktemp("replay")
    (folder / "w.py").write_text(WRAPPER)
    words = ["run", str(folder / "w.py"), "--probe", "save", "-d", str(folder / "w.dump")]
    assert main(words) == 1
    return folder / "w.dump"


def test_random_inputs_are_said(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In the terminal, in the manifest, and so by `report`."""
    manifest = json.loads((dump / "manifest.json").read_text())
    assert (manifest["inputs"], manifest["seed"]) == ("random", 0)
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(dump), "-o", "page.html"]) == 1
    assert "The inputs were random, made by the wrapper's own get_args()" in capfd.readouterr().out
    facts = json.loads((dump / "manifest.json").read_text())
    (dump / "manifest.json").write_text(json.dumps({**facts, "inputs": "file"}))
    assert main(["report", str(dump), "-o", "other.html"]) == 1
    assert "random" not in capfd.readouterr().err
    (dump / "manifest.json").write_text(json.dumps(facts))


def test_a_call_runs_once_more(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    call = dump / "rank0" / "run0"
    found = document("run", call, code=1)  # of the NaN
    assert found["inputs"] == "recorded"
    assert found["replayed"] == ["equal", "equal", "value"]
    capfd.readouterr()
    assert main(["run", str(dump), "--probe", "print", "-d", "again"]) == 1
    output = capfd.readouterr()
    assert f"replayed {call}: every output is what was recorded, bit for bit\n" in output.out
    assert "random" not in output.out + output.err
    assert json.loads(Path("again/manifest.json").read_text())["inputs"] == "recorded"
    # What was recorded is another value now.
    saved = next(call.glob("000000/after_*_buf1_*.pt"))
    kept = saved.read_bytes()
    saved.unlink()
    torch.save(torch.zeros(2, 2), saved)
    assert document("run", call, code=1)["replayed"] == ["differs", "equal", "value"]
    saved.unlink()
    saved.write_bytes(kept)


def test_a_replay_counts_the_outputs_that_are_the_same() -> None:
    states = ("equal", "value", "differs", "equal", "unknown", "unknown")
    assert replay_line("x.dump/rank0/run0", states) == (
        "replayed x.dump/rank0/run0: 2 of 5 outputs are what was recorded, bit for bit; "
        "different: 2; not recorded: 4, 5"
    )
    assert replay_line("x", ("value",)) == "replayed x"


def test_what_cannot_be_run_once_more(tmp_path: Path, dump: Path) -> None:
    launches = [dumps.launch(0, "extern_kernels.mm", [], [dumps.value("buf0", "out")])]
    for number in range(2):
        dumps.write(tmp_path / "several", launches, run=number)
    dumps.write(tmp_path / "bare", launches)
    copy = tmp_path / "unsaved"
    copy.mkdir()
    (copy / "w.py").write_bytes((dump / "w.py").read_bytes())
    dumps.write(copy, launches, inputs=[dumps.value("arg0_1")], artifact="w.py")
    for name, slug in (
        ("several", "several-calls"),
        ("bare", "no-wrapper-source"),
        ("unsaved", "no-saved-inputs"),
    ):
        assert is_dump(tmp_path / name)
        with pytest.raises(RewriterError) as caught:
            replay.open_call(tmp_path / name)
        assert caught.value.slug == slug
    facts = copy / "rank0/run0/run.json"
    facts.write_text(json.dumps({**json.loads(facts.read_text()), "call": 21}))
    with pytest.raises(RewriterError) as caught:
        replay.open_call(copy)
    assert "arg0_1 of the inputs of the call was not saved" in caught.value.message
    assert "`rewriter run --probe save --calls 21 -- COMMAND`" in caught.value.hint
    for missing in ("rank0/run7", "rank1/run0", "run7"):
        with pytest.raises(RewriterError) as caught:
            replay.require_call(tmp_path / "several" / missing)
        assert caught.value.hint == "Name one of its calls: rank0/run0, rank0/run1"
    replay.require_call(tmp_path / "several/other.py")


@pytest.mark.parametrize(
    ("shape", "stride"),
    [
        ((2, 3), (1, 2)),
        ((4, 3), (0, 1)),
        ((3, 4), (2, 1)),
        ((2, 2), (6, 2)),
        ((0, 3), (3, 1)),
        ((), ()),
    ],
    ids=["transposed", "expanded", "overlapping", "gaps", "empty", "scalar"],
)
def test_inputs_have_the_strides_that_they_had(
    shape: tuple[int, ...], stride: tuple[int, ...]
) -> None:
    given = torch.randn(40).as_strided(shape, stride)
    row = {"file": "x.pt", "shape": list(shape), "stride": list(stride), "device": "cpu"}
    (made,) = recorded_values.inputs([row], lambda _: given.clone())
    assert made.stride() == stride
    assert torch.equal(made, given)


def test_inputs_that_are_no_tensors() -> None:
    rows = [
        {"type": "int", "value": "7"},
        {"type": "float", "value": "inf"},
        {"type": "bool", "value": "True"},
        {},
    ]
    assert recorded_values.inputs(rows, torch.load) == [7, float("inf"), True, None]


@pytest.mark.parametrize("words", [["--roles", "in"], ["--when", "before"]], ids=" ".join)
def test_an_output_that_was_not_recorded_is_not_compared(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An input that is updated and returned: what was recorded is its value at the start."""
    monkeypatch.chdir(tmp_path)
    Path("w.py").write_text(WRAPPER)
    main(["run", "w.py", "--probe", "save", "-d", "w.dump", *words])
    assert replay.open_call("w.dump/rank0/run0").outputs == (None, None, None)
