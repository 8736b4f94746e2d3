"""Operators by the statement that calls them, in Python and in C++."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rewriter.artifact.opening import open_artifact
from rewriter.diagnosis.verification.bounded import UncheckedError, exact
from rewriter.diagnosis.verification.calls import evaluate, evaluate_shim
from rewriter.diagnosis.verification.judge import compare
from rewriter.locate.types import Launch

_ARTIFACTS = Path(__file__).parents[3] / "fixtures" / "artifacts"


def _launch(file: str, kernel: str) -> Launch:
    launches = open_artifact(_ARTIFACTS / file).only.launches
    return next(one for one in launches if one.kernel.endswith(kernel))


def test_a_statement_of_python_is_evaluated_with_its_numbers() -> None:
    torch.manual_seed(0)
    bias, x, weight = torch.randn(5), torch.randn(4, 3), torch.randn(5, 3)
    view = "reinterpret_tensor(arg1_1, (3, 5), (1, 3), 0)"
    known = {"arg0_1": exact(bias), "buf0": exact(x), view: exact(weight.t())}
    text = f"    extern_kernels.addmm(arg0_1, buf0, {view}, alpha=2, beta=0.5, out=buf1)\n"
    expected = evaluate(text, known)
    assert compare(0.5 * bias + 2 * (x @ weight.t()), expected).agrees
    assert not compare(bias + 2 * (x @ weight.t()), expected).agrees


def test_an_argument_by_its_name_is_read_by_its_place() -> None:
    torch.manual_seed(0)
    into, index, values = torch.zeros(4, 5), torch.randint(0, 5, (4, 3)), torch.randn(4, 3)
    known = {"buf0": exact(into), "buf1": exact(index), "buf2": exact(values)}
    text = "aten.scatter_reduce_.two(buf0,1,buf1,buf2, reduce='sum', include_self=True)"
    expected = evaluate(text, known)
    assert compare(into.scatter_add(1, index, values), expected).agrees
    assert not compare(into.scatter_add(1, index, values * 1.01), expected).agrees


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("extern_kernels.mm(buf0, buf9, out=buf1)", "buf9 was not recorded"),
        ("extern_kernels.no_such(buf0, out=buf1)", "not registered"),
        ("buf1 = torch.ops.mine.scale.default(buf0, 2)", "not registered"),
        ("buf1 = call_it(buf0)", "no operator"),
        ("buf1 = torch.ops.aten.rand_like.default(buf0)", "random"),
        ("del buf0", "no call"),
    ],
)
def test_what_cannot_be_evaluated_says_why(text: str, problem: str) -> None:
    with pytest.raises(UncheckedError, match=problem):
        evaluate(text, {"buf0": exact(torch.ones(2, 2))})


def test_a_product_of_the_c_shim_is_evaluated() -> None:
    wrapper = next((_ARTIFACTS / "cpu-torch2.13" / "mlp").rglob("*wrapper*.cpp"), None)
    assert wrapper is not None
    launch = _launch(str(wrapper.relative_to(_ARTIFACTS)), "addmm_out")
    torch.manual_seed(0)
    given = [x for x in launch.args if x.type == "tensor" and x.role == "in"]
    bias, x, weight = torch.randn(5), torch.randn(4, 3), torch.randn(3, 5)
    known = {one.expr: exact(t) for one, t in zip(given, (bias, x, weight), strict=True)}
    expected = evaluate_shim(launch, known)
    assert compare(bias + x @ weight, expected).agrees
    assert not compare(bias + 1.01 * (x @ weight), expected).agrees
