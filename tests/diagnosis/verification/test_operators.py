"""The bound of each rule: what eager float32 computes stays inside, another formula does not."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from rewriter.diagnosis.verification.bounded import READING, Bounded, UncheckedError, exact
from rewriter.diagnosis.verification.evaluate import operator_named, run
from rewriter.diagnosis.verification.judge import compare
from rewriter.diagnosis.verification.operators import products

_X, _Y, _Z = (64, 96), (96, 32), (64, 96)
# An operator of ATen, the shapes of its tensors, and what else it takes.
_CASES: list[tuple[str, tuple[tuple[int, ...], ...], tuple[Any, ...], dict[str, Any]]] = [
    ("add.Tensor", (_X, _Z), (), {}),
    ("add.Tensor", (_X,), (0.1,), {}),
    ("sub.Tensor", (_X, _Z), (), {"alpha": 3}),
    ("mul.Tensor", (_X, _Z), (), {}),
    ("div.Tensor", (_X, _Z), (), {}),
    ("div.Tensor", (_X,), (3,), {}),
    ("exp.default", (_X,), (), {}),
    ("erf.default", (_X,), (), {}),
    ("tanh.default", (_X,), (), {}),
    ("sigmoid.default", (_X,), (), {}),
    ("rsqrt.default", ((1,),), (), {}),
    ("pow.Tensor_Scalar", (_X,), (3,), {}),
    ("relu.default", (_X,), (), {}),
    ("maximum.default", (_X, _Z), (), {}),
    ("clamp.default", (_X,), (-0.3, 0.7), {}),
    ("sum.dim_IntList", (_X,), ([1],), {}),
    ("sum.default", (_X,), (), {}),
    ("mean.dim", (_X,), ([0, 1],), {}),
    ("cumsum.default", (_X,), (1,), {}),
    ("mm.default", (_X, _Y), (), {}),
    ("bmm.default", ((4, 8, 16), (4, 16, 8)), (), {}),
    ("addmm.default", ((32,), _X, _Y), (), {"alpha": 0.3, "beta": 1.7}),
    ("convolution.default", ((2, 3, 8, 8), (4, 3, 3, 3), (4,)),
     ([1, 1], [1, 1], [1, 1], False, [0, 0], 1), {}),
    ("amax.default", (_X,), ([-1], True), {}),
    ("permute.default", (_X,), ([1, 0],), {}),
    ("_softmax.default", (_X,), (-1, False), {}),
    ("gelu.default", (_X,), (), {}),
    ("native_layer_norm.default", (_X,), ([96], None, None, 1e-5), {}),
    ("var_mean.correction", (_X,), ([1],), {"correction": 0, "keepdim": True}),
    ("constant_pad_nd.default", (_X,), ([1, 2],), {}),
]  # fmt: skip


def ran(path: str, *args: Any, kind: torch.dtype | None = None, **keywords: Any) -> Any:
    """What an operator gives of values with bounds."""
    return run(operator_named(path.split(".")), args, keywords, kind)


def converted(x: Any, dtype: torch.dtype) -> Any:
    return ran("prims.convert_element_type.default", x, dtype, kind=dtype)


def in_tf32(what: str, path: str, *args: Any, **keywords: Any) -> Any:
    token = products.TF32.set(frozenset({what}))
    try:
        return ran(path, *args, **keywords)
    finally:
        products.TF32.reset(token)


def _tensors(name: str, shapes: tuple[tuple[int, ...], ...], seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(shape, generator=generator) * 3 for shape in shapes]
    # What cancels may be off by more than a thousandth of what is left.
    return [x.abs() + 0.1 if name.startswith(("sum", "mean", "rsqrt")) else x for x in made]


@pytest.mark.parametrize(
    ("name", "shapes", "rest", "keywords"), _CASES, ids=[f"{x[0]}-{len(x[2])}" for x in _CASES]
)
def test_eager_float32_is_inside_of_the_bound_and_another_value_is_not(
    name: str, shapes: tuple[Any, ...], rest: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    operator = operator_named(["aten", *name.split(".")])
    for seed in range(3):
        tensors = _tensors(name, shapes, seed)
        wrote = operator(*tensors, *rest, **keywords)
        expected = run(operator, (*map(exact, tensors), *rest), keywords, None)
        first_wrote = wrote[0] if isinstance(wrote, tuple) else wrote
        first = expected[0] if isinstance(expected, tuple) else expected
        found = compare(first_wrote, first)
        assert found.agrees, found
        # One element that is off by a thousandth of the largest.
        wrong = first_wrote.clone(memory_format=torch.contiguous_format)
        at = int(wrong.abs().reshape(-1).argmax())
        wrong.reshape(-1)[at] *= 1.001
        assert compare(wrong, first).wrong == 1


@pytest.mark.parametrize("second", [(64, 32), (3, 64, 32)])
@pytest.mark.parametrize("first", [(48, 64), (3, 48, 64)])
def test_products_of_groups(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    """Of rows, of columns, of terms, and of whole matrices."""
    whole = {(2, 2): 64, (2, 3): 48, (3, 2): 32}.get((len(first), len(second)))
    ends = None if whole is None else torch.tensor([8, 24, whole], dtype=torch.int32)
    a, b = (torch.randn(shape, generator=torch.Generator().manual_seed(1)).bfloat16()
            for shape in (first, second))  # fmt: skip
    wrote = torch.ops.aten._grouped_mm.default(a, b, ends)
    operator = operator_named(["aten", "_grouped_mm", "default"])
    expected = run(operator, (exact(a), exact(b), None if ends is None else exact(ends)), {}, None)
    assert compare(wrote, expected).agrees
    assert compare(wrote * 1.06, expected).wrong
    if ends is not None:
        other = torch.ops.aten._grouped_mm.default(a, b, ends - ends.new_tensor([8, 8, 0]))
        assert compare(other, expected).wrong


def test_a_number_that_rounding_decides_is_not_known_as_another_type() -> None:
    """As a quantised value that is computed with again."""
    third = ran("aten.div.Tensor", exact(torch.tensor([4.5, 4.0])), 3)
    halves = ran("aten.round.default", third)  # 1.5, up to rounding, and 1.33
    back = converted(converted(halves, torch.int8), torch.float32)
    found = compare(torch.tensor([1.0, 2.0]), back)
    assert (found.wrong, found.unsure) == (1, 1)


def test_a_product_with_a_packed_weight() -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(16, 64, generator=generator).bfloat16()
    weight = torch.randint(-128, 128, (32, 64), generator=generator).to(torch.int8)
    scales = (torch.rand(32, generator=generator) / 100).bfloat16()
    wrote = torch.ops.aten._weight_int8pack_mm.default(x, weight, scales)
    expected = ran("aten._weight_int8pack_mm.default", *map(exact, (x, weight, scales)))
    assert compare(wrote, expected).agrees
    assert not compare(wrote, expected).unsure
    assert compare(wrote * 1.06, expected).wrong


def test_a_histogram_of_integers_is_exact() -> None:
    """As mixtures of experts count their tokens; on the CPU torch has none."""
    x = torch.tensor([0, 2, 2, 3], dtype=torch.int32)
    expected = ran("aten.histc.default", exact(x), 4, 0, 3)
    assert compare(torch.tensor([1, 0, 2, 1], dtype=torch.int32), expected).agrees
    assert compare(torch.tensor([1, 0, 1, 2], dtype=torch.int32), expected).wrong == 2


def test_a_sum_in_another_order_is_inside() -> None:
    x = torch.randn(1 << 16, generator=torch.Generator().manual_seed(1))
    expected = ran("aten.sum.default", exact(x))
    one_by_one = torch.cumsum(x, 0)[-1]
    assert compare(one_by_one, expected).agrees
    assert not compare(x[1:].sum() + 1, expected).agrees


def test_what_a_comparison_decides_by_rounding_is_not_judged() -> None:
    x = torch.tensor([1.0, 1.0 + 2**-23, 3.0])
    third = ran("aten.div.Tensor", exact(x), 3)
    again = ran("aten.mul.Tensor", third, 3)
    larger = ran("aten.gt.Scalar", again, 1.0, kind=torch.bool)
    found = compare(torch.tensor([True, True, False]), larger)
    assert (found.wrong, found.unsure) == (1, 2)


def test_zero_of_exact_operands_is_zero() -> None:
    """So that what is compared with it, such as a mask or a sign, is known."""
    x = exact(torch.tensor([0.0, 1.5, -3.0], dtype=torch.float16))
    tripled = ran("aten.mul.Tensor", x, 3.0, kind=torch.float16)
    in_two_steps = ran("aten.add.Tensor", x, x, alpha=2, kind=torch.float16)
    for one, other, is_known in ((x, x, True), (tripled, in_two_steps, False)):
        zero = ran("aten.sub.Tensor", one, other, kind=torch.float16)
        one_more = ran("aten.log1p.default", zero, kind=torch.float16)
        below = ran("aten.lt.Scalar", one_more, 0, kind=torch.bool)
        assert bool(torch.isfinite(below.bound())[1:].all()) is is_known


def test_what_is_reversed_keeps_its_elements() -> None:
    x = torch.randn(64, generator=torch.Generator().manual_seed(1)).bfloat16()
    found = ran("prims.rev.default", exact(x), [0], kind=torch.bfloat16)
    assert torch.equal(found.value, x.double().flip(0))
    assert not found.bound().any()


def test_what_pads_is_exact() -> None:
    half = ran("aten.div.Tensor", exact(torch.ones(2)), 3)
    for value in (0.5, -math.inf):
        found = ran("aten.constant_pad_nd.default", half, [1, 2], value, kind=torch.float32)
        assert found.bound().tolist() == [0.0, *half.bound().tolist(), 0.0, 0.0]


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_what_pads_may_lie_between_two_values_of_its_type(kind: torch.dtype) -> None:
    """In float32 and in bfloat16, whichever the program keeps, 0.1 is another number."""
    half = ran("aten.div.Tensor", exact(torch.ones(2)), 3)
    found = ran("aten.constant_pad_nd.default", half, [0, 1], 0.1, kind=kind)
    kept = torch.tensor([1 / 3, 1 / 3, 0.1]).to(kind).double()
    assert abs(found.value[2] - kept[2]) <= found.bound()[2]


def test_integers_are_exact() -> None:
    x = torch.arange(5)
    expected = ran("aten.mul.Tensor", exact(x), 3, kind=torch.int64)
    assert compare(x * 3, expected).agrees
    assert compare(x * 3 + (x == 4), expected).wrong == 1


def test_a_half_type_may_be_kept_or_left_out_inside() -> None:
    x = torch.randn(512, generator=torch.Generator().manual_seed(2))
    half = converted(exact(x), torch.bfloat16)
    back = converted(half, torch.float32)
    assert compare(x, back).agrees
    found = compare(x.bfloat16().float(), back)
    assert found.agrees
    assert "conversion to bfloat16" in found.why


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_what_is_stored_in_a_half_type_was_rounded_once(dtype: torch.dtype) -> None:
    step = torch.finfo(dtype).eps
    x = 1 + torch.arange(8) * step / 4
    half = converted(exact(x), dtype)
    assert compare(x.to(dtype), half).agrees
    assert compare(x.to(dtype) + step, half).wrong == 7  # half a step may be rounded up as well
    # Of what is read inside of a kernel this is not known.
    back = converted(half, torch.float32)
    assert compare(x, back).agrees
    assert compare(x.to(dtype).float(), back).agrees
    assert not compare(x * 1.02, back).agrees


def test_a_double_that_was_a_float_in_between_is_as_exact_as_that() -> None:
    x = torch.randn(512, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    single = converted(exact(x), torch.float32)
    back = converted(single, torch.float64)
    assert compare(x.float().double(), back).agrees
    assert not compare(x * 1.000001, back).agrees


def test_infinities_of_the_narrower_type_are_expected() -> None:
    x = torch.tensor([100.0, 1.0, float("nan"), float("inf")])
    expected = ran("aten.exp.default", exact(x), kind=torch.float32)
    assert compare(torch.exp(x), expected).agrees
    assert compare(torch.tensor([1.0, 1.0, 0.0, 1.0]), expected).wrong == 4


@pytest.mark.parametrize(
    "name",
    ["rand_like.default", "native_dropout.default", "bernoulli.p", "bernoulli_.float",
     "uniform.default", "exponential.default", "normal.Tensor_float", "poisson.default",
     "rrelu_with_noise.default"],
)  # fmt: skip
def test_random_numbers_are_not_judged(name: str) -> None:
    with pytest.raises(UncheckedError, match="random"):
        ran(f"aten.{name}", exact(torch.ones(3)), 0.5)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0)])
def test_a_sum_of_nothing_is_judged(shape: tuple[int, int]) -> None:
    x = torch.empty(shape)
    expected = ran("aten.sum.dim_IntList", exact(x), [1], kind=torch.float32)
    assert compare(x.sum(1), expected).agrees
    assert expected.value.shape == shape[:1]


def test_a_sum_in_a_half_type_may_be_rounded_to_it_or_not() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(64, dtype=torch.float16), torch.randn(64, dtype=torch.float16)
    added = ran("aten.add.Tensor", exact(x), exact(y), kind=torch.float16)
    expected = converted(added, torch.float32)
    assert compare((x + y).float(), expected).agrees
    assert compare(x.float() + y.float(), expected).agrees
    assert not compare((x + y).float() * 1.01, expected).agrees


@pytest.mark.parametrize(
    ("name", "what", "shapes", "rest"),
    [
        ("mm.default", "matmul", [(40, 96), (96, 24)], ()),
        ("convolution.default", "conv", [(2, 3, 8, 8), (4, 3, 3, 3)],
         (None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)),
    ],
)  # fmt: skip
def test_products_in_tf32_agree_where_that_is_allowed(
    name: str, what: str, shapes: list[tuple[int, ...]], rest: tuple[Any, ...]
) -> None:
    torch.manual_seed(0)
    given = [torch.randn(shape) for shape in shapes]
    # Ten bits of a mantissa are left of the operands.
    cut = [(x.view(torch.int32) & ~0x1FFF).view(torch.float32) for x in given]
    got = operator_named(["aten", *name.split(".")])(*cut, *rest)
    words = (f"aten.{name}", *map(exact, given), *rest)
    assert not compare(got, ran(*words)).agrees
    allowing = in_tf32(what, *words)
    comparison = compare(got, allowing)
    assert comparison.agrees
    assert "TF32" in comparison.why
    assert not compare(got * 1.05, allowing).agrees


@pytest.mark.parametrize(
    ("name", "rest", "keywords", "judged"),
    [
        ("sort.default", (0,), {}, False),
        ("sort.stable", (), {"stable": True, "dim": 0}, True),
        ("topk.default", (2, 0), {}, False),
    ],
)
def test_where_equal_elements_were_is_judged_in_a_stable_order_alone(
    name: str, rest: tuple[Any, ...], keywords: dict[str, Any], judged: bool
) -> None:
    x = torch.tensor([[3.0, 2.0], [3.0, 1.0], [4.0, 0.0]])
    if "topk" in name:
        x = -x
    operator = operator_named(["aten", *name.split(".")])
    values, index = run(operator, (exact(x), *rest), keywords, None)
    wrote, at = operator(x, *rest, **keywords)
    assert compare(wrote, values).agrees
    assert not compare(wrote + 1, values).agrees
    ties = at.clone()
    ties[0, 0] = 1 - ties[0, 0]  # of two equal elements the other one
    assert compare(ties, index).agrees is not judged
    other = at.clone()
    other[0, 1] = 1
    assert not compare(other, index).agrees


@pytest.mark.parametrize(
    ("path", "rest"),
    [
        ("aten.kthvalue.default", (3,)),
        ("aten.mode.default", ()),
        ("aten.bucketize.Tensor", (torch.tensor([0.25, 0.5]),)),
    ],
)
def test_which_of_close_values_it_is_is_for_rounding_to_decide(
    path: str, rest: tuple[Any, ...]
) -> None:
    operands = [exact(x) if isinstance(x, torch.Tensor) else x for x in rest]
    for is_close in (True, False):
        x = torch.full((4,), 0.5) if is_close else torch.tensor([0.1, 0.2, 0.3, 0.6])
        results = ran(path, Bounded(x.double(), torch.full((4,), 1e-7)), *operands)
        index = results[1] if isinstance(results, tuple) else results
        assert compare(index.value + 1, index).agrees is is_close


@pytest.mark.parametrize("numbers", [[1.0, 0.0, 0.0], [1.0, 0.0, 2.0, 0.0]])
def test_how_many_values_are_zero_is_for_rounding_to_decide(numbers: list[float]) -> None:
    x = torch.tensor(numbers, dtype=torch.float64)
    with pytest.raises(UncheckedError, match="rounding decides how many elements it has"):
        ran("aten.nonzero.default", Bounded(x, torch.full_like(x, 1e-7)))
    near = ran("aten.nonzero.default", Bounded(x, torch.where(x == 0, 0.0, 1e-7)))
    assert compare(x.nonzero(), near).agrees


def test_a_quotient_may_be_rounded_to_a_whole_number_before_it_is_cut_off() -> None:
    x, step = torch.tensor([0.5, 0.55]), torch.tensor(0.1)
    for mode in ("floor", "trunc"):
        whole = ran("aten.div.Tensor_mode", exact(x), 0.1, rounding_mode=mode)
        for wrote in ([4.0, 5.0], [5.0, 5.0]):  # with fmod, and with a division
            assert compare(torch.tensor(wrote), whole).agrees
        assert compare(torch.tensor([5.0, 6.0]), whole).wrong == 1
    assert compare(torch.div(x, step, rounding_mode="floor"), whole).agrees
    x, step = torch.tensor([-1.0, torch.inf, 7.0, 0.0]), torch.tensor([torch.inf, 2.0, 2.0, 0.0])
    whole = ran("aten.div.Tensor_mode", exact(x), exact(step), rounding_mode="floor")
    for wrote in (torch.floor(x / step), torch.div(x, step, rounding_mode="floor")):
        assert compare(wrote, whole).agrees  # they differ for infinities
    assert compare(torch.tensor([0.0, 0.0, 2.0, 0.0]), whole).wrong == 2
    number = exact(torch.tensor([7]))
    for_integers = ran("aten.div.Tensor_mode", number, 2, rounding_mode="floor")
    assert for_integers.error is None
    assert for_integers.value.tolist() == [3]


def test_what_is_stored_may_be_rounded_from_the_end_of_its_bound() -> None:
    x = torch.tensor([-1.5], dtype=torch.bfloat16)
    expected = ran("aten.fmod.Scalar", exact(x), 0.3)  # -0 in float64, -0.3 in float32
    assert compare(torch.tensor([-0.30078125], dtype=torch.bfloat16), expected).agrees
    assert not compare(torch.tensor([-0.33], dtype=torch.bfloat16), expected).agrees


@pytest.mark.parametrize("name", ["erf", "expm1", "tanh"])
def test_what_is_computed_as_one_minus_something_may_be_off_near_zero(name: str) -> None:
    x = torch.linspace(-3e-4, 3e-4, 101)
    if name == "erf":  # as ATen's vectors compute it
        t = 1 / (0.3275911 * x.abs() + 1)
        r = 1.061405429
        for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
            r = r * t + factor
        wrote = x.sign() * (1 - r * t * torch.exp(-x * x))
    elif name == "expm1":
        wrote = x.exp() - 1
    else:
        wrote = 2 / (1 + torch.exp(-2 * x)) - 1
    assert not torch.allclose(wrote, getattr(torch, name)(x), rtol=1e-5, atol=0)
    expected = ran(f"aten.{name}.default", exact(x))
    assert compare(wrote, expected).agrees
    assert not compare(wrote * 1.06, expected).agrees


def test_whether_two_values_are_equal_is_not_judged_where_rounding_decides_it() -> None:
    """As in the gradient of a maximum: `mask / sum(max == x)`, which is no number if none is."""
    x = torch.rand(16, generator=torch.Generator().manual_seed(3))
    again = ran("aten.log1p.default", exact(x), kind=torch.float32)
    top = exact(torch.log1p(x).amax(-1, keepdim=True))
    same = ran("aten.eq.Tensor", top, again, kind=torch.bool)
    assert same.bound().isinf().sum() == 1
    count = ran("aten.sum.dim_IntList", same, [-1], True, kind=torch.int64)
    one = exact(torch.ones(1))
    share = ran("aten.div.Tensor", one, count, kind=torch.float32)
    mask = ran("aten.mul.Tensor", share, same, kind=torch.float32)
    assert compare((x == x.max()).float(), mask).agrees


@pytest.mark.parametrize("transposed", [False, True])
def test_gradients_of_a_convolution_are_bounded_each_by_what_it_is_made_of(
    transposed: bool,
) -> None:
    generator = torch.Generator().manual_seed(4)
    x, weight = torch.randn(3, 4, 9, 9, generator=generator), torch.randn(4, 4, 3, 3)
    rest = ([1, 1], [0, 0], [1, 1], transposed, [0, 0], 1)
    out = torch.ops.aten.convolution.default(x, weight, None, *rest)
    gradient = torch.randn(out.shape, generator=generator)
    path, more = "aten.convolution_backward.default", ([4], *rest, [True, True, True])
    wrote = operator_named(path.split("."))(gradient, x, weight, *more)
    words = (path, *map(exact, (gradient, x, weight)), *more)
    tight, loose = ran(*words), in_tf32("conv", *words)
    for place, got in enumerate(wrote):
        assert compare(got, tight[place]).agrees
        assert not compare(got * 1.001, tight[place]).agrees
        rounded = (got.double() * (1 + 2**-12)).float()  # as TF32 may be off
        assert compare(rounded, loose[place]).agrees == (place < 2)


def test_what_moves_complex_numbers_keeps_the_precision_of_the_program() -> None:
    x = torch.randn(6, 8, dtype=torch.complex64, generator=torch.Generator().manual_seed(0)) * 15
    moves: list[tuple[str, tuple[Any, ...]]] = [
        ("view.dtype", (torch.complex64,)),
        ("reshape.default", ([8, 6],)),
        ("select.int", (0, 1)),
    ]
    transform = operator_named(["aten", "_fft_c2c", "default"])
    for name, rest in moves:
        operator = operator_named(["aten", *name.split(".")])
        wrote = transform(operator(x, *rest), [0], 2, False)
        moved = run(operator, (exact(x), *rest), {}, torch.complex64)
        assert moved.dtype is torch.complex64
        expected = run(transform, (moved, [0], 2, False), {}, torch.complex64)
        off = wrote * (1 + 2 * torch.finfo(torch.float32).eps)  # as another library may round
        assert compare(wrote, expected).agrees
        assert compare(off, expected).agrees
        assert not compare(wrote * 1.001, expected).agrees


@pytest.mark.parametrize("name", ["exp", "exp2", "sigmoid", "expm1", "tanh", "_softmax"])
def test_what_functions_make_of_an_infinity_is_known(name: str) -> None:
    """As that of masked elements is, and all that is computed of them."""
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(4))
    x[:, 5:] = -math.inf
    rest = (-1, False) if name == "_softmax" else ()
    operator = operator_named(["aten", name, "default"])
    expected = run(operator, (exact(x), *rest), {}, torch.float32)
    wrote = operator(x, *rest)
    assert compare(wrote, expected).agrees
    assert not compare(wrote, expected).unsure
    assert compare(wrote + 1e-3, expected).wrong == wrote.numel()
    if name in ("exp", "exp2"):  # at 0, nothing is rounded
        log = run(operator_named(["aten", "log1p", "default"]), (expected,), {}, torch.float32)
        assert bool(torch.isfinite(log.bound()).all()), log


def test_a_mask_of_infinities_leaves_attention_judged() -> None:
    query, key, value = (torch.randn(2, 4, n, 8) for n in (1, 24, 24))
    mask = torch.where(torch.arange(24)[None] <= 5, 0.0, -torch.inf)
    operator = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    given = (exact(query), exact(key), exact(value))
    expected = run(operator, given, {"attn_mask": exact(mask)}, None)[0]
    wrote = operator(query, key, value, attn_mask=mask)[0]
    assert compare(wrote, expected).agrees
    assert not compare(wrote, expected).unsure
    assert not compare(wrote * 1.001, expected).agrees


@pytest.mark.parametrize("reading", ["", "kept", "rounded"])
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_an_infinity_in_a_half_type_is_known(kind: torch.dtype, reading: str) -> None:
    token = READING.set(reading)
    try:
        found = converted(exact(torch.tensor([-torch.inf, torch.inf])), kind)
    finally:
        READING.reset(token)
    assert torch.isfinite(found.bound()).all()
    assert not compare(torch.tensor([-1.0, 1.0], dtype=kind), found).agrees
