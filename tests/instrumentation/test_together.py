"""Which values can wait for those of the next launch, to be measured with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import rewriter
from bodies import wrapper
from rewriter.instrumentation.together import together

AOTI = Path(__file__).parents[2] / "fixtures" / "artifacts" / "cpu-torch2.13"

WRITTEN = "buf0, buf1 = new | write(arg0_1, buf0)"
CHAIN = f"{WRITTEN} | write(buf0, buf1)"
TOPK = "buf0 = torch.ops.aten.topk.default(arg0_1, 3)"
REAL = "{} = torch.ops.aten.view_as_real.default({})"
CASES: dict[str, tuple[str, set[int]]] = {
    # Must not wait.
    "alone": ("buf0 = new | write(arg0_1, buf0)", set()),
    "updated in place": ("buf0 = new | write(arg0_1, buf0) | update(buf0)", set()),
    "its memory taken over": (f"{WRITTEN} | buf2 = reshaped buf0 | write(arg0_1, buf2)", set()),
    "its memory taken over for a copy": (
        f"{CHAIN} | buf2 = took buf0 | buf2.copy_(arg0_1, False) | buf3 = new | write(buf2, buf3)",
        {0},
    ),
    "freed before the next launch": (f"{WRITTEN} | del buf0 | write(arg0_1, buf1)", set()),
    "an input that is written": ("update(arg0_1) | buf0 = new | write(arg0_1, buf0)", set()),
    "in a branch": (f"{WRITTEN} | if arg0_1 is not None:\n    write(buf0, buf1)", set()),
    "in a loop": (
        "buf0, buf1 = new | while True:\n    write(arg0_1, buf0)\n    write(buf0, buf1)",
        set(),
    ),
    "a view of an input that is written": (
        f"{REAL.format('buf0', 'arg0_1')} | write(buf0, arg0_1) | del buf0",
        set(),
    ),
    "a view that is written": (
        f"buf0 = new | write(arg0_1, buf0) | {REAL.format('buf1', 'buf0')} | write(arg0_1, buf0) | "
        "update(buf1) | del buf0, buf1",
        {0},
    ),
    "a view of a view that is written": (
        f"buf0 = new | write(arg0_1, buf0) | {REAL.format('buf1', 'buf0')} | "
        "buf2 = torch.ops.aten.view_as_complex.default(buf1) | write(arg0_1, buf0) | "
        "update(buf2) | del buf0, buf1, buf2",
        {0, 1},
    ),
    "parts of a pool": (
        "pool1 = empty_strided_cpu((64, ), (1, ), torch.uint8) | "
        "buf0 = alloc_from_pool(pool1, 0, torch.float32, (4, ), (1, )) | "
        "buf1 = alloc_from_pool(pool1, 0, torch.float32, (4, ), (1, )) | "
        "write(arg0_1, buf0) | write(arg0_1, buf1)",
        set(),
    ),
    **{
        f"changed by no launch: {line}": (
            f"{WRITTEN} | {line.replace('; ', ' | ')} | write(arg0_1, buf1)",
            set(),
        )
        for line in (
            "buf0.zero_()",
            "buf0.copy_(arg0_1, False)",
            "buf0.fill_(1.0)",
            "buf2 = reinterpret_tensor(buf0, (2, 2), (2, 1), 0); buf2.zero_()",
            "buf2 = buf0; buf2.zero_()",
            "reinterpret_tensor(buf0, (2, 2), (2, 1), 0).copy_(arg0_1)",
            "buf2 = buf0.view(2, 2); buf3 = buf2.permute(1, 0); buf3.fill_(0)",
            "buf2 = buf0.zero_()",
            "s0 = buf0.zero_().numel()",
            "buf0[0] = 1.0",
            "buf0[0], s0 = 1.0, 2",
            "buf0 += 1",
            "buf0.data = arg0_1",
            "buf2 = buf0[1:]",
            "buf2 = buf0 if arg0_1 is None else arg0_1",
            "buf2, buf3 = buf0, arg0_1",
            "buf2 = +buf0",
            "buf2 = buf0.T",
            "buf2 = buf0.view(2, 2).permute(1, 0)",
            "s0 = (buf2 := buf0) is None",
            "buf0.view(2, 2).zero_()",
            "kept = [buf0]",
            "kept: list = [buf0]",
            "(buf2 := buf0)",
            "buf0",
            "print(buf0)",
            "run_intermediate_hooks('buf0', buf0)",
            "torch.cuda.change(buf0)",
            "change = lambda: buf0.zero_()",
            "for buf0 in (arg0_1,): pass",
            "for i in range(2): buf0.zero_()",
            "if arg0_1 is not None: buf0.zero_()",
            "with torch.cuda._DeviceGuard(0): buf0.zero_()",
        )
    },
    "changed later, by a name that nobody follows": (
        "buf0, buf1, buf3 = new | buf2 = buf0[1:] | write(arg0_1, buf1) | write(arg0_1, buf0) | "
        "buf2.zero_() | write(arg0_1, buf3)",
        {0},
    ),
    "changed while it is the result of a library": (
        f"{REAL.format('buf0', 'arg0_1')} | buf1 = new | arg0_1.zero_() | write(arg0_1, buf1)",
        set(),
    ),
    "changed by the statement of the next launch": (
        f"{WRITTEN} | write(buf0.zero_(), buf1)",
        set(),
    ),
    "a result of a library that a later launch writes whole": (
        f"{TOPK} | buf1 = new | write(arg0_1, buf1) | write(arg0_1, buf0) | write(buf0, buf1) | "
        "del buf0",
        {0, 2},
    ),
    "memory of a result of a library, written in two parts": (
        f"{TOPK} | buf2 = reshaped buf0 | write(arg0_1, buf2) | write(arg0_1, buf2) | del buf2",
        set(),
    ),
    "before a call that nobody knows": (f"{CHAIN} | mystery(buf1)", set()),
    # Must wait.
    "read by the next launch": (CHAIN, {0}),
    "freed behind the next launch": (f"{CHAIN} | del buf0", {0}),
    **{
        f"used by no launch: {line}": (
            f"buf0, buf1, buf2 = new | write(arg0_1, buf0) | {line} | write(arg0_1, buf1)",
            {0},
        )
        for line in (
            "buf2.zero_()",
            "buf2.copy_(arg0_1)",
            "buf3 = reinterpret_tensor(buf0, (2, 2), (2, 1), 0)",
            "buf3 = buf0.clone()",
            "s0 = buf0.numel() + 1",
            "buf3 = buf0 + 1",
            "assert_size_stride(buf0, (4, ), (1, ))",
            "# buf0 += 1",
            "args.clear()",
        )
    },
    "three in a row": (f"{CHAIN} | buf2 = new | write(buf1, buf2)", {0, 1}),
    "the first of three freed": (f"{CHAIN} | del buf0 | buf2 = new | write(buf1, buf2)", {0}),
    "a result of a library": (
        f"{TOPK} | buf1 = new | write(arg0_1, buf1) | {TOPK.replace('buf0', 'buf2')} | del buf0",
        {0, 1},
    ),
    "a result of a library, freed by the name that took it over": (
        f"{TOPK} | buf1, buf3 = new | write(arg0_1, buf1) | buf2 = reshaped buf0 | "
        "write(arg0_1, buf2) | write(buf2, buf1) | del buf2 | write(arg0_1, buf3) | "
        "write(arg0_1, buf3)",
        {0, 2},
    ),
    "freed by the name that took it over": (
        f"{CHAIN} | buf2 = reshaped buf0 | del buf2 | buf3 = new | write(buf1, buf3)",
        {0},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_can_wait(name: str, tmp_path: Path) -> None:
    body, expected = CASES[name]
    located = rewriter.open(wrapper(tmp_path, body)).only.located
    passed = {
        launch.index: [x for x in launch.args if x.type == "tensor" and x.role != "in"]
        for launch in located.launches
    }
    assert together(located, passed) == expected


def test_not_all_of_a_long_chain_waits(tmp_path: Path) -> None:
    """The time that finding out takes grows with the file, not with its square."""
    body = " | ".join(f"buf{i} = new | write(arg0_1, buf{i})" for i in range(120))
    located = rewriter.open(wrapper(tmp_path, body)).only.located
    passed = {launch.index: launch.args[1:] for launch in located.launches}
    assert together(located, passed) == set(range(119)) - {48, 97}


def test_long_chains_of_views_do_not_wait(tmp_path: Path) -> None:
    """Nobody follows what may be one memory for ever: the time is linear there, too."""
    views = [REAL.format(f"buf{i + 1}", f"buf{i}") for i in range(300)]
    last = ["write(arg0_1, buf0)", "write(arg0_1, buf300)"]
    body = " | ".join(["buf0 = new", "write(arg0_1, buf0)", *views, *last])
    located = rewriter.open(wrapper(tmp_path, body)).only.located
    passed = {launch.index: launch.args[-1:] for launch in located.launches}
    assert 301 not in together(located, passed)


def test_what_is_not_handed_over_does_not_wait(tmp_path: Path) -> None:
    located = rewriter.open(wrapper(tmp_path, CHAIN, "(buf1, )")).only.located
    assert together(located, {0: located.launches[0].args[1:]}) == set()
    assert together(located, {1: located.launches[1].args[1:]}) == set()
    # It has a line, such as one that compares guard bands, which measures nothing.
    assert together(located, {0: located.launches[0].args[1:], 1: ()}) == set()


def test_weights_of_a_package_can_wait_until_they_are_written() -> None:
    """A package holds them: what a line hands over of them does not end a group."""
    located = rewriter.open(AOTI / "mlp/aoti/wrapper.cpp").only.located
    first, second = located.launches[:2]
    (entry,) = located.entries
    weights = {x.buffer for x in first.args} & {*entry.weights}
    assert weights
    passed = {x.index: [y for y in x.args if y.type == "tensor"] for x in (first, second)}
    passed[first.index] = [x for x in passed[first.index] if x.buffer in weights]
    assert first.index in together(located, passed)
    assert first.index not in together(
        replace(located, entries=(replace(entry, weights=()),)), passed
    )
    args = [replace(x, role="inout") if x.buffer in weights else x for x in first.args]
    again = replace(second, args=(*second.args, *(x for x in args if x.role == "inout")))
    changed = replace(located, launches=(first, again, *located.launches[2:]))
    assert first.index not in together(changed, passed)


_LINE = "    cpp_fused_gelu_0((float*)(buf1.data_ptr()));\n"
_VIEW = "reinterpret_tensor_wrapper(buf1, 2, int_array_2, int_array_3, 0L)"
CPP_CASES = {
    # Must not wait.
    "aoti_torch_zero_(buf1);": False,
    "AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_zero_(buf1));": False,
    "aoti_torch_copy_(buf1, up_weight, 0);": False,
    "buf1.copy_data_from(up_weight);": False,
    f"auto x = {_VIEW}; aoti_torch_zero_(x);": False,
    f"aoti_torch_zero_(wrap_with_raii_handle_if_needed({_VIEW}));": False,
    "AtenTensorHandle x; aoti_torch_as_strided(buf1, int_array_2, int_array_3, &x);"
    " aoti_torch_zero_(x);": False,
    "((float*)(buf1.data_ptr()))[0] = 1.0f;": False,
    "float* x = (float*)(buf1.data_ptr()); x[0] = 1.0f;": False,
    "auto x = (float*)(buf1.data_ptr()); *x = 1.0f;": False,
    "auto x = static_cast<float*>(buf1.data_ptr()); x[0]++;": False,
    "auto x = flag ? buf1.data_ptr() : up_weight.data_ptr();": False,
    "if (flag) { aoti_torch_zero_(buf1); }": False,
    "if (flag) aoti_torch_zero_(buf1);": False,
    "if (flag) { ((float*)(buf1.data_ptr()))[0] = 1.0f; }": False,
    "for (long i = 0L; i < 4L; i++) { ((float*)(buf1.data_ptr()))[i] = 1.0f; }": False,
    "{ aoti_torch_zero_(buf1); }": False,
    'aoti_torch_print_tensor_handle(buf1, "buf1");': False,
    "aoti_torch_delete_tensor_object(buf1);": False,
    "kept.push_back(buf1);": False,
    "kept[0] = buf1;": False,
    "memset(buf1.data_ptr(), 0, 4L);": False,
    # Must wait.
    "// aoti_torch_zero_(buf1);": True,
    f"auto x = {_VIEW};": True,
    'assert_size_stride(buf1, {8L, 64L}, {64L, 1L}, "buf1");': True,
    'if (flag) { assert_size_stride(buf1, {8L, 64L}, {64L, 1L}, "buf1"); }': True,
    "AtenTensorHandle x; aoti_torch_new_uninitialized_tensor(&x); aoti_torch_zero_(x);": True,
    "long x = 4L; x = x + 1L;": True,
}


@pytest.mark.parametrize("lines", CPP_CASES)
def test_what_can_wait_in_cpp(lines: str, tmp_path: Path) -> None:
    text = (AOTI / "mlp/aoti/wrapper.cpp").read_text("utf-8")
    assert text.count(_LINE) == 1
    path = tmp_path / "wrapper.cpp"
    path.write_text(text.replace(_LINE, f"{_LINE}    {lines}\n"), encoding="utf-8")
    located = rewriter.open(path).only.located
    passed = {
        launch.index: [x for x in launch.args if x.type == "tensor" and x.role != "in"]
        for launch in located.launches
    }
    (gelu,) = (x.index for x in located.launches if x.kernel == "cpp_fused_gelu_0")
    assert (gelu in together(located, passed)) == CPP_CASES[lines]
