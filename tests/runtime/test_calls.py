"""Which calls, roles and tensors are recorded, and how a line says which call of what it is of."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import rewriter
from rewriter import cli
from rewriter.core.labels import labels
from rewriter.core.quantities import Calls
from rewriter.runtime import attach
from tables import options, row

SAMPLE = Path(__file__).parents[2] / "fixtures/artifacts/cuda-torch2.11/mlp/python/output_code.py"
TABLE = [
    row(
        before=[["in", "x"], ["inout", "y"]],
        after=[["in", "x"], ["inout", "y"], ["out", "z"]],
    )
]


def call(recorder: Any, number: int = 0) -> None:
    x, y = torch.ones(2), torch.zeros(2)
    recorder.begin()
    recorder.before(0, x, y)
    recorder.after(0, x, y + 1, x * number)


def runs(dump: Path) -> dict[str, int]:
    """The run directories, each with the call that it says it is of."""
    return {
        path.parent.name: json.loads(path.read_text())["call"]
        for path in sorted(dump.glob("rank0/run*/run.json"))
    }


NO_CALLS = ("", ",", "-", "-3", "3-2", "a", "3-5,", "1 2", "٣", "3--5", "1e3", "9" * 16, "3/2")


@pytest.mark.parametrize("text", [*NO_CALLS, "3-/0", "3-/", "3-9/a"])
def test_what_is_no_call(text: str) -> None:
    with pytest.raises(ValueError, match="no call or range of calls"):
        Calls(text)


def test_calls() -> None:
    found = Calls("0, 3-5,20-")
    assert [n for n in range(25) if n in found] == [0, 3, 4, 5, 20, 21, 22, 23, 24]
    assert 10**12 in found


def test_each_nth_call() -> None:
    assert [n for n in range(40) if n in Calls("1,4-10/3,20-/10")] == [1, 4, 7, 10, 20, 30]


def test_only_the_chosen_calls_are_recorded_under_their_own_numbers(
    dump: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder = attach(options("names", "print", calls="1,3-4"), TABLE)
    for number in range(8):
        call(recorder, number)
        said = capsys.readouterr().out
        assert ("z" in said) == (number in (1, 3, 4))
        assert all(line.startswith(f"[rewriter 0] call {number} #0") for line in said.splitlines())
    assert runs(dump) == {"run1": 1, "run3": 3, "run4": 4}


def test_the_environment_chooses_calls(
    dump: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REWRITER_CALLS", "2")
    recorder = attach(options("save", calls="0"), TABLE)
    for number in range(4):
        call(recorder, number)
    assert runs(dump) == {"run2": 2}
    monkeypatch.setenv("REWRITER_CALLS", "two")
    call(attach(options("save"), TABLE))
    assert runs(dump) == {"run2": 2}
    assert "REWRITER_CALLS: 'two' is no call or range of calls" in capfd.readouterr().err


def test_the_last_calls_are_kept_and_never_one_that_is_open(dump: Path) -> None:
    recorder = attach(options("save", last=2), TABLE)
    for number in range(6):
        call(recorder, number)
        over = range(max(0, number - 2), number)
        assert runs(dump) == {f"run{n}": n for n in (*over, number)}
        assert all(list((dump / f"rank0/run{n}").rglob("*.pt")) for n in over)
    recorder.end()
    assert runs(dump) == {"run4": 4, "run5": 5}


def test_a_call_that_was_moved_away_is_none_to_remove(
    dump: Path, tmp_path: Path, capfd: Any
) -> None:
    recorder = attach(options("save", last=1), TABLE)
    call(recorder, 0)
    call(recorder, 1)
    (dump / "rank0/run0").rename(tmp_path / "kept")
    call(recorder, 2)
    call(recorder, 3)
    assert (tmp_path / "kept/events.jsonl").exists()
    assert "warning" not in capfd.readouterr().err


def test_two_wrappers_keep_their_own_last_calls(dump: Path) -> None:
    pair = [attach(options("print", last=1, label=x), TABLE) for x in ("forward", "backward")]
    for number in range(4):
        for recorder in pair:
            call(recorder, number)
    for recorder in pair:
        recorder.end()
    kept = [json.loads(path.read_text()) for path in dump.glob("rank0/run*/run.json")]
    assert sorted((one["label"], one["call"]) for one in kept) == [("backward", 3), ("forward", 3)]


@pytest.mark.programs
@pytest.mark.usefixtures("warm_python")
def test_a_killed_process_leaves_the_last_calls_and_what_it_was_in(dump: Path) -> None:
    program = (
        "import os, signal, torch\n"
        "from rewriter.runtime import attach\n"
        f"recorder = attach({options('names', last=2)!r}, {TABLE!r})\n"
        "for number in range(20):\n"
        "    recorder.begin(); recorder.before(0, torch.ones(2), torch.ones(2))\n"
        "    if number == 19: os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(rewriter.__file__).parent.parent)}
    subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True)
    assert runs(dump) == {"run17": 17, "run18": 18, "run19": 19}


def test_values_that_a_launch_only_reads_are_shown_once(
    dump: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder = attach(options("print"), TABLE)
    call(recorder)
    lines = capsys.readouterr().out.splitlines()
    shown = [line.split()[3:4] + line.split()[5:7] for line in lines]
    assert shown == [
        ["before", "in", "x"],
        ["before", "inout", "y"],
        ["after", "inout", "y"],
        ["after", "out", "z"],
    ]
    # One that changed nevertheless is: somebody wrote out of bounds.
    x = torch.ones(2)
    recorder.begin()
    recorder.before(0, x, x)
    recorder.after(0, x + 1, x, x)
    assert "call 1 #0 after  k  in x  f32[2]  cpu  min 2 max 2" in capsys.readouterr().out
    # In the dump, both are.
    rows = [json.loads(x) for x in (dump / "rank0/run0/events.jsonl").read_text().splitlines()]
    assert [row["arg"] for row in rows] == ["x", "y", "x", "y", "z"]


def test_after_alone_shows_what_was_read(capsys: pytest.CaptureFixture[str], dump: Path) -> None:
    call(attach(options("print", when="after"), TABLE))
    assert "after  k  in x" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrappers", "expected"),
    [
        ([("inference", "c1.py")], [""]),
        ([("forward", "cabcdefg.py"), ("backward", "cabcdxyz.py")], ["forward", "backward"]),
        (
            [("forward", "cabcdefg.py"), ("forward", "cabcdefh.py"), ("backward", "c.py")],
            ["forward cabcdefg", "forward cabcdefh", "backward"],
        ),
        (
            [("inference", "c111111aaa.py"), ("inference", "c222222aaa.py")],
            ["inference c11111", "inference c22222"],
        ),
        (
            [("forward", "0_0_0/output_code.py"), ("forward", "1_0_0/output_code.py")],
            ["forward 0_0_0", "forward 1_0_0"],
        ),
    ],
    ids=["alone", "graphs", "long", "hashes", "directories"],
)
def test_labels(wrappers: list[tuple[str, str]], expected: list[str]) -> None:
    assert labels(wrappers) == expected


# --- What is written into the file ---------------------------------------------------------------


def inserted(**changes: Any) -> list[str]:
    made = rewriter.instrument(SAMPLE, rewriter.select("print", **changes))
    return [x.text.decode().strip().partition("  #")[0] for x in made.plan.insertions[1:]]


def test_roles() -> None:
    both = inserted(args="all")
    out = inserted(roles="out")
    assert not any(".before(" in line or ".inputs(" in line for line in out)
    assert sum(".after(" in line for line in out) == sum(".after(" in line for line in both)
    read = inserted(roles="in")
    assert [x for x in read if ".after(" in x] == []
    assert [x for x in read if ".before(" in x] == [x for x in both if ".before(" in x]
    changed = inserted(roles="inout")
    assert changed
    assert len(changed) < len(both)


def test_tensors() -> None:
    found = inserted(tensors="buf1")
    assert all("buf1" in line for line in found if "begin" not in line)
    assert any(".before(" in line for line in found)
    assert any(".after(" in line for line in found)
    given = [line for line in inserted(tensors="arg0_1,nothing*") if ".inputs(" in line]
    assert len(given) < 2


def test_probes_that_act_without_values_keep_their_lines() -> None:
    made = rewriter.instrument(SAMPLE, rewriter.select("names,print", tensors="buf1"))
    assert len(made.plan.probed) == len(rewriter.open(SAMPLE).launches)
    assert made.plan.unmatched == ()


def test_what_was_asked_for_is_in_the_file() -> None:
    selection = rewriter.select(
        "print", kernels="*", roles="in,out", tensors="buf*", calls="3-5, 7-", last=2
    )
    source = rewriter.instrument(SAMPLE, selection).source.decode()
    assert '"roles":["in","out"],"tensors":["buf*"],"calls":"3-5,7-","last":2}' in source
    assert "'calls': '3-5,7-', 'last': 2" in source


@pytest.mark.parametrize(
    ("words", "slug"),
    [
        ("--first 0", "bad-number"),
        ("--last 0", "bad-number"),
        (f"--first {'9' * 20}", "bad-number"),
        (f"--every {'9' * 16}", "bad-number"),
        ("--keep 3000000000", "bad-number"),
        ("--calls ''", "bad-calls"),
        ("--calls 5-3", "bad-calls"),
        ("--on ' , '", "bad-trigger"),
        ("--roles inn", "bad-roles"),
        ("--roles ''", "bad-roles"),
        ("--tensors nothing", "no-tensor-matches"),
        ("--roles out --tensors arg0_1", "no-tensor-matches"),
    ],
)
def test_options(words: str, slug: str, capsys: Any, tmp_path: Path) -> None:
    target = tmp_path / "out.py"
    assert cli.main(["instrument", str(SAMPLE), "-o", str(target), *shlex.split(words)]) == 2
    assert f"error[{slug}]" in capsys.readouterr().err
    assert not target.exists()


def test_first(tmp_path: Path) -> None:
    target = tmp_path / "out.py"
    assert cli.main(["instrument", str(SAMPLE), "-o", str(target), "--first", "3"]) == 0
    assert "'calls': '0-2'" in target.read_text()


def test_launches_outside_of_the_chosen_calls_cost_one_check(dump: Path) -> None:
    """Their values are not read."""

    class Value:
        def __repr__(self) -> str:
            pytest.fail("it was read")

    recorder = attach(options("print", calls="5"), TABLE)
    recorder.begin()
    recorder.before(0, Value(), Value())
    recorder.after(0, Value(), Value(), Value())
    recorder.inputs(Value())
    recorder.end()
    assert not dump.exists()


def test_the_probes_are_known_again_whatever_was_chosen(tmp_path: Path) -> None:
    """`diff` makes them again from what the file says."""
    from rewriter.instrumentation.instrument import instrument_wrapper
    from rewriter.instrumentation.probe_check import check

    selection = rewriter.select("print,save", roles="in,out", tensors="buf*", calls="2-", last=3)
    wrapper = rewriter.open(SAMPLE).only
    made = instrument_wrapper(wrapper, selection, label="forward cabcde")
    path = tmp_path / SAMPLE.name
    path.write_bytes(made.source)
    found = check(rewriter.open(path).only)
    assert found is not None
    assert found.state == "verified", found
    path.write_bytes(made.source.replace(b"'forward cabcde'", b"'backward c'"))
    found = check(rewriter.open(path).only)
    assert found is not None
    assert found.state == "changed"
