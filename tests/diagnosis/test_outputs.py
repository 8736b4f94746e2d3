"""What is said of the outputs of calls that were compared with their graphs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launch_facts import crashed
from rewriter.artifact.opening import open_artifact
from rewriter.core.exit_status import ExitStatus
from rewriter.diagnosis import outputs
from rewriter.diagnosis.outputs import of_calls, with_types
from rewriter.diagnosis.ruling import Examined, of_end, rule
from rewriter.diagnosis.verdict_values import VerdictArgument
from rewriter.diagnosis.verification.end_to_end import CallCheck
from rewriter.diagnosis.verification.types import Checked, Comparison

RIGHT = Checked("buf1", "add = aten.add(x)", Comparison(0, 32))
UNKNOWN = Checked("buf2", "round = aten.round(x)", Comparison(0, 32, unsure=32))


def test_an_output_of_which_nothing_is_known_is_not_ruled_out() -> None:
    both = of_calls([CallCheck("rank0/run0", "c.py", (RIGHT, UNKNOWN), missing=1)])
    assert both.ruled_out.startswith("wrong outputs: 1 output of 1 call is what")
    assert not both.outputs_agree
    assert of_calls([CallCheck("rank0/run0", "c.py", (RIGHT,))]).outputs_agree
    assert of_calls([CallCheck("rank0/run0", "c.py", (UNKNOWN,))]).ruled_out == ""


def test_an_output_that_has_no_value_by_its_graph_leaves_the_others_right() -> None:
    """`torch.empty`, which attention writes after the call: it does not count as missing."""
    empty = Checked("buf2", "empty = aten.empty()", Comparison(0, 32, unsure=32))
    assert of_calls([CallCheck("rank0/run0", "c.py", (RIGHT, empty))]).outputs_agree


def test_outputs_that_were_not_compared_are_in_the_headline() -> None:
    checked = Examined(checked=2, launches=2)
    calls = [CallCheck("rank0/run0", "c.py", (RIGHT,)), CallCheck("rank0/run1", "c.py", missing=3)]
    whole, part = rule([checked, of_calls(calls[:1])]), rule([checked, of_calls(calls)])
    assert whole.headline == "nothing wrong was found; all launches were checked"
    assert part.headline == f"{whole.headline}; 3 of 4 outputs (75%) were not compared"
    assert (part.compared, part.outputs) == (1, 4)
    assert [one.fails(strict=True) for one in (whole, part)] == [False, True]
    assert not part.fails(strict=False)


@pytest.mark.parametrize(
    ("allocated", "given", "said"),
    [
        ("float32", "buf0", ""),
        ("int32", "arg1_1", ""),
        ("int32", "buf0", "; buf0 is allocated as int32, and the graph has float32"),
    ],
)
def test_a_crash_in_a_launch_that_is_given_a_result_of_another_type(
    allocated: str, given: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "w.py").write_text(f"""\
from torch._inductor.select_algorithm import extern_kernels
def call(args):
    arg0_1, arg1_1 = args
    buf0 = empty_strided_cpu((4, 4), (4, 1), torch.{allocated})
    extern_kernels.mm(arg0_1, arg1_1, out=buf0)
    return (buf0, )
""")
    graph = (
        'def forward(self, arg0_1: "f32[4, 4]", arg1_1: "f32[4, 4]"):\n'
        '    mm: "f32[4, 4]" = torch.ops.aten.mm.default(arg0_1, arg1_1)\n'
        "    return (mm,)\n"
    )
    wrapper = open_artifact(tmp_path / "w.py").only
    monkeypatch.setattr(outputs, "wrapper_of", lambda _: wrapper)
    dump: Any = SimpleNamespace(runs=[SimpleNamespace(name="rank0/run0", graph=graph)])
    crash = crashed(
        ended=ExitStatus(1, message="RuntimeError: no"),
        arguments=(VerdictArgument(given, "out", None),),
    )
    end = of_end(crash.ended, [crash])
    (found,) = with_types(end, [crash], dump).findings
    assert found.what == end.findings[0].what + said
