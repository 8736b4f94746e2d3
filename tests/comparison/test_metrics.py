"""Metrics of two tensors, against a reference that looks at one element at a time."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rewriter.comparison.dumps import metrics, tensors
from rewriter.comparison.dumps.metrics import compare
from rewriter.comparison.dumps.tensors import compare_many
from rewriter.comparison.dumps.types import Extreme, Metrics, Tolerance
from rewriter.core.errors import RewriterError
from sampling import neighbours, sampled

pytestmark = pytest.mark.properties

NAN, INF = math.nan, math.inf
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
FLOATS8 = [
    getattr(torch, name)
    for name in (
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
    )
    if hasattr(torch, name)
]
INTEGERS = [
    *(torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16),
    *(torch.uint32, torch.int32, torch.uint64, torch.int64),
]
COMPLEX = [torch.complex64, torch.complex128]


# The reference: plain Python over lists, exact where it can be.


def rank(bits: int, dtype: torch.dtype) -> int:
    """The place of a floating-point number among all of its type; both zeros are at 0."""
    if "e8m0" in str(dtype):  # no sign
        return bits
    sign = 1 << (8 * dtype.itemsize - 1)
    return -(bits & (sign - 1)) if bits & sign else bits


# Bits behind the point.
SIGNIFICAND = {
    torch.float64: 52,
    torch.float32: 23,
    torch.float16: 10,
    torch.bfloat16: 7,
    **dict(zip(FLOATS8, (3, 3, 2, 2, 0), strict=False)),
}


def bits_of(value: float, dtype: torch.dtype) -> int:
    tensor = torch.tensor([value], dtype=torch.float64).to(dtype)
    raw = bytes(tensor.view(torch.uint8).tolist())
    return int.from_bytes(raw, "little")


def steps(a: float, b: float, dtype: torch.dtype) -> int:
    return abs(rank(bits_of(a, dtype), dtype) - rank(bits_of(b, dtype), dtype))


def is_finite(value: complex) -> bool:
    return math.isfinite(complex(value).real) and math.isfinite(complex(value).imag)


def flat(tensor: torch.Tensor) -> list[Any]:
    if tensor.dtype.is_floating_point:
        tensor = tensor.double()
    if tensor.dtype == torch.bool:
        tensor = tensor.int()
    return tensor.contiguous().view(-1).tolist()


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    raw = [t.contiguous().flatten().view(torch.uint8).tolist() if t.numel() else [] for t in (a, b)]
    return a.dtype == b.dtype and raw[0] == raw[1]


def unravel(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    index: list[int] = []
    for size in reversed(shape):
        position, place = divmod(position, size)
        index.insert(0, place)
    return tuple(index)


def reference(a: torch.Tensor, b: torch.Tensor, tolerance: Tolerance) -> Metrics:
    xs, ys = flat(a), flat(b)
    shape = tuple(a.shape)
    both_integer = not any(t.is_floating_point() or t.is_complex() for t in (a, b))
    if not both_integer and not (a.is_complex() or b.is_complex()):
        xs, ys = [float(x) for x in xs], [float(y) for y in ys]

    def show(value: Any) -> Any:
        return abs(value) if a.is_complex() or b.is_complex() else value

    def extreme(error: float, place: int) -> Extreme:
        return Extreme(error, unravel(place, shape), show(xs[place]), show(ys[place]))

    finite, mismatched, nan_a, nan_b, inf = [], 0, 0, 0, 0
    nonfinite = None
    for place, (x, y) in enumerate(zip(xs, ys, strict=True)):
        if is_finite(x) and is_finite(y):
            finite.append(place)
            error = float(abs(x - y))
            mismatched += error > tolerance.atol + tolerance.rtol * float(abs(y))
        elif x != y and not (x != x and y != y):
            mismatched += 1
            nan_a += x != x
            nan_b += y != y
            inf += x == x and y == y
            nonfinite = nonfinite or extreme(abs(show(x) - show(y)), place)
    errors = [abs(xs[i] - ys[i]) for i in finite]
    max_abs = max_rel = None
    ulp = None
    rtol_needed = 0.0
    for place, error in zip(finite, errors, strict=True):
        if max_abs is None or error > max_abs.error:
            max_abs = extreme(error, place)
        if ys[place] != 0:
            relative = float(error) / float(abs(ys[place]))
            if max_rel is None or relative > max_rel.error:
                max_rel = extreme(relative, place)
        elif error > 0:
            rtol_needed = INF
    if a.is_floating_point() and b.is_floating_point() and finite:
        digits = SIGNIFICAND[a.dtype], SIGNIFICAND[b.dtype]
        coarse = a.dtype if digits[0] < digits[1] else b.dtype
        ulp = max(steps(xs[i], ys[i], coarse) for i in finite)
    squares = [
        [float(v) * float(v) for v in vs]
        for vs in ([abs(xs[i]) for i in finite], [abs(ys[i]) for i in finite], errors)
    ]
    aa, bb, dd = (math.fsum(v) for v in squares)
    count = len(finite) or NAN
    gain = 0.0 if dd == 0 else NAN
    if finite or not mismatched:
        if aa and bb:
            if a.is_complex() or b.is_complex():
                dot = math.fsum((complex(xs[i]).conjugate() * ys[i]).real for i in finite)
            else:
                dot = float(sum(Fraction(xs[i]) * Fraction(ys[i]) for i in finite))
            if dd and bb < INF:
                gain = (dot - bb) / bb
            cosine = dot / math.sqrt(aa) / math.sqrt(bb)
        else:
            cosine = 1.0 if aa == bb else 0.0
        quotient = bb / dd if dd else INF
        # Squares that are 0 or infinite, of numbers that are not, tell nothing.
        lost = (max_abs is not None and max_abs.error > 0) if dd == 0 else not 0 < quotient < INF
        snr = (
            -INF
            if dd and not bb
            else NAN
            if lost
            else INF
            if dd == 0
            else 10 * math.log10(quotient)
        )
        if dd and bb and not aa:
            gain = -1.0
    else:
        cosine = snr = gain = NAN
    return Metrics(
        numel=a.numel(),
        identical=same_bits(a, b),
        max_abs=max_abs,
        max_rel=max_rel,
        mean_abs=math.fsum(float(e) for e in errors) / count,
        rms=math.sqrt(dd / count),
        mean_a=math.fsum(float(show(xs[i])) for i in finite) / count,
        mean_b=math.fsum(float(show(ys[i])) for i in finite) / count,
        cosine=cosine,
        snr=snr,
        rms_b=math.sqrt(bb / count),
        gain=gain,
        ulp=ulp,
        mismatched=mismatched,
        nan_a=nan_a,
        nan_b=nan_b,
        inf=inf,
        nonfinite=nonfinite,
        atol_needed=max_abs.error if max_abs else 0.0,
        rtol_needed=rtol_needed or (max_rel.error if max_rel else 0.0),
    )


def assert_same(
    a: torch.Tensor, b: torch.Tensor, tolerance: Tolerance, found: Metrics | None = None
) -> None:
    values = [abs(v) for t in (a, b) for v in flat(t) if is_finite(v)]
    size = math.fsum(map(float, values)) / (len(values) or 1)
    assert_near(found or compare(a, b, tolerance), reference(a, b, tolerance), size)


def assert_near(found: Metrics, expected: Metrics, size: float) -> None:
    """Sums nearly, everything else exactly. Positive and negative values cancel in a mean: it is as
    near as their `size` allows."""
    for name, value in vars(expected).items():
        mine = getattr(found, name)
        if name in ("mean_a", "mean_b"):
            assert mine == pytest.approx(value, abs=2e-6 * size, nan_ok=True), name
        elif name == "cosine":
            assert mine == pytest.approx(value, abs=1e-6, nan_ok=True), name
        elif name == "gain":
            # Of sums of squares of a, b and the error, each in proportion to that of b.
            known = not (math.isnan(value) or math.isnan(expected.snr))
            within = 4e-6 * (1 + 10 ** (-expected.snr / 20)) ** 2 if known else None
            assert mine == pytest.approx(value, abs=within, nan_ok=True), name
        elif name in ("mean_abs", "rms", "rms_b", "snr"):
            within = 1e-5 * (name == "snr")
            assert mine == pytest.approx(value, rel=2e-6, abs=within, nan_ok=True), name
        else:
            assert repr(mine) == repr(value), name  # NaN equals NaN


SPECIAL = [NAN, INF, -INF, 0.0, -0.0, 1e-45, -1e-45, 1e-40, 1e-310, 1e30, -1e30, 3e38, 1e150, 1.0]
LOOSE, USUAL, EXACT = Tolerance(0.1, 0.1), Tolerance(1.3e-6, 1e-5), Tolerance(0.0, 0.0)


@pytest.fixture(params=["one block", "many blocks"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with blocks so small that every tensor has many."""
    if request.param == "many blocks":
        monkeypatch.setattr(metrics, "BLOCK", 24)
        monkeypatch.setattr(metrics, "_SMALL", 7)


def drawn(seed: int, count: int, dtype: torch.dtype, kind: str) -> torch.Tensor:
    """Values of a dtype: ordinary ones, or with what makes trouble among them."""
    generator = torch.Generator().manual_seed(seed)
    if not (dtype.is_floating_point or dtype.is_complex):
        raw = torch.randint(0, 256, (count, dtype.itemsize), generator=generator, dtype=torch.uint8)
        if dtype == torch.bool:
            raw &= 1
        if kind == "small":
            raw[:, 1:] = 0
        return raw.view(dtype).view(-1)
    if dtype.is_complex:
        parts = [drawn(seed + i, count, torch.float64, kind) for i in (1, 2)]
        return torch.complex(*parts).to(dtype)
    values = torch.randn(count, generator=generator, dtype=torch.float64)
    if kind == "planted":
        for place in range(0, count, 3):
            values[place] = SPECIAL[(seed + place * 7) % len(SPECIAL)]
    elif kind == "wide":
        exponents = torch.randint(-44, 38, (count,), generator=generator).double()
        values *= 10.0**exponents
    elif kind == "zeros":
        values[torch.randint(0, 3, (count,), generator=generator) == 0] = 0.0
    return values.to(dtype)


def near(a: torch.Tensor, dtype: torch.dtype, kind: str, seed: int) -> torch.Tensor:
    """A tensor that is like `a`, as a kernel compiled otherwise would make it."""
    generator = torch.Generator().manual_seed(seed + 99)
    if kind == "same" or not (a.is_floating_point() and dtype.is_floating_point):
        b = a.to(dtype)
    else:
        noise = torch.randn(a.shape, generator=generator, dtype=torch.float64)
        scale = {"step": 1e-7, "noise": 1e-3, "far": 2.0}[kind]
        b = (a.double() * (1 + scale * noise) + scale * (kind == "noise") * noise).to(dtype)
    if len(b) > 2:
        b[len(b) // 2] = b[0]
    return b


@pytest.mark.parametrize(("dtype_a", "dtype_b"), neighbours(FLOATS))
@pytest.mark.usefixtures("blocks")
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_floats(dtype_a: torch.dtype, dtype_b: torch.dtype, data: st.DataObject) -> None:
    seed = data.draw(st.integers(0, 10**6), "seed")
    count = data.draw(st.sampled_from([1, 2, 23, 24, 25, 200]), "count")
    kind = data.draw(st.sampled_from(["usual", "planted", "wide", "zeros"]), "kind")
    how = data.draw(st.sampled_from(["same", "step", "noise", "far"]), "how")
    tolerance = data.draw(st.sampled_from([LOOSE, USUAL, EXACT, Tolerance(1e-3, 0.0)]), "tolerance")
    a = drawn(seed, count, dtype_a, kind)
    assert_same(a, near(a, dtype_b, how, seed), tolerance)


def check_8_bit_floats(dtype_a: torch.dtype, dtype_b: torch.dtype, step: int) -> None:
    bits = torch.arange(256, dtype=torch.uint8)
    # Not a number and infinite is what is at the end of either half, or before it.
    some = torch.tensor([n for n in range(256) if not n % step or n % 128 > 123 or n == 128])
    others = some.to(torch.uint8)
    a = bits.view(dtype_a).repeat_interleave(len(some))
    b = others.view(dtype_b) if dtype_b.itemsize == 1 else others.float()
    assert_same(a, b.repeat(256), LOOSE)


OTHERS = [*FLOATS8[1:], torch.float32, FLOATS8[0]]


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype_b", OTHERS, ids=str)
@pytest.mark.parametrize("dtype_a", FLOATS8, ids=str)
def test_all_8_bit_floats(dtype_a: torch.dtype, dtype_b: torch.dtype) -> None:
    check_8_bit_floats(dtype_a, dtype_b, step=1)


@pytest.mark.parametrize(
    ("dtype_a", "dtype_b"),
    [pair.values for pair in sampled(FLOATS8, OTHERS) if not pair.marks],
    ids=str,
)
def test_8_bit_floats(dtype_a: torch.dtype, dtype_b: torch.dtype) -> None:
    check_8_bit_floats(dtype_a, dtype_b, step=8)


@pytest.mark.parametrize(("dtype_a", "dtype_b"), neighbours(INTEGERS))
@pytest.mark.usefixtures("blocks")
def test_integers(dtype_a: torch.dtype, dtype_b: torch.dtype) -> None:
    for seed, kind in enumerate(["usual", "small", "usual"]):
        a, b = drawn(seed, 50, dtype_a, kind), drawn(seed + 7, 50, dtype_b, kind)
        if dtype_a == dtype_b:
            b[::2] = a[::2]
        for tolerance in (EXACT, LOOSE):
            assert_same(a, b, tolerance)


def test_integers_that_float64_takes_for_one_another() -> None:
    a = torch.tensor([0, 2**63, 2**63 + 1, 5], dtype=torch.uint64)
    b = torch.tensor([0, 0, 0, 5], dtype=torch.uint64)
    found = compare(a, b, EXACT)
    assert found.max_abs == Extreme(2**63 + 1, (2,), 2**63 + 1, 0)
    assert found.mismatched == 2
    assert compare(torch.tensor([2**53 + 1]), torch.tensor([2**53]), EXACT).atol_needed == 1


@pytest.mark.parametrize("dtype_b", [*COMPLEX, torch.float32], ids=str)
@pytest.mark.parametrize("dtype_a", COMPLEX, ids=str)
@pytest.mark.usefixtures("blocks")
def test_complex(dtype_a: torch.dtype, dtype_b: torch.dtype) -> None:
    for seed, kind in enumerate(["usual", "zeros", "planted"]):
        a, b = drawn(seed, 60, dtype_a, kind), drawn(seed + 3, 60, dtype_b, kind)
        b[::4] = a[::4].real if dtype_b == torch.float32 else a[::4]
        # Moduli overflow where parts are huge, as they do in the reference.
        keep = (a.abs() < 1e100) | ~a.isfinite()
        assert_same(a[keep], b[keep], USUAL)


SHAPES = [(), (0,), (5,), (3, 0, 2), (4, 5, 6), (1, 7, 1, 9), (2, 3, 4, 5)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.usefixtures("blocks")
def test_shapes_and_strides(shape: tuple[int, ...]) -> None:
    """Whatever the order in memory, indices are those of the tensor."""
    count = math.prod(shape)
    a = torch.arange(1.0, count + 1).view(shape)
    b = a * (1 + 0.01 * torch.rand(shape, generator=torch.Generator().manual_seed(count)))
    dimensions = tuple(range(len(shape)))
    turned = dimensions[1:] + dimensions[:1]
    back = dimensions[-1:] + dimensions[:-1]

    def reordered(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.permute(turned).contiguous().permute(back)

    for x in (a, reordered(a), torch.stack([a, a], -1)[..., 0]):
        for y in (b, reordered(b), torch.stack([b, b], -1)[..., 1]):
            assert_same(x, y, USUAL)


def test_expanded() -> None:
    a = torch.tensor([1.0, 2.0, 4.0])[:, None].expand(3, 500)
    assert_same(a, a.contiguous() + torch.arange(1500.0).view(3, 500), LOOSE)


def test_inputs_are_not_changed() -> None:
    a, b = drawn(1, 1000, torch.float32, "planted"), drawn(2, 1000, torch.float32, "planted")
    before = [t.view(torch.int32).clone() for t in (a, b)]
    compare(a, b, USUAL)
    assert all(torch.equal(t.view(torch.int32), old) for t, old in zip((a, b), before, strict=True))


def test_nonfinite_elements() -> None:
    a = torch.tensor([1.0, NAN, INF, NAN, INF, -INF, 3.0, INF])
    b = torch.tensor([1.0, NAN, INF, 2.0, 5.0, INF, NAN, NAN])
    found = compare(a, b, LOOSE)
    assert (found.nan_a, found.nan_b, found.inf, found.mismatched) == (1, 2, 2, 5)
    assert found.nonfinite is not None
    assert found.nonfinite.index == (3,)
    assert not found.passes
    assert found.max_abs == Extreme(0.0, (0,), 1.0, 1.0)


def test_zeros_of_both_signs_are_equal_but_not_identical() -> None:
    found = compare(torch.zeros(9), -torch.zeros(9), EXACT)
    assert (found.identical, found.passes, found.ulp, found.snr) == (False, True, 0, INF)


def test_the_cosine_of_nearly_equal_vectors() -> None:
    a = torch.ones(4, dtype=torch.float64)
    b = torch.tensor([1, 1, 1, 1 + 2e-7], dtype=torch.float64)
    # 1 - cos is the variance of the ratio over 2: 3/16 of (2e-7)**2, halved.
    assert 1 - compare(a, b, USUAL).cosine == pytest.approx(3 / 32 * 4e-14, rel=0.02)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_real_blocks(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of several real blocks: what float32 finds is what float64 finds."""
    generator = torch.Generator().manual_seed(5)
    count = 3 * metrics.BLOCK + 17
    a = torch.randn(count, generator=generator).relu().to(dtype)
    noises = [torch.randn(count, generator=generator) for _ in range(4)]
    shares = ((1e-6, 0.0), (0.0, 1e-6), (0.1, 0.0), (3.0, 1e-5))
    pairs = zip(shares, noises, strict=True)
    others = [(a.float() * (1 + x * noise) + y * noise).to(dtype) for (x, y), noise in pairs]
    found = [compare(a, b, USUAL) for b in others]
    monkeypatch.setattr(metrics, "_in_float32", lambda tensor: False)
    for b, mine in zip(others, found, strict=True):
        assert_near(mine, compare(a, b, USUAL), size=1.0)


@pytest.mark.parametrize("name", ["float4_e2m1fn_x2", "quint4x2"])
def test_types_without_values_are_refused(name: str) -> None:
    if not hasattr(torch, name):
        pytest.skip("not in this torch")
    with pytest.raises(RewriterError) as caught:
        metrics.check(getattr(torch, name))
    assert caught.value.slug == "unsupported-dtype"


# Files.


def save(tensor: torch.Tensor, path: Path) -> Path:
    torch.save(tensor, path)
    return path


@pytest.mark.parametrize("dtype", [*FLOATS, *FLOATS8, *INTEGERS, *COMPLEX], ids=str)
def test_files(dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "BLOCK", 100)
    monkeypatch.setattr(metrics, "BLOCK", 100)
    a, b = (
        drawn(1, 720, dtype, "usual").view(8, 9, 10),
        drawn(2, 720, dtype, "usual").view(8, 9, 10),
    )
    b[3:] = a[3:]
    if dtype == torch.bool:  # one difference alone: which of several is named depends on the order
        b = a.clone()
        b[1, 2, 4] ^= True
    pairs = [
        (a, b),
        (a.mT, b.mT),
        (a, b.mT.contiguous().mT),
        (a[2:, ::2], b[2:, ::2]),
        (a[1:2], b[1:2]),
        (a[:0], b[:0]),
    ]
    files = [
        (save(x, tmp_path / f"{i}a.pt"), save(y, tmp_path / f"{i}b.pt"), USUAL)
        for i, (x, y) in enumerate(pairs)
    ]
    for (x, y), found in zip(pairs, compare_many(files), strict=True):
        assert_same(x, y, USUAL, found)


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.9, 0.999])
def test_a_file_that_is_cut_short(kept: float, tmp_path: Path) -> None:
    good = save(torch.randn(1000), tmp_path / "good.pt")
    bad = tmp_path / "bad.pt"
    bad.write_bytes(good.read_bytes()[: int(good.stat().st_size * kept)])
    for pair in ((good, bad), (bad, good)):
        with pytest.raises(RewriterError, match=r"bad\.pt") as caught:
            next(compare_many([(*pair, USUAL)]))
        assert caught.value.slug == "corrupt-dump"


def test_files_that_hold_something_else(tmp_path: Path) -> None:
    good = save(torch.randn(3), tmp_path / "good.pt")
    for number, content in enumerate(({"a": torch.randn(3)}, [1, 2], torch.eye(3).to_sparse())):
        bad = tmp_path / f"bad{number}.pt"
        torch.save(content, bad)
        with pytest.raises(RewriterError) as caught:
            next(compare_many([(good, bad, USUAL)]))
        assert caught.value.slug == "corrupt-dump"
    with pytest.raises(RewriterError, match="gone"):
        next(compare_many([(good, tmp_path / "gone.pt", USUAL)]))


@pytest.mark.parametrize(("a", "b"), [(1e200, 1.0), (1e-200, 1.1e-200), (1.0, 1e200)])
def test_squares_beyond_float64_tell_nothing(a: float, b: float) -> None:
    one, other = (torch.full((4,), value, dtype=torch.float64) for value in (a, b))
    found = compare(one, other, Tolerance(1e-7, 0.0))
    assert found.mismatched == 4
    assert math.isnan(found.snr)
