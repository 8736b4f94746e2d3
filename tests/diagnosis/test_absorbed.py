"""NaN that no result of the call has, as with `nan_to_num(softmax(s), 0)`: no fault if the launch
is right. A NaN that gets out of the call is one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import dumps
from launch_facts import checked
from rewriter.commands._documents.program import ProgramRunDocument
from rewriter.core.exit_status import ExitStatus
from rewriter.diagnosis import values_needed
from rewriter.diagnosis.judged import judge, with_code
from rewriter.diagnosis.nonfinite import Searched, search
from rewriter.diagnosis.ruling import of_nonfinite, rule
from rewriter.diagnosis.verdict_text import describe
from rewriter.diagnosis.verification.types import Outcome, Verification
from rewriter.dump.reading import open_dump
from rewriter.dump.summary import summarise
from rewriter.execution.conclusion import Conclusion
from rewriter.execution.hook.run import HookedRun, Request
from rewriter.execution.run_result import RunResult
from rewriter.instrumentation.select import select
from rewriter.report import model

value, launch = dumps.value, dumps.launch
X, NAN = value("arg0_1", mean=3.0), {"nan": 5}
CALL = {"scope": "call"}
WRAPPER = """# AOT ID: ['0_inference']
from torch._inductor.codecache import AsyncCompile


def call(args):
    arg0_1, = args
    buf0 = empty_strided_cpu((4, 8), (8, 1), torch.float32)
    cpp_fused_softmax_0(arg0_1, buf0)
    buf1 = empty_strided_cpu((4, 8), (8, 1), torch.float32)
    cpp_fused_nan_to_num_1(buf0, buf1)
    buf2 = empty_strided_cpu((4, 8), (8, 1), torch.float32)
    cpp_fused_log_2(buf1, buf2)
    return (buf1, buf2, )
"""


def _dump(
    folder: Path,
    *,
    first: bool = True,
    last: bool = False,
    given: bool = False,
    calls: int = 1,
    wrapper: str = WRAPPER,
    outputs: tuple[str, ...] = ("buf1", "buf2"),
) -> Path:
    """Calls whose `first` launch makes NaN that the second one absorbs, and whose `last` launch
    makes some that are returned."""
    x = {**X, **NAN} if given else X
    kept, done = value("buf0", "out", nan=5 * first), value("buf1", "out")
    made = value("buf2", "out", nan=5 * last)
    found = [
        launch(0, "cpp_fused_softmax_0", [x], [kept], **CALL),
        launch(1, "cpp_fused_nan_to_num_1", [{**kept, "role": "in"}], [done], **CALL),
        launch(2, "cpp_fused_log_2", [{**done, "role": "in"}], [made], **CALL),
    ]
    where = {"artifact": "wrapper.py", "wrapper": wrapper, "outputs": outputs}
    for call in range(calls):
        dumps.write(folder, found, inputs=[x], run=call, call=call, **where)
    return folder


def _checks(*outcomes: Outcome) -> Verification:
    facts = {"kernel": "cpp_fused_softmax_0", "artifact": "wrapper.py", "reason": "random"}
    return Verification(
        tuple(checked(launch=at, outcome=one, **facts) for at, one in enumerate(outcomes))
    )


def _launches(found: Searched) -> list[tuple[int | None, bool]]:
    return [(one.launch, one.absorbed) for one in found.verdicts]


def test_a_nan_that_no_result_has_is_a_note_if_its_launch_is_right(tmp_path: Path) -> None:
    found = search(_dump(tmp_path, calls=3))
    assert found.verdicts == found.absorbed  # of the first call: it is the same launch in others
    assert _launches(found) == [(0, True)]
    assert "if the launch computes what it should" in describe(found.verdicts[0], next_command="")
    right = of_nonfinite(found.absorbed, _checks("agrees"), launches=3, is_random=False)
    assert right.findings == ()
    assert right.ruled_out == "NaN: nothing that a call returns or updates has one"
    assert right.notes == (
        "launch #0 cpp_fused_softmax_0 (line 100) makes the first NaN: 5 of 32 elements of buf0; "
        "no fault: nothing that a call returns or updates has one, and the launch does what "
        "its graph says",
    )
    assert not rule([right]).fails(strict=False)


@pytest.mark.parametrize("returned", [False, True])
def test_it_is_a_fault_of_run_and_report_if_it_gets_out(returned: bool, tmp_path: Path) -> None:
    path = _dump(tmp_path, last=returned)
    ended = ExitStatus(code=0)
    judged = judge(path, Conclusion(ended, False, ""))
    ran = HookedRun(ended, summary=summarise(path))
    request = Request(program=("python",), selection=select(["print"]))
    assert ProgramRunDocument(request=request, run=ran, judged=judged).code == returned
    artifact = RunResult(Path("wrapper.py"), 0, path, (), (), (), (), 1.0, ended)
    assert with_code(artifact, judged.verdicts).code == returned
    reported = model.report(open_dump(path))
    assert reported.found == returned
    assert returned != reported.verdict.endswith(
        " Nothing that the call returns or updates has one."
    )


def test_nan_that_a_launch_reads_and_none_wrote_come_before_those_of_an_earlier_call(
    tmp_path: Path,
) -> None:
    reads = launch(1, "k", [value("buf0", nan=5)], [value("buf1", "out")], **CALL)
    where = {"artifact": "wrapper.py", "wrapper": WRAPPER, "outputs": ("buf1", "buf2")}
    path = dumps.write(_dump(tmp_path), [reads], inputs=[X], run=1, call=1, **where)
    assert [(x.run, x.launch, x.is_fault) for x in search(path).verdicts] == [
        ("rank0/run1", 1, True)
    ]


@pytest.mark.parametrize("checks", [_checks("differs"), _checks("unchecked"), None])
def test_it_is_a_fault_if_its_launch_is_wrong_or_unchecked(
    checks: Verification | None, tmp_path: Path
) -> None:
    found = search(_dump(tmp_path))
    made = of_nonfinite(found.absorbed, checks, launches=3, is_random=False)
    assert [(one.kind, one.launch) for one in made.findings] == [("nan", 0)]


def test_a_nan_that_gets_out_is_named_and_not_the_one_before_it(tmp_path: Path) -> None:
    found = search(_dump(tmp_path, last=True))
    assert _launches(found) == [(2, False)]
    assert found.absorbed == ()


def test_a_call_that_returns_nan_comes_before_one_that_absorbs_some(tmp_path: Path) -> None:
    _dump(tmp_path)
    bad = _dump(tmp_path / "b", last=True) / "rank0" / "run0"
    bad.rename(tmp_path / "rank0" / "run1")
    found = search(tmp_path)
    assert _launches(found) == [(2, False)]
    assert [(one.run, one.launch) for one in found.absorbed] == [("rank0/run0", 0)]
    both = (*found.verdicts, *found.absorbed)
    ruled = of_nonfinite(both, _checks("agrees"), launches=6, is_random=False)
    assert [(one.run, one.launch) for one in ruled.findings] == [("rank0/run1", 2)]
    # Only that call is needed with all its values.
    assert values_needed.calls(tmp_path, 1 << 30, both) == "0"  # both are call 0 of their folder
    assert values_needed.calls(tmp_path, 1 << 30, found.absorbed) == "0"


def test_nan_among_the_inputs_that_no_result_has_are_no_fault(tmp_path: Path) -> None:
    found = search(_dump(tmp_path, first=False, given=True))
    assert _launches(found) == [(None, True)]
    (note,) = of_nonfinite(found.absorbed, None, launches=3, is_random=False).notes
    assert note == (
        "the first NaN is in the inputs of the call: 5 of 32 elements of arg0_1, rank 0, "
        "1st call of the inference graph; no fault: nothing "
        "that a call returns or updates has one"
    )


@pytest.mark.parametrize(
    "wrapper",
    [
        "",
        WRAPPER.replace("    return", "    cpp_fused_mul_3(buf0, buf1)\n    return"),
        WRAPPER.replace("    return", "    unknown(buf1)\n    return"),
    ],
    ids=["no wrapper", "a launch without a record", "another writer"],
)
def test_what_a_call_returns_may_not_be_known(wrapper: str, tmp_path: Path) -> None:
    assert _launches(search(_dump(tmp_path, wrapper=wrapper))) == [(0, False)]


def test_an_updated_input_is_a_result(tmp_path: Path) -> None:
    text = WRAPPER.replace("cpp_fused_log_2(buf1, buf2)", "cpp_fused_log_2(buf1, arg0_1)")
    text = text.replace("buf1, buf2, )", "buf1, )")
    dump = _dump(tmp_path, wrapper=text, outputs=("buf1",))
    assert _launches(search(dump)) == [(0, True)]
    last = {"arg": "arg0_1", "role": "inout", "nan": 1}
    dumps.change_rows(dump, lambda rows: rows[-1].update(last))
    assert _launches(search(dump)) == [(2, False)]


def test_a_note_is_about_the_call_that_was_checked(tmp_path: Path) -> None:
    (verdict,) = search(_dump(tmp_path)).absorbed
    other = replace(verdict, run="rank0/run7")
    ruled = of_nonfinite((other,), _checks("agrees"), launches=3, is_random=False)
    assert [one.run for one in ruled.findings] == ["rank0/run7"]


_LOOP = """# AOT ID: ['0_inference']
from torch._inductor.codecache import AsyncCompile


def while_loop_body_graph_0_0(args):
    arg1_1, rows = args
    args.clear()
    cpp_fused_copy_0(arg1_1, rows)
    return (arg1_1, rows, )


def call(args):
    arg0_1, = args
    args.clear()
    buf0 = empty_strided_cpu((4, 8), (8, 1), torch.float32)
    buf3 = [None] * 2
    buf3[0] = arg0_1
    buf3[1] = buf0
    for _ in range(3):
        while_loop_body_graph_0_0_args = [buf3[0], buf3[1]]
        (buf3[0], buf3[1]) = while_loop_body_graph_0_0(while_loop_body_graph_0_0_args)
    return (buf0, )
"""


@pytest.mark.parametrize(("left", "absorbed"), [(0, True), (2, False)])
@pytest.mark.parametrize("is_seen_before", [False, True])
def test_memory_that_a_loop_fills_may_hold_nan_until_then(
    left: int, absorbed: bool, is_seen_before: bool, tmp_path: Path
) -> None:
    """As the rows of a result of `scan` that it has not written yet."""
    steps = []
    for at, (before, after) in enumerate([(8, 5), (5, 2), (2, left)]):
        x, rows = value("arg1_1", mean=3.0 + at), value("rows", "inout", nan=after)
        given = [x, {**rows, "nan": before}] if is_seen_before else [x]
        facts = {"scope": "while_loop_body_graph_0_0", "iteration": at}
        steps.append(launch(0, "cpp_fused_copy_0", given, [rows], **facts))
    dumps.write(tmp_path, steps, artifact="wrapper.py", wrapper=_LOOP, outputs=("buf0",))
    (found,) = search(tmp_path).verdicts
    assert (found.state, found.absorbed) == ("read" if is_seen_before else "wrote", absorbed)
