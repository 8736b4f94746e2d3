"""Outputs against those that are right, and the launches that feed what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import dumps
from rewriter.core.errors import RewriterError
from rewriter.diagnosis.expected import compare_outputs, load_expected
from rewriter.diagnosis.ruling import rule
from rewriter.diagnosis.verification import call_results
from rewriter.dump.reading import Dump, open_dump

RIGHT = [torch.arange(32.0).reshape(4, 8), torch.ones(4, 8)]


def _dump(tmp_path: Path, right: Sequence[torch.Tensor] = RIGHT, dtype: str = "float32") -> Dump:
    """x -> #0 buf0 -> #1 buf1, which is returned; x -> #2 buf2, which is returned, too."""
    value, facts = dumps.value, {"kind": "cpp", "scope": "call"}
    first = str(right[0].dtype).removeprefix("torch.")
    x, made = value("x", dtype=dtype), value("buf1", "out", 2.0, file="a.pt", dtype=first)
    launches = [
        dumps.launch(0, "cpp_a", [x], [value("buf0", "out", 1.0)], **facts),
        dumps.launch(1, "cpp_b", [value("buf0", mean=1.0)], [made], **facts),
        dumps.launch(2, "cpp_c", [x], [value("buf2", "out", 3.0, file="b.pt")], **facts),
    ]
    tensors = dict(zip(("a.pt", "b.pt"), right, strict=True))
    left = {"outputs": ("buf1", "buf2"), "tensors": tensors}
    return open_dump(dumps.write(tmp_path / "x.dump", launches, inputs=[x], **left))


def _compared(tmp_path: Path, expected: list[Any]) -> Any:
    return compare_outputs(_dump(tmp_path), expected, Path("right.pt"))


@pytest.mark.parametrize(
    "expected",
    [
        pytest.param(RIGHT, id="all"),
        pytest.param(RIGHT[:1], id="the-first"),
        pytest.param([None, RIGHT[1]], id="the-second"),
        pytest.param([RIGHT[0] * (1 + 1e-7), RIGHT[1].half()], id="within-rounding"),
        pytest.param([RIGHT[0].reshape(2, 16)], id="another-shape"),
        pytest.param([RIGHT[0].view(torch.int32)], id="a-view-as-another-type"),
        pytest.param([None, RIGHT[1].bool()], id="bool"),
    ],
)
def test_outputs_that_agree_are_ruled_out(expected: list[Any], tmp_path: Path) -> None:
    found = _compared(tmp_path, expected).examined()
    assert found.findings == ()
    verb = "agrees" if sum(x is not None for x in expected) == 1 else "agree"
    assert f"{verb} with what is expected" in found.ruled_out


@pytest.mark.parametrize(
    ("want", "near", "far"),
    [
        pytest.param(torch.linspace(-9, 9, 32), 0.1, 0.3, id="float32"),
        pytest.param(torch.arange(32).to(torch.int8), 1, 2, id="int8"),
        pytest.param(torch.arange(32), 0, 1, id="int64"),
    ],
)
def test_outputs_are_as_far_off_as_a_narrow_type_in_the_call(
    want: torch.Tensor, near: float, far: float, tmp_path: Path
) -> None:
    """Kernels keep float32 where eager rounds to bfloat16: relative to the largest element, an
    output may be as far off as that, and a number of 8 bits that is rounded from one by 1."""
    want = want.reshape(4, 8)

    def found(by: float, dtype: str) -> Any:
        dump = _dump(tmp_path / f"{by}{dtype}", [want + want.new_tensor(by), RIGHT[1]], dtype)
        return compare_outputs(dump, [want], Path("right.pt")).examined()

    right = found(near, "bfloat16")
    assert not right.findings
    assert "within what bfloat16 in the call may round off" in right.ruled_out
    assert found(far, "bfloat16").findings
    assert bool(found(near, "float32").findings) == bool(near)


def test_the_launches_that_reach_a_wrong_output_are_known(tmp_path: Path) -> None:
    wrong = RIGHT[0].clone()
    wrong[3, 5] = -1.0
    compared = _compared(tmp_path, [wrong, RIGHT[1]])
    assert compared.feeding == {(0, 0), (1, 0)}
    (finding,) = compared.examined().findings
    assert (finding.kind, finding.launch) == ("outputs", None)
    assert finding.headline.startswith("1 of 2 outputs (0: buf1) are not as expected")
    assert finding.text[0].startswith("buf1[3, 5]  expected -1, got 29: 1 of 32 elements differ")
    other = compare_outputs(_dump(tmp_path / "2"), [None, RIGHT[1] + 1], Path("right.pt"))
    assert other.feeding == {(2, 0)}


WRAPPER = """# AOT ID: ['0_inference']
from torch._inductor.async_compile import AsyncCompile
async_compile = AsyncCompile()
cpp_a = async_compile.cpp_pybinding(['const float*', 'float*'], r'''
extern "C"  void  cpp_fused_a(const float* in_ptr0, float* out_ptr0)
{}
''')


def call(args):
    x, = args
    buf0 = empty_strided_cpu((4, 8), (8, 1), torch.float32)
    cpp_a(x, buf0)
    return (VIEW, )
"""


@pytest.mark.parametrize(
    ("view", "want"),
    [
        pytest.param("(8, 4), (1, 8), 0", RIGHT[0].t(), id="transposed"),
        pytest.param("(4, 3), (8, 1), 2", RIGHT[0][:, 2:5], id="a-part"),
        pytest.param("(2, 4, 8), (0, 8, 1), 0", RIGHT[0].expand(2, 4, 8), id="expanded"),
        pytest.param("(8, s0), (1, 8), 0", RIGHT[0].t(), id="of-a-size-that-is-not-known"),
    ],
)
def test_an_output_is_the_view_that_is_returned(
    view: str, want: torch.Tensor, tmp_path: Path
) -> None:
    x, made = dumps.value("x", mean=5.0), dumps.value("buf0", "out", file="a.pt")
    dump = dumps.write(
        tmp_path / "x.dump",
        [dumps.launch(0, "cpp_a", [x], [made], kind="cpp", scope="call")],
        inputs=[x], outputs=["buf0"], tensors={"a.pt": RIGHT[0]},
        wrapper=WRAPPER.replace("VIEW", f"reinterpret_tensor(buf0, {view})"),
    )  # fmt: skip
    compared = [
        compare_outputs(open_dump(dump), [right], Path("right.pt")) for right in (want, want + 1)
    ]
    assert [[x.arg for x in call.outputs] for call in compared] == [["0: buf0"]] * 2
    assert [len(call.wrong) for call in compared] == [0, 1]
    if "s0" not in view:
        shape = rf"there are rank0/run0: 0: buf0 \[{', '.join(map(str, want.shape))}\]"
        with pytest.raises(RewriterError, match=shape):
            compare_outputs(open_dump(dump), [torch.ones(3)], Path("right.pt"))


def test_an_output_that_is_not_compared_is_counted(tmp_path: Path) -> None:
    """A view that goes beyond what was recorded cannot be compared, nor can an input."""
    x, made = dumps.value("x", mean=5.0), dumps.value("buf0", "out", file="a.pt")
    dump = dumps.write(
        tmp_path / "x.dump",
        [dumps.launch(0, "cpp_a", [x], [made], kind="cpp", scope="call")],
        inputs=[x], outputs=["buf0", "buf0", "x"], tensors={"a.pt": RIGHT[0]},
        wrapper=WRAPPER.replace("VIEW", "buf0, reinterpret_tensor(buf0, (8, 4), (8, 1), 0), x"),
    )  # fmt: skip
    expected = [RIGHT[0], RIGHT[0].t(), RIGHT[1]]
    call = compare_outputs(open_dump(dump), expected, Path("right.pt"))
    assert ([x.arg for x in call.outputs], call.missing) == (["0: buf0"], 2)
    assert rule([call.examined()]).headline == (
        "nothing wrong was found: 1 output is as expected; 2 of 3 outputs (67%) were not compared"
    )


def test_an_output_of_which_a_part_was_never_written_is_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_results, "are_writes_recorded", lambda *_: True)
    part = {"shape": [2, 8], "stride": [8, 1], "numel": 16, "file": "part.pt"}
    x, whole = dumps.value("x", mean=5.0), dumps.value("buf1", "out", file="a.pt")
    label = ["out", "buf2", "reinterpret_tensor(buf0, (2, 8), (8, 1), 0)"]
    facts = {"kind": "cpp", "scope": "call"}
    dump = dumps.write(
        tmp_path / "x.dump",
        [
            dumps.launch(
                0, "cpp_a", [x], [dumps.value("buf2", "out", **part)],
                buffers={"buf2": "buf0"}, after=[label], **facts,
            ),
            dumps.launch(1, "cpp_b", [x], [whole], **facts),
        ],
        inputs=[x], outputs=["buf0", "buf1"], tensors={"part.pt": RIGHT[0][:2], "a.pt": RIGHT[0]},
    )  # fmt: skip
    call = compare_outputs(open_dump(dump), [RIGHT[0], RIGHT[0]], Path("right.pt"))
    assert ([x.arg for x in call.outputs], call.missing) == (["1: buf1"], 1)


@pytest.mark.parametrize(
    ("want", "at"),
    [
        pytest.param(RIGHT[0] * (1 + 1e-5), "[3, 7]", id="beyond-the-tolerance"),
        pytest.param(RIGHT[0].index_fill(1, torch.tensor(2), torch.nan), "[0, 2]", id="nan"),
        pytest.param(RIGHT[0].index_fill(1, torch.tensor(2), torch.inf), "[0, 2]", id="inf"),
    ],
)
def test_what_is_not_as_expected(want: torch.Tensor, at: str, tmp_path: Path) -> None:
    (finding,) = _compared(tmp_path, [want]).examined().findings
    assert finding.headline.startswith("1 of 1 output (0: buf1)")
    assert finding.text[0].startswith(f"buf1{at}  expected ")


def test_of_no_call_with_these_sizes_there_is_nothing_to_compare(tmp_path: Path) -> None:
    with pytest.raises(RewriterError, match=r"sizes \[3\]; there are rank0/run0: 0: buf1 \[4, 8\]"):
        _compared(tmp_path, [torch.ones(3)])


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"no zip", "torch.load cannot read it"),
        ({"a": torch.ones(2)}, "it holds dict"),
        ([torch.ones(2), 3], "it holds list"),
        ([None], "it holds no tensor"),
    ],
)
def test_a_file_of_something_else_is_refused(content: Any, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "right.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(RewriterError, match=problem) as error:
        load_expected(path)
    assert error.value.slug == "bad-expected"


def test_one_tensor_is_a_list_of_one(tmp_path: Path) -> None:
    torch.save(RIGHT[0], tmp_path / "right.pt")
    (loaded,) = load_expected(tmp_path / "right.pt")
    assert loaded is not None
    assert torch.equal(loaded, RIGHT[0])
