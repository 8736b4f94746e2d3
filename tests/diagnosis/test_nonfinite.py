"""What `nonfinite.search` finds of dumps written by hand: where the first NaN is from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import dumps
from artifacts import get
from rewriter.core.documents import as_json
from rewriter.core.exit_status import ExitStatus
from rewriter.diagnosis.nonfinite import search
from rewriter.diagnosis.verdict import NonFiniteVerdict
from rewriter.diagnosis.verdict_text import describe, next_command, statistics
from rewriter.dump import names
from rewriter.dump.names import SourceLine
from rewriter.dump.reading import open_dump
from rewriter.dump.rows import TensorRow
from rewriter.execution.conclusion import Conclusion, read_conclusion, write_conclusion
from rewriter.instrumentation.select import select
from rewriter.report.model import report

HALF = {"dtype": "float16"}
VALUES = "all values of these launches"


def chain(*, nan: int = 4, mask: bool = False, used: bool = True, when: str = "both") -> list[Any]:
    """#0 reads x, #1 scales it beyond float16 (or fills a mask), #2 hands that on, #3 makes NaN."""
    value = dumps.value
    scaled = value("buf1", "out", inf=3, **{**HALF, "max": 65000.0})
    reads = [] if mask else [value("buf0", mean=2.0, **HALF)]
    handed = value("buf2", "out", inf=3, mean=5.0, **HALF) if used else value("buf2", "out", 7.0)
    given = {**scaled, "role": "in"} if used else value("y", mean=1.0)
    first, last = value("buf0", "out", 2.0, **HALF), value("buf3", "out", 1.0, nan=nan)
    return [
        dumps.launch(0, "cpp_fused_add_0", [value("x", mean=3.0)], [first], when=when),
        dumps.launch(1, "cpp_fused_mul_1", reads, [scaled], when=when),
        dumps.launch(2, "cpp_fused_relu_2", [given], [handed], when=when),
        dumps.launch(3, "cpp_fused_softmax_3", [{**handed, "role": "in"}], [last], when=when),
    ]


def verdicts(tmp_path: Path, found: list[Any], **more: Any) -> tuple[NonFiniteVerdict, ...]:
    inputs = [dumps.value("x", mean=3.0)]
    return search(dumps.write(tmp_path / "x.dump", found, inputs=inputs), **more).verdicts


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("used", [False, True])
def test_the_verdict_is_the_same_where_each_value_is_recorded_once(
    mask: bool, used: bool, tmp_path: Path
) -> None:
    """Word for word: what a launch was given, and from whom, is known by the flow of values."""
    found, inputs = chain(mask=mask, used=used), [dumps.value("x", mean=3.0)]
    once = dumps.each_once(found, inputs)
    assert not any(row["phase"] == "before" for _, rows in once for row in rows)
    all_of_them = search(dumps.write(tmp_path / "all.dump", found, inputs=inputs)).verdicts
    written = search(dumps.write(tmp_path / "written.dump", once, inputs=inputs)).verdicts
    assert written
    for one, other in zip(all_of_them, written, strict=True):
        assert describe(one, next_command="") == describe(other, next_command="")


def test_without_nan_there_is_no_verdict(tmp_path: Path) -> None:
    assert verdicts(tmp_path, chain(nan=0)) == ()
    assert search(tmp_path / "none").verdicts == ()


def test_of_a_cuda_graph_no_values_can_be_saved(tmp_path: Path) -> None:
    given, made = dumps.value("x", mean=3.0), dumps.value("buf0", "out", nan=4)
    table, rows = dumps.launch(0, "triton_log_0", [given], [made], kind="triton")
    inside = [(table, [{**row, "captured": True} for row in rows])]
    (only,) = verdicts(tmp_path, inside)
    assert only.captured
    assert only.wants == ("--launches 0 --probe print --args all", "what they are given")
    assert "no values can be saved" in describe(only, next_command="")
    recorded = select("names,print", args="all")
    assert next_command("rewriter run '{options}' x.py", only, recorded) == ""
    # The same launch outside of a graph, and an input of a call that was captured.
    (outside,) = verdicts(tmp_path / "outside", [(table, rows)])
    assert not outside.captured
    assert outside.wants[0] == "--launches 0 --probe print,save"
    wrong = dumps.value("x", nan=1, captured=True)
    (came_in,) = search(dumps.write(tmp_path / "in.dump", [], inputs=[wrong])).verdicts
    assert (came_in.state, came_in.wants) == ("given", ("", ""))


def test_an_overflow_comes_before_the_nan_that_it_causes(tmp_path: Path) -> None:
    first, second = verdicts(tmp_path, chain())
    assert first.headline == (
        "launch #1 cpp_fused_mul_1 (line 101) makes infinities (3 of 32 elements of buf1), which "
        "#3 cpp_fused_softmax_3 (line 103) turns into the first NaN"
    )
    assert "the largest float16 is 65504: it overflows" in describe(first, next_command="")
    assert first.wants == ("--launches 0,1,3 --probe print,save", VALUES)
    assert second.headline == (
        "launch #3 cpp_fused_softmax_3 (line 103) makes the first NaN, of infinities that "
        "#1 cpp_fused_mul_1 (line 101) made: 4 of 32 elements of buf3"
    )
    assert "Its inputs hold no NaN, but infinities (buf2)" in second.notes[0]
    assert as_json(second)["cause"]["launch"] == 1
    assert as_json(first)["effect"]["launch"] == 3


def test_after_launches_alone_the_overflow_is_found_by_who_wrote_it(tmp_path: Path) -> None:
    assert [one.launch for one in verdicts(tmp_path, chain(when="after"))] == [1, 3]


@pytest.mark.parametrize(
    "found",
    [chain(mask=True), chain(used=False)],
    ids=["a mask, which is constant", "an infinity that the launch did not read"],
)
def test_an_infinity_that_is_no_cause_is_not_blamed(tmp_path: Path, found: list[Any]) -> None:
    (only,) = verdicts(tmp_path, found)
    assert (only.launch, only.state, only.cause) == (3, "made", None)
    if found[1][1][0]["phase"] == "after":
        assert "masked in full" in only.notes[0]
    else:
        assert "the launch itself makes them" in only.notes[0]


def test_a_nan_that_a_launch_made(tmp_path: Path) -> None:
    low = dumps.value("buf0", mean=2.0, min=-3.5)
    made, later = dumps.value("buf1", "out", nan=5), dumps.value("buf2", "out", nan=5)
    found = [
        dumps.launch(0, "cpp_fused_add_0", [dumps.value("x", mean=3.0)], [{**low, "role": "out"}]),
        dumps.launch(1, "cpp_fused_log_1", [low], [made]),
        dumps.launch(2, "cpp_fused_neg_2", [{**made, "role": "in"}], [later]),
    ]
    (only,) = verdicts(tmp_path, found)
    assert [one["launch"] for one in as_json(only)["passed_on"]] == [2]
    assert as_json(only)["origin"] == only.origin == "made here"
    assert describe(only, next_command="rewriter run x.py").splitlines() == [
        "verdict: launch #1 cpp_fused_log_1 (line 101) makes the first NaN: 5 of 32 elements of "
        "buf1",
        "  output_code.py, rank 0, 1st call of the wrapper (rank0/run0), cpp",
        "  in    buf0  f32[4, 8] stride [8, 1]  cpu  min -3.5 max 3 mean 2 nan 0 inf 0",
        "        written by #0 cpp_fused_add_0 (line 100)",
        "  out   buf1  f32[4, 8] stride [8, 1]  cpu  min -1 max 1 mean 0 nan 5 inf 0",
        "  passed on by #2 cpp_fused_neg_2 (line 102)",
        "  note: No input of the launch held NaN or infinities: the launch itself makes them.",
        "  note: By its name the kernel computes log: a logarithm of a negative number is NaN, and "
        "buf0 goes down to -3.5.",
        "  next: rewriter run x.py",
        "        (all values of these launches)",
    ]


@pytest.mark.parametrize(
    ("kernel", "bad", "note"),
    [
        ("cpp_fused_relu_1", {"nan": 5}, ""),
        (
            "cpp_fused_div_1",
            {"nan": 5},
            "div: 0 divided by 0 is NaN, any other number infinite, and",
        ),
        ("cpp_fused_div_sqrt_backward_1", {"nan": 5}, "0 divided by 0 is NaN"),
        ("cpp_fused_log_1", {"inf": 5}, "a logarithm of 0 is -Inf, and there is a 0 in buf0"),
        ("cpp_fused_rsqrt_1", {"inf": 5}, "what is divided by 0 is infinite"),
    ],
)
def test_a_zero_among_what_is_read_is_noted(
    kernel: str, bad: dict[str, int], note: str, tmp_path: Path
) -> None:
    zero, low = dumps.value("buf0", min=0.0), dumps.value("w", min=-3.0)
    found = [dumps.launch(0, kernel, [zero, low], [dumps.value("buf1", "out", **bad)])]
    (only,) = verdicts(tmp_path, found)
    named = [text for text in only.notes if text.startswith("By its name")]
    assert len(named) == (note != "")
    assert all(note in text and "-3" not in text for text in named)


def computing(
    folder: Path, kernel: str, given: list[Any], computes: tuple[str, ...]
) -> NonFiniteVerdict:
    """The verdict about a launch that makes NaN, of which the nodes are known."""
    launches = [dumps.launch(0, kernel, given, [dumps.value("buf0", "out", nan=5)])]
    dump = dumps.write(folder / "x.dump", launches)
    names.write(dump, {"": names.Names(computes={0: computes})})
    (only,) = search(dump).verdicts
    return only


def test_what_enters_a_logarithm_is_named(tmp_path: Path) -> None:
    """Where the launch computes it itself, none of its arguments is negative for that reason."""
    given = [dumps.value("a", min=-3.0), dumps.value("b", min=1.0)]
    computes = ("sub = aten.sub.Tensor(a, b)", "log = aten.log.default(sub)")
    assert computing(tmp_path, "cpp_fused_log_sub_0", given, computes).notes[-1] == (
        "It computes log = aten.log.default(sub), of sub = aten.sub.Tensor(a, b): a logarithm of a "
        "negative number is NaN."
    )


_MASKED_MEAN = """
def forward(self, x: "f32[4, 8]", mask: "f32[4, 8]", bias: "f32[8]"):
    # File: /m/model.py:11 in forward, code: hidden = self.norm(x)
    var_mean = torch.ops.aten.var_mean.correction(x, [1])
    getitem: "f32[4, 1]" = var_mean[0]
    add: "f32[4, 1]" = torch.ops.aten.add.Tensor(getitem, 1e-05)
    rsqrt: "f32[4, 1]" = torch.ops.aten.rsqrt.default(add)
    add_1: "f32[4, 8]" = torch.ops.aten.add.Tensor(rsqrt, bias)
    # File: /m/model.py:6 in forward, code: return total / mask.sum(1, keepdim=True)
    sum_1: "f32[4, 1]" = torch.ops.aten.sum.dim_IntList(mask, [1], True)
    div: "f32[4, 8]" = torch.ops.aten.div.Tensor(add_1, sum_1)
    return (div,)
"""


def test_the_line_that_divides_comes_first_and_what_it_divides_by_is_named(tmp_path: Path) -> None:
    """Not the layer norm before it, nor its bias, which holds a 0 as well."""
    given = [dumps.value(name, min=0.0) for name in ("x", "mask", "bias")]
    launches = [dumps.launch(0, "cpp_fused_div_0", given, [dumps.value("buf0", "out", nan=5)])]
    sha256 = "5" * 64
    dump = dumps.write(tmp_path / "x.dump", launches, sha256=sha256, graph=_MASKED_MEAN)
    nodes = re.findall(r"^    (\w+).*? = (?:torch\.ops\.)?(\S.*)$", _MASKED_MEAN, re.MULTILINE)
    computes = tuple(f"{name} = {call}" for name, call in nodes)
    lines = tuple(SourceLine("/m/model.py", number) for number in (11, 6))
    known = names.Names(computes={0: computes}, lines={0: lines}, lowered=_MASKED_MEAN)
    names.write(dump, {sha256: known})
    (only,) = search(dump).verdicts
    assert [line.line for line in only.lines] == [6, 11]
    assert only.notes[-1] == (
        "It computes div = aten.div.Tensor(add_1, sum_1): 0 divided by 0 is NaN, any other number "
        "infinite, and there is a 0 in mask, from which sum_1 is computed."
    )
    assert describe(only, next_command="").partition("\n")[0].endswith(" of buf0 (model.py:6)")


def test_memory_that_the_model_does_not_write_is_named(tmp_path: Path) -> None:
    computes = ("empty = aten.empty.memory_format([8])", "add = aten.add.Tensor(a, empty)")
    only = computing(tmp_path, "cpp_fused_log_0", [dumps.value("a")], computes)
    assert only.notes[-1] == (
        "It computes with empty = aten.empty.memory_format, which the model does not write: "
        "Inductor has NaN there."
    )


@pytest.mark.parametrize(
    ("kernel", "nan", "excused"),
    [
        ("torch.ops.aten.bernoulli_.float", 32, True),
        ("aoti_torch_cpu_bernoulli__float", 32, True),
        ("torch.ops.aten.normal_functional.default", 32, True),
        ("torch.ops.aten.bernoulli_.float", 5, False),
        ("torch.ops.aten.bernoulli.default", 32, False),
        ("torch.ops.aten.normal.Tensor_Tensor", 32, False),
        ("torch.ops.aten.mul_.Tensor", 32, False),
        ("cpp_fused_bernoulli_mul_1", 32, False),
    ],
)
def test_nan_that_stands_for_torch_empty_is_no_nan_of_the_model(
    kernel: str, nan: int, excused: bool, tmp_path: Path
) -> None:
    """Inductor writes NaN for it; an operator that draws all elements does not read them."""
    held = dumps.value("buf0", "out", nan=nan)
    launches = [
        dumps.launch(0, "cpp_fused_add_empty_0", [dumps.value("a")], [held]),
        dumps.launch(1, kernel, [{**held, "role": "inout"}], [dumps.value("buf0", "inout")]),
    ]
    assert len(verdicts(tmp_path, launches)) == (not excused)
    dump = tmp_path / "x.dump"
    assert any(x.kind == "nan" for x in report(open_dump(dump)).findings) == (not excused)


_NORM = (
    "pow_1 = aten.pow.Tensor_Scalar(a, 2)", "mean = aten.mean.dim(pow_1, [-1], True)",
    "add = aten.add.Tensor(mean, 1e-05)", "rsqrt = aten.rsqrt.default(add)",
)  # fmt: skip


@pytest.mark.parametrize(
    ("computes", "suspected"),
    [
        (_NORM, ""),
        (("sub = aten.sub.Tensor(a, b)", "pow_1 = aten.pow.Tensor_Scalar(sub, 2)"), ""),
        (("pow_1 = aten.pow.Tensor_Scalar(b, 2)",), ""),
        (("exp = aten.exp.default(a)", "sum_1 = aten.sum.dim_IntList(exp, [1])",
          "log = aten.log.default(sum_1)"), ""),
        (("var_mean = aten.var_mean.correction(a, [1])", "getitem = var_mean[0]",
          "add = aten.add.Tensor(getitem, 1e-05)", "rsqrt = aten.rsqrt.default(add)"), ""),
        (("mul = aten.mul.Tensor(a, a)", "sqrt = aten.sqrt.default(mul)"), ""),
        (("div = aten.div.Tensor(a, 2.0)",), ""),
        (("pow_1 = aten.pow.Tensor_Scalar(a, 3)", "log = aten.log.default(pow_1)"), "log ="),
        (("exp = aten.exp.default(a)", "add = aten.add.Tensor(exp, a)",
          "log = aten.log.default(add)"), "log ="),
        (("relu = aten.relu.default(a)", "mul = aten.mul.Tensor(relu, -1)",
          "sqrt = aten.sqrt.default(mul)"), "sqrt ="),
        (("relu = aten.relu.default(a)", "add = aten.add.Tensor(relu, -1.0)",
          "rsqrt = aten.rsqrt.default(add)"), "rsqrt ="),
        ((*_NORM[:2], "add = aten.add.Tensor(mean, 1e-50)", _NORM[3]), "rsqrt ="),
    ],
)  # fmt: skip
def test_what_a_function_is_given_says_whether_it_is_suspected(
    computes: tuple[str, ...], suspected: str, tmp_path: Path
) -> None:
    """Not its name alone, where an argument of the launch holds a 0 or goes below it."""
    given = [dumps.value("a", min=0.0), dumps.value("b", min=-3.0)]
    kernel = "_".join(["k_fused", *(re.findall(r"aten\.(\w+)", "".join(computes))), "0"])
    only = computing(tmp_path, kernel, given, computes)
    assert not any("By its name" in note for note in only.notes)
    assert any(f"It computes {suspected}" in x for x in only.notes) is bool(suspected)


def test_a_nan_among_the_inputs(tmp_path: Path) -> None:
    dump = dumps.write(tmp_path / "x.dump", [], inputs=[dumps.value("w", mean=1.0)])
    dumps.write(dump, [], inputs=[dumps.value("w", nan=2)], run=1)
    (only,) = search(dump).verdicts
    assert (only.launch, only.state) == (None, "given")
    assert only.headline == (
        "the first NaN is in the inputs of the call: 2 of 32 elements of w, rank 0, 2nd call of "
        "the wrapper"
    )
    assert only.call == "2nd call of the wrapper"
    assert only.notes == ("It came in from outside; earlier calls were given none.",)


def test_a_nan_that_nobody_saw_written(tmp_path: Path) -> None:
    found = [dumps.launch(4, "k", [dumps.value("z", nan=1)], [dumps.value("buf4", "out", nan=1)])]
    (only,) = verdicts(tmp_path, found)
    assert (only.launch, only.state) == (4, "read")
    assert only.wants[0] == "--probe print"


def test_what_a_launch_was_given_may_not_be_recorded(tmp_path: Path) -> None:
    found = [dumps.launch(0, "k", [], [dumps.value("buf0", "inout", nan=1)], when="after")]
    (only,) = verdicts(tmp_path, found)
    assert only.state == "wrote"
    assert "`--args all` tells" in only.notes[0]
    # It is not what the launch was given.
    text = describe(only, next_command="")
    assert "inout buf0  f32[4, 8] stride [8, 1]  cpu  afterwards min " in text


def test_what_it_updates_is_known_from_who_wrote_it(tmp_path: Path) -> None:
    low, made = dumps.value("buf0", "out", min=-3.5), dumps.value("buf0", "inout", nan=1)
    found = [
        dumps.launch(0, "cpp_fused_add_0", [], [low], when="after"),
        dumps.launch(1, "k", [], [made], when="after", after=[["inout", "buf0"]]),
    ]
    (only,) = verdicts(tmp_path, found)
    (argument,) = only.arguments
    assert isinstance(argument.row, TensorRow)
    assert isinstance(argument.after, TensorRow)
    assert (only.state, argument.row.min, argument.after.nan) == ("made", -3.5, 1)
    assert "the launch itself makes them" in only.notes[0]


def test_how_an_input_moved_over_the_calls(tmp_path: Path) -> None:
    dump = tmp_path / "x.dump"
    for run, size in enumerate((2.0, 4.0, 64.0, 512.0)):
        given = dumps.value("x", max=size)
        made = dumps.value("buf0", "out", nan=int(run == 3))
        dumps.write(dump, [dumps.launch(0, "k", [given], [made])], run=run)
    (only,) = search(dump).verdicts
    assert (only.run, only.call) == ("rank0/run3", "4th call of the wrapper")
    text = describe(only, next_command="")
    assert "        max |x| in the 1st to 3rd call: 2, 4, 64" in text
    # `--calls` counts from 0.
    assert only.wants == ("--launches 0 --probe print,save --calls 3", f"{VALUES} in that call")
    assert not any("was not recorded" in note for note in only.notes)
    earlier = as_json(only)["arguments"][0]["earlier"]
    assert [one["call"] for one in earlier] == [1, 2, 3]


def test_a_record_of_the_last_calls_alone(tmp_path: Path) -> None:
    """What came into the first one that is there may be of a call that is not."""
    inputs = [dumps.value("x", nan=1)]
    dump = tmp_path / "x.dump"
    for run in (7, 8):
        made = dumps.value("buf0", "out", nan=1)
        dumps.write(dump, [dumps.launch(0, "k", inputs, [made])], inputs=inputs, run=run, call=run)
    (only,) = search(dump).verdicts
    assert (only.state, only.call) == ("given", "8th call of the wrapper")
    assert "The call before it was not recorded" in only.notes[1]
    assert only.wants[0] == "--tensors x --probe print,save --calls 7"


def test_calls_are_those_of_one_wrapper(tmp_path: Path) -> None:
    found = [dumps.launch(0, "k", [], [dumps.value("buf0", "out", nan=1)])]
    fine = [dumps.launch(0, "k", [], [dumps.value("buf0", "out")])]
    dump = dumps.write(tmp_path / "x.dump", fine, artifact="a.py")
    for run in (1, 2):
        dumps.write(dump, found if run == 2 else fine, artifact="b.py", run=run)
    assert search(dump).verdicts[0].call == "2nd call of the wrapper"
    dumps.change_facts(dump, run=2, call=20_000)
    assert search(dump).verdicts[0].call == "20,001st call of the wrapper"


def test_where_they_lie_in_what_was_saved(tmp_path: Path) -> None:
    tensor = torch.zeros(4, 8)
    tensor[1, 2] = tensor[1, 3] = tensor[3, 2] = torch.nan
    row = dumps.value("buf0", "out", nan=3, file="000000/x.pt")
    launches, tensors = [dumps.launch(0, "k", [], [row])], {"000000/x.pt": tensor}
    dump = dumps.write(tmp_path / "x.dump", launches, tensors=tensors)
    (only,) = search(dump, values=True).verdicts
    (held,) = only.held
    assert held.where == "the first at [1, 2], in 2 of 4 rows and 2 of 8 columns"
    assert only.wants == ("", "")
    assert f"  NaN in buf0: {held.where}" in describe(only, next_command="")
    torch.save(torch.zeros(3), dump / "rank0/run0/000000/x.pt")
    assert search(dump, values=True).verdicts[0].held[0].where == ""


def test_the_next_command(tmp_path: Path) -> None:
    (only,) = verdicts(tmp_path, chain(used=False))
    template = "rewriter run --wrapper '{wrapper}*' '{options}' -- python 'a b.py'"
    assert next_command(template, only) == (
        "rewriter run --wrapper 'output_code*' --launches 2,3 --probe print,save -- python 'a b.py'"
    )


def test_how_it_ended_is_kept_beside_the_dump(tmp_path: Path) -> None:
    assert read_conclusion(tmp_path) is None
    for ended in (
        ExitStatus(0),
        ExitStatus(None, signal=11),
        ExitStatus(None, timed_out=True, message="5 s"),
    ):
        conclusion = Conclusion(ended, True, "rewriter run x.py {options}")
        write_conclusion(tmp_path, conclusion)
        assert read_conclusion(tmp_path) == conclusion
    (tmp_path / "rank0/run0").mkdir(parents=True)
    assert read_conclusion(tmp_path / "rank0/run0") == conclusion
    (tmp_path / "ended.json").write_text("[[[")
    assert read_conclusion(tmp_path) is None


def test_what_was_not_recorded_may_hold_the_nan(tmp_path: Path) -> None:
    """As with `--tensors 'buf*'`: the NaN may be in the weights, which nobody looked at."""
    read, made = dumps.value("buf1"), dumps.value("buf2", "out", nan=8)
    weights, mlp = (dumps.value("arg4_1"), dumps.value("arg3_1")), get("cpu-torch2.13/mlp").data

    def found(name: str, given: list[Any], wrapper: bytes) -> NonFiniteVerdict:
        launches = [dumps.launch(2, "extern_kernels.addmm", given, [made])]
        (only,) = search(dumps.write(tmp_path / name, launches, wrapper=wrapper)).verdicts
        return only

    assert found("a", [read], b"").state == "made"  # nobody knows that there is more
    part = found("b", [read], mlp)
    assert (part.launch, part.state) == (2, "wrote")
    assert part.notes[0].startswith("Not all of its inputs were recorded (arg4_1, arg3_1 not)")
    assert found("c", [weights[0], read, weights[1]], mlp).state == "made"


@pytest.mark.parametrize(
    ("ends", "nan", "inf", "expected"),
    [
        ({"min": -1.0, "max": 2.0, "mean": 0.5}, 1, 0, "min -1 max 2 mean 0.5 nan 1 inf 0"),
        ({"min": None, "max": None, "mean": None}, 30, 2, "nothing finite, nan 30 inf 2"),
    ],
)
def test_statistics_say_where_nothing_is_finite(
    ends: dict[str, Any], nan: int, inf: int, expected: str
) -> None:
    row = TensorRow(
        phase="after", arg="buf1", role="out", dtype="float32", shape=(4, 8), numel=32,
        std=None, nan=nan, inf=inf, **ends,
    )  # fmt: skip
    assert statistics(row) == expected
