"""Where values that are not finite are from, of dumps written by hand: made, passed on, come in, or
absorbed; and one element of saved values, followed backwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import dumps
from rewriter.diagnosis.nonfinite import search
from rewriter.diagnosis.verdict import NonFiniteVerdict

value, launch = dumps.value, dumps.launch
X = value("x", mean=3.0)
HALF = {"dtype": "float16"}


def judged(
    folder: Path, found: list[Any], *, allow: tuple[str, ...] = (), **more: Any
) -> tuple[NonFiniteVerdict, ...]:
    """The verdicts of launches that record each value once."""
    inputs = more.pop("inputs", [X])
    dump = dumps.write(folder / "x.dump", dumps.each_once(found, inputs), inputs=inputs)
    if allow:
        manifest = json.loads((dump / "manifest.json").read_text())
        (dump / "manifest.json").write_text(json.dumps({**manifest, "allow": allow}))
    return search(dump, **more).verdicts


def test_came_in(tmp_path: Path) -> None:
    (only,) = judged(tmp_path, [], inputs=[X, value("w", nan=2)])
    assert (only.launch, only.origin) == (None, "came in")
    assert judged(tmp_path / "b", [], inputs=[value("w", nan=2)], allow=("inputs:w",)) == ()


def test_infinities_that_came_in_and_became_nan(tmp_path: Path) -> None:
    bad, broken = value("x", inf=1), value("buf0", "out", inf=9, neginf=4)
    found = [
        launch(0, "extern_kernels.addmm", [bad], [broken]),
        launch(1, "cpp_fused_norm_1", [{**broken, "role": "in"}], [value("buf1", "out", nan=8)]),
    ]
    (only,) = judged(tmp_path, found, inputs=[bad])
    assert (only.launch, only.origin) == (1, "came in")
    assert only.headline == (
        "launch #1 cpp_fused_norm_1 (line 101) makes the first NaN, of infinities in the inputs of "
        "the call (1 of 32 elements of x): 8 of 32 elements of buf1, rank 0, 1st call of the "
        "wrapper"
    )
    mask = {**bad, "neginf": 1}
    (masked,) = judged(tmp_path / "b", found, inputs=[mask])
    assert masked.origin == "made here"


def test_infinities_that_are_made_of_indices_are_a_mask(tmp_path: Path) -> None:
    for given, count in ((value("x", dtype="int64"), 0), (X, 1)):
        made = [launch(0, "cpp_fused_where_0", [given], [PLUS])]
        assert len(judged(tmp_path / given["dtype"], made, inputs=[given])) == count


def test_what_is_allowed_is_no_finding_where_it_is_absorbed(tmp_path: Path) -> None:
    made = value("buf0", "out", nan=5)
    found = [
        launch(0, "k0", [X], [made]),
        launch(1, "k1", [{**made, "role": "in"}], [value("buf1", "out")]),
    ]
    assert judged(tmp_path, found, allow=("k0:buf0",)) == ()
    (only,) = judged(tmp_path / "b", found, allow=("k1:buf0", "k0:buf1"))
    assert only.launch == 0


def test_what_is_allowed_and_passed_on_is_one_of_the_reader(tmp_path: Path) -> None:
    made, later = value("buf0", "out", nan=5), value("buf1", "out", nan=7)
    found = [
        launch(0, "k0", [X], [made]),
        launch(1, "k1", [{**made, "role": "in"}], [later]),
    ]
    (only,) = judged(tmp_path, found, allow=("k0:*",))
    assert (only.launch, only.state, only.origin) == (1, "passed", "passed on")
    assert only.headline == (
        "launch #1 k1 (line 101) passes on NaN that are allowed in #0 k0 (line 100): "
        "7 of 32 elements of buf1"
    )
    assert judged(tmp_path / "b", found, allow=("k0:*", "k1:*")) == ()


MASK = value("buf0", "out", inf=9, neginf=9)
PLUS = value("buf0", "out", inf=9)
ATTENTION = "torch.ops.aten._scaled_dot_product_efficient_attention.default"
PADDED = value("buf0", "out", inf=104, shape=[2, 2, 32], stride=[64, 32, 1], numel=128)
ODD = {**PADDED, "inf": 9}
TORN = value("buf0", "out", inf=9, neginf=9, **{**HALF, "max": 60000.0})


@pytest.mark.parametrize(
    ("made", "kernel", "reader", "is_found"),
    [
        pytest.param(PADDED, ATTENTION, "", False, id="rows of attention that are filled up"),
        pytest.param(PADDED, "cpp_fused_div_0", "", True, id="such rows of another kernel"),
        pytest.param(ODD, ATTENTION, "", True, id="rows of attention of another number"),
        pytest.param(MASK, "cpp_fused_where_0", "absorbs", False, id="a mask, absorbed"),
        pytest.param(MASK, "cpp_fused_where_0", "", False, id="a mask that is returned"),
        pytest.param(MASK, "cpp_fused_log_0", "", True, id="log of zero that is returned"),
        pytest.param(MASK, "cpp_fused_log_0", "absorbs", False, id="log of zero, absorbed"),
        pytest.param(MASK, "cpp_fused__log_softmax_0", "", False, id="log of a softmax"),
        pytest.param(PLUS, "cpp_fused_div_0", "", True, id="+inf that is returned"),
        pytest.param(PLUS, "cpp_fused_div_0", "absorbs", False, id="+inf, absorbed"),
        pytest.param(PLUS, "cpp_fused_div_0", "keeps", True, id="+inf, passed on"),
        pytest.param(TORN, "cpp_fused_mul_0", "", True, id="an overflow to -inf"),
    ],
)
def test_infinities_count_where_nothing_absorbs_them(
    made: Any, kernel: str, reader: str, is_found: bool, tmp_path: Path
) -> None:
    found = [launch(0, kernel, [X], [made])]
    if reader:
        left = {**value("buf1", "out"), **({"inf": 3} if reader == "keeps" else {})}
        found.append(launch(1, "cpp_fused_softmax_1", [{**made, "role": "in"}], [left]))
    verdicts = judged(tmp_path, found)
    assert [(x.launch, x.state, x.origin) for x in verdicts] == (
        [(0, "infinite", "made here")] * is_found
    )
    if is_found:
        counted = f"{made['inf']} of {made['numel']} elements"
        assert f"makes infinities that nothing absorbs: {counted}" in verdicts[0].headline
        assert judged(tmp_path / "b", found, allow=("*:buf0", "*:buf1")) == ()


def test_a_row_that_is_masked_in_full(tmp_path: Path) -> None:
    most = value("buf1", "out", inf=2, neginf=2)
    found = [launch(0, "cpp_fused__softmax_0", [X], [most, value("buf2", "out", nan=16)])]
    (only,) = judged(tmp_path, found)
    assert only.notes[-1].startswith("-Inf is in 2 of 32 elements of buf1: if these are the maxima")


# --- One element ----------------------------------------------------------------------------------


def followed(folder: Path, found: list[Any], **tensors: torch.Tensor) -> list[str]:
    """One element, followed through launches whose values are these tensors."""
    inputs = [value(name, std=None) for name in tensors if name.startswith("x")]
    once = dumps.each_once(found, inputs)
    for row in (*inputs, *(row for _, rows in once for row in rows if "arg" in row)):
        tensor = tensors[row["arg"]]
        row.update(shape=[*tensor.shape], stride=[*tensor.stride()], numel=tensor.numel())
        row.update(nan=int(tensor.isnan().sum()), inf=int(tensor.isinf().sum()))
        row["file"] = f"{row['arg']}.pt"
    files = {f"{name}.pt": tensor for name, tensor in tensors.items()}
    dump = dumps.write(folder / "x.dump", once, inputs=inputs, tensors=files)
    return [
        text
        for verdict in search(dump, values=True).verdicts
        for step in verdict.followed
        for text in (str(step), *(one.of(one.name) for one in step.reads))
    ]


def test_elementwise_and_broadcast(tmp_path: Path) -> None:
    x, bias = torch.ones(4, 8), torch.arange(8.0)
    x[2, 3] = -7.5
    found = [launch(0, "cpp_fused_log_0", [value("x"), value("x1")], [value("buf0", "out")])]
    assert followed(tmp_path, found, x=x, x1=bias, buf0=torch.log(x)) == [
        "buf0[2, 3] = nan, written by #0 cpp_fused_log_0 (line 100)",
        "x[2, 3] = -7.5",
        "x1[3] = 3",
    ]


def test_a_reduction_over_a_row(tmp_path: Path) -> None:
    x = torch.arange(32.0).view(4, 8)
    made = torch.zeros(4)
    made[1] = float("nan")
    found = [launch(0, "cpp_fused_mean_0", [value("x")], [value("buf0", "out")])]
    assert followed(tmp_path, found, x=x, buf0=made) == [
        "buf0[1] = nan, written by #0 cpp_fused_mean_0 (line 100)",
        "x[1, :]: 8 numbers from 8 to 15",
    ]


def test_a_product_of_matrices(tmp_path: Path) -> None:
    x, w = torch.ones(4, 3), torch.ones(3, 5)
    x[2, 1] = float("inf")
    w[1, 4] = 0.0
    inputs = [value("x"), value("x1"), value("x2")]
    found = [launch(0, "extern_kernels.addmm", inputs, [value("buf0", "out")])]
    lines = followed(tmp_path, found, x=torch.zeros(5), x1=x, x2=w, buf0=x @ w)
    assert lines == [
        "buf0[2, 4] = nan, written by #0 extern_kernels.addmm (line 100)",
        "x[4] = 0",
        "x1[2, :]: 3 numbers from 1 to 1, 1 inf",
        "x2[:, 4]: 3 numbers from 0 to 1",
    ]


def test_a_result_of_one_dimension_is_no_product_of_matrices(tmp_path: Path) -> None:
    """Kernels that are named after a product may compute what follows it alone."""
    found = [launch(0, "cpp_fused_mm_0", [value("x"), value("x1")], [value("buf0", "out")])]
    made = torch.ones(8).index_fill(0, torch.tensor(3), torch.nan)
    lines = followed(tmp_path, found, x=torch.ones(8), x1=torch.ones(8), buf0=made)
    assert lines[1:] == ["x[3] = 1", "x1[3] = 1"]


def test_back_to_the_overflow(tmp_path: Path) -> None:
    x = torch.full((4, 8), 2.0)
    x[3, 1] = 1e30
    over = x * x * x.double().to(torch.float32)
    over[3, 1] = float("inf")
    found = [
        launch(0, "cpp_fused_mul_0", [value("x")], [value("buf0", "out")]),
        launch(1, "cpp_fused_sub_1", [value("buf0")], [value("buf1", "out")]),
    ]
    lines = followed(tmp_path, found, x=x, buf0=over, buf1=over - over)
    assert lines == [
        "buf0[3, 1] = inf, written by #0 cpp_fused_mul_0 (line 100)",
        "x[3, 1] = 1e+30",
        "buf1[3, 1] = nan, written by #1 cpp_fused_sub_1 (line 101)",
        "buf0[3, 1] = inf",
        "buf0[3, 1] = inf, written by #0 cpp_fused_mul_0 (line 100)",
        "x[3, 1] = 1e+30",
    ]


def test_without_saved_values_nothing_is_followed(tmp_path: Path) -> None:
    found = [launch(0, "k", [X], [value("buf0", "out", nan=1)])]
    (only,) = judged(tmp_path, found, values=True)
    assert only.followed == ()
