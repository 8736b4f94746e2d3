"""The kinds of faults that `benchmarks.faults` plants: the source before and after, and the same
corpus for the same seed."""

from __future__ import annotations

import ast
import json
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.faults import oracle, score
from benchmarks.faults.__main__ import main
from benchmarks.faults.corpus import controls, corpus
from benchmarks.faults.judge import Answer
from benchmarks.faults.kinds import CONTROLS, KINDS
from benchmarks.faults.kinds.base import Kind
from benchmarks.faults.source import Source, read

ARTIFACTS = Path(__file__).parents[2] / "fixtures" / "artifacts"
CPU = ARTIFACTS / "cpu-torch2.13"
CUDA = ARTIFACTS / "cuda-torch2.11"

_PYTHON = """\
# AOT ID: ['0_inference']
import torch
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.select_algorithm import extern_kernels
reinterpret_tensor = torch._C._dynamo.guards._reinterpret_tensor
empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu
async_compile = AsyncCompile()


cpp_fused_0 = async_compile.cpp_pybinding(['const float*', 'const float*', 'float*'], r'''
extern "C"  void  kernel(const float* in_ptr0,
                       const float* in_ptr1,
                       float* out_ptr0)
{
    KERNEL
}
''')


triton_poi_fused_1 = async_compile.triton('triton_poi_fused_1', '''
import triton
import triton.language as tl
@triton.jit
def triton_poi_fused_1(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    TRITON
''', device_str='cuda')


async_compile.wait(globals())
del async_compile

def call(args):
    arg0_1, arg1_1 = args
    args.clear()
    WRAPPER
    return (buf9, )
"""
# How the launches of kernels stand in the wrapper; there are no others in rows about kernels.
_LAUNCHES = """\
buf0 = empty_strided_cpu((8, 8), (8, 1), torch.float32)
cpp_fused_0(arg0_1, arg1_1, buf0)
triton_poi_fused_1.run(arg0_1, buf0, 64, stream=stream0)"""
_LOOP = (
    "for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>({}L); "
    "x1+=static_cast<int64_t>({}L))"
)
_EMPTY = "empty_strided_cpu((8, 8), (8, 1), torch.float32)"
_TWO = (
    "\n".join(f"buf{n} = {_EMPTY}\ncpp_fused_0(arg0_1, arg1_1, buf{n})" for n in (0, 1))
    + f"\nbuf9 = {_EMPTY}"
)
_LOAD = "auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0 + static_cast<int64_t>({}), {});"
_FULL, _PART = "static_cast<int64_t>(16)", "static_cast<int64_t>(5L)"
_VECTORS = _LOAD.format("x1", _FULL) + "\n    auto tmp1 = at::vec::Vectorized<float>(tmp9);\n    "

_SUM = "float tmp_acc0 = 0;\n    "
_HALVES = "at::vec::VectorizedN<{0},2> tmp_acc0_vec = 0;\n    tmp_acc0_vec = tmp_acc0_vec + tmp1;"
_MM = "extern_kernels.mm(arg0_1, reinterpret_tensor(arg1_1, (8, 4), {}), out=buf9)"
_ADDMM = "extern_kernels.addmm(arg0_1, arg1_1, arg1_1, alpha=1, beta=1, out=buf9)"
_MADE = "buf{0} = " + _EMPTY + "\ncpp_fused_0(arg0_1, arg1_1, buf{0})\n"
_INPUTS = "\n".join(f"assert_size_stride(arg{n}_1, (8, 8), (8, 1))" for n in (0, 1))
_NODE = "# Source Nodes: [a]\ncpp_fused_0(arg0_1, arg1_1, buf9)"
_FIRST = "# Source Nodes: [a]\ncpp_fused_0(arg0_1, arg1_1, buf{})\ndel arg0_1\n"
_REUSE = f"buf1 = buf0; del buf0  # reuse\nbuf9 = {_EMPTY}\ncpp_fused_0(buf1, buf1, buf9)"
_BOTH = "cpp_fused_0(buf0, buf1, buf9)"

_READ = "in_ptr0[static_cast<int64_t>(x0)]"
_WRITTEN = "out_ptr0[static_cast<int64_t>(x0)] = static_cast<float>(tmp_acc0)"
_LARGE = "at::vec::Vectorized<float>(65504.0f)"
_STORED = "auto tmp2 = tmp0 * tmp9;\n    tmp2.store(out_ptr0 + x1);"
_STORE = "tmp1.store(out_ptr0 + static_cast<int64_t>(x1));"
_TRITON_STORE = "tl.store(out_ptr0 + (x0), tmp0, xmask)"

KIND = {kind.name: kind for kind in (*KINDS, *CONTROLS)}

Rows = dict[str, tuple[str, str, tuple[str, str] | None]]
# A kind, the text of a kernel or a wrapper, and what it has another text in the place of; None: the
# kind does not apply.
CPP: Rows = {
    "a copy has no operator": ("wrong operator", "auto tmp1 = tmp0;", None),
    "one operand": ("swapped operands", "auto tmp1 = tmp0 - tmp0;", None),
    "a sum commutes": ("swapped operands", "auto tmp2 = tmp0 + tmp1;", None),
    "a difference does not": ("commuted operands", "auto tmp2 = tmp0 - tmp1;", None),
    "a full vector": ("wrong mask", _LOAD.format("x1", _FULL), None),
    "a loop of one step": ("wrong mask", _LOOP.format(16, 16), None),
    "all terms in one vector": ("dropped reduction tail", _SUM + _LOOP.format(16, 16), None),
    "a loop that reduces nothing": ("dropped reduction tail", _LOOP.format(37, 16), None),
    "rows of one": ("wrong stride", _LOAD.format("x1 + 1L*x0", _FULL), None),
    "a store has no offset of a read": ("wrong offset", _STORE, None),
    "zero stays zero": ("wrong constant by 0.1", "auto tmp1 = static_cast<float>(0.0);", None),
    "an infinity": (
        "wrong constant by 0.1",
        "auto tmp1 = -std::numeric_limits<float>::infinity();",
        None,
    ),
    "an integer": ("wrong constant by 0.1", "auto tmp1 = static_cast<int64_t>(7);", None),
    "integers have no digits to lose": (
        "lost conversion",
        "auto tmp0 = in_ptr7[static_cast<int64_t>(x0)];",
        None,
    ),
    "a scalar is no vector": ("half overflow", "auto tmp2 = tmp0 * tmp1;", None),
    "what is loaded has no operand": (
        "wrong epilogue",
        _VECTORS + "tmp0.store(out_ptr0 + static_cast<int64_t>(x1));",
        None,
    ),
    "in place, nothing is uninitialised": (
        "uninitialised read",
        "    tmp0.store(in_out_ptr0 + static_cast<int64_t>(x1));",
        None,
    ),
    "a sum of integers": ("low-precision sum", _HALVES.format("int64_t"), None),
    "a product": ("wrong operator", "auto tmp2 = tmp0 * tmp1;", ("*", "+")),
    "a function": ("wrong operator", "auto tmp2 = tmp0.erf();", ("tmp0.erf", "tmp0.tanh")),
    "a maximum": (
        "wrong operator",
        "auto tmp2 = at::vec::maximum(tmp0, tmp1);",
        ("maximum", "minimum"),
    ),
    "a difference": (
        "swapped operands",
        "auto tmp2 = tmp0 - tmp1;",
        ("tmp0 - tmp1", "tmp1 - tmp0"),
    ),
    "a sum": ("commuted operands", "auto tmp2 = tmp0 + tmp1;", ("tmp0 + tmp1", "tmp1 + tmp0")),
    "a part of a vector": ("wrong mask", _LOAD.format("x1", _PART), ("5L", "4L")),
    "the last of a loop": ("wrong mask", _LOOP.format(8, 1), ("8L", "7L")),
    "the first vector": ("wrong mask", _LOOP.format(64, 16), ("0L", "16L")),
    "a bound": ("wrong mask", "auto tmp2 = tmp0 < tmp1;", ("<", "<=")),
    "a tail": ("dropped reduction tail", _SUM + _LOOP.format(37, 16), ("37L", "32L")),
    "a row": ("wrong stride", _LOAD.format("x1 + 16L*x0", _FULL), ("16L", "15L")),
    "an element": ("wrong offset", _LOAD.format("x1 + 16L*x0", _FULL), ("x0", "x0 + 1L")),
    "a constant": (
        "wrong constant by 0.01",
        "auto tmp1 = static_cast<float>(0.5);",
        ("0.5", "0.505"),
    ),
    "a float that is read": (
        "lost conversion",
        f"auto tmp0 = {_READ};",
        (_READ, f"static_cast<float>(static_cast<at::BFloat16>({_READ}))"),
    ),
    "a sum of vectors": (
        "low-precision sum",
        _HALVES.format("float"),
        (
            "tmp_acc0_vec + tmp1",
            "at::vec::convert<float,2,at::BFloat16,1>(at::vec::convert<at::BFloat16,1,float,2>("
            "tmp_acc0_vec + tmp1))",
        ),
    ),
    "a vector": (
        "half overflow",
        _VECTORS + "auto tmp2 = tmp0 * tmp1;",
        (
            "tmp0 * tmp1",
            "at::vec::convert<float>(at::vec::convert<at::Half>((tmp0 * tmp1) * "
            f"{_LARGE})) / {_LARGE}",
        ),
    ),
    "an operand is stored": ("wrong epilogue", _VECTORS + _STORED, ("tmp2.store", "tmp0.store")),
    "a store that is not there": ("uninitialised read", f"{_WRITTEN};", (_WRITTEN, "")),
    "behind the end": ("out-of-bounds store", _STORE, ("x1", "x1 + 16L")),
}
TRITON: Rows = {
    "a mask of all": ("wrong mask", "xmask = tl.full([XBLOCK], True, tl.int1)[:]", None),
    "a maximum": ("dropped reduction tail", "tmp1 = triton_helpers.max2(tmp0, 1)", None),
    "an index": ("wrong operator", "x0 = (xindex % 64)", None),
    "a difference": ("swapped operands", "tmp2 = tmp0 - tmp1", ("tmp0 - tmp1", "tmp1 - tmp0")),
    "a function": (
        "wrong operator",
        "tmp2 = libdevice.exp(tmp1)",
        ("libdevice.exp", "libdevice.expm1"),
    ),
    "a mask": ("wrong mask", "xmask = xindex < xnumel", ("xnumel", "xnumel - 1")),
    "a sum": (
        "dropped reduction tail",
        "tmp2 = tl.sum(tmp1, 1)[:, None]",
        ("tmp1", "tl.where(r0_index < r0_numel - 1, tmp1, 0)"),
    ),
    "a row": ("wrong stride", "tmp0 = tl.load(in_ptr0 + (r0_1 + 16*x0), xmask)", ("16", "15")),
    "an element": ("wrong offset", "tmp0 = tl.load(in_ptr0 + (x0), xmask)", ("x0", "x0 + 1")),
    "a sum of bfloat16": (
        "low-precision sum",
        "tmp2 = tl.sum(tmp1, 1)[:, None]",
        ("tmp1, 1", "tmp1.to(tl.bfloat16), 1).to(tl.float32"),
    ),
    "a value that is read is changed": (
        "undeclared mutation",
        "tmp0 = tl.load(in_ptr0 + (x0), xmask)",
        ("xmask)", "xmask)\n    tl.store(in_ptr0 + (x0), tmp0 + 1, xmask)"),
    ),
    "a conversion": (
        "lost conversion",
        "tmp1 = tmp0.to(tl.float32)",
        ("tmp0.to(tl.float32)", "tmp0"),
    ),
    "a constant": (
        "wrong constant by 0.0001",
        "tmp3 = tl.full([1], 0.5, tl.float32)",
        ("0.5", "0.50005"),
    ),
    "a value that overflows": (
        "half overflow",
        "tmp2 = tmp0 * tmp1",
        ("tmp0 * tmp1", "((tmp0 * tmp1) * 65504.0).to(tl.float16).to(tl.float32) / 65504.0"),
    ),
    "an operand is stored": (
        "wrong epilogue",
        "tmp2 = tmp0 * 2.0\n    tl.store(out_ptr0 + (x0), tmp2, xmask)",
        ("tmp2, xmask", "tmp0, xmask"),
    ),
    "a store that is not there": ("uninitialised read", _TRITON_STORE, (_TRITON_STORE, "pass")),
    "behind the end": ("out-of-bounds store", _TRITON_STORE, ("x0", "x0 + 16")),
}
WRAPPER: Rows = {
    "a view of all of it": ("wrong stride", _MM.format("(4, 1), 0"), None),
    "a view of rows in longer rows": ("wrong stride", _MM.format("(12, 1), 0"), None),
    "a view that begins at the beginning": ("wrong offset", _MM.format("(4, 1), 0"), None),
    "inputs are never released": ("early free", _MADE.format(9), None),
    "nothing is read later": ("stale reuse", _MADE.format(0) + _MADE.format(9), None),
    "launches that are independent": (
        "reordered launches",
        f"buf0 = {_EMPTY}\nbuf9 = {_EMPTY}\n"
        "cpp_fused_0(arg0_1, arg1_1, buf0)\ncpp_fused_0(arg0_1, arg1_1, buf9)",
        None,
    ),
    "an input that was released": (
        "another input",
        f"{_INPUTS}\nbuf9 = {_EMPTY}\ndel arg1_1\ncpp_fused_0(arg0_1, arg0_1, buf9)",
        None,
    ),
    "a call whose result has no other name": (
        "missing launch",
        "buf9 = torch.ops.aten.topk.default(arg0_1, 3)",
        None,
    ),
    "a transposed view": ("wrong stride", _MM.format("(1, 8), 0"), ("1, 8", "4, 1")),
    "a view of a part": ("wrong offset", _MM.format("(12, 1), 4"), ("), 4", "), 0")),
    "alpha": ("wrong constant by 0.1", _ADDMM, ("alpha=1", "alpha=1.1")),
    "beta": ("wrong epilogue", _ADDMM, ("beta=1", "beta=0")),
    "inputs of one layout": (
        "another input",
        f"{_INPUTS}\nbuf9 = {_EMPTY}\ncpp_fused_0(arg0_1, arg0_1, buf9)",
        ("arg0_1, arg0_1", "arg1_1, arg1_1"),
    ),
    "buffers of one layout": ("swapped operands", f"{_TWO}\n{_BOTH}", ("buf0, buf1", "buf1, buf0")),
    "memory that is read later": (
        "stale reuse",
        _MADE.format(0) + _MADE.format(1) + _BOTH,
        (f"buf1 = {_EMPTY}", "buf1 = buf0"),
    ),
    "memory that is read": (
        "early free",
        "cpp_fused_0(buf0, arg1_1, buf9)",
        ("cpp_fused_0", "buf0.untyped_storage().resize_(0)\ncpp_fused_0"),
    ),
    "a launch, and what is released after it": (
        "reordered launches",
        f"buf0 = {_EMPTY}\n{_FIRST.format(0)}{_REUSE}",
        (f"{_FIRST.format(0)}{_REUSE}", f"{_REUSE}\n{_FIRST.format(1)}".rstrip()),
    ),
    "a launch and what is written above it": (
        "missing launch",
        f"buf9 = {_EMPTY}\n{_NODE}",
        (f"\n{_NODE}", ""),
    ),
}
# A kind, the text of the C++ kernel and of the wrapper, and what becomes of them; None: it does not
# apply.
_INTO_INPUT = f"buf9 = {_EMPTY}\ncpp_fused_0(arg0_1, buf9, arg1_1)"
_INTO_BUFFER = f"buf9 = {_EMPTY}\ncpp_fused_0(arg0_1, arg1_1, buf9)"
_ALIAS = "buf0 = reinterpret_tensor(buf9, (4, 8), (8, 1), 0)  # alias"
_INTO_ALIAS = f"buf9 = {_EMPTY}\n{_ALIAS}\ncpp_fused_0(arg0_1, arg1_1, buf0)"
RESULTS: dict[str, tuple[str, str, str, tuple[str, str] | None]] = {
    "a buffer is no input": ("lost update", f"    {_STORE}", _INTO_BUFFER, None),
    "nothing reads it again": (
        "undeclared mutation",
        "",
        f"buf0 = {_EMPTY}\nbuf9 = {_EMPTY}\ncpp_fused_0(buf0, buf0, buf9)",
        None,
    ),
    "memory of its own": ("unwritten region", "", _INTO_BUFFER, None),
    "what is not returned": (
        "wrong type",
        "",
        f"buf0 = {_EMPTY}\ncpp_fused_0(arg0_1, arg1_1, buf0)\nbuf9 = buf0",
        None,
    ),
    "an input": ("lost update", f"    {_STORE}", _INTO_INPUT, ("    ;", _INTO_INPUT)),
    "an input that is read": (
        "undeclared mutation",
        "",
        _INTO_BUFFER,
        ("\n    const_cast<float*>(in_ptr0)[0] += static_cast<float>(1);", _INTO_BUFFER),
    ),
    "a part of a result": (
        "unwritten region",
        "",
        _INTO_ALIAS,
        (
            "",
            _INTO_ALIAS.replace(
                _ALIAS, "buf0 = empty_strided_cpu((4, 8), (8, 1), torch.float32)  # alias"
            ),
        ),
    ),
    "a result": (
        "wrong type",
        "",
        _INTO_BUFFER,
        ("", _INTO_BUFFER.replace("float32", "int32")),
    ),
}


def _source(kernel: str = "", triton: str = "", wrapper: str = _LAUNCHES) -> Source:
    text = _PYTHON.replace("KERNEL", kernel).replace("TRITON", triton)
    lines = "".join(f"    {line}\n" for line in wrapper.splitlines())
    return Source("made", "python", {"output_code.py": text.replace("    WRAPPER\n", lines)})


def _check(kind: Kind, before: Source, after: Source | None) -> None:
    planted = [
        before.edited(change.edits).text
        for launch in before.launches
        if kind.applies(launch, before)
        for change in kind.changes_at(launch, before)
    ]
    if after is None:
        assert planted == []
    else:
        assert after.text in planted


TABLES = {"kernel": CPP, "triton": TRITON, "wrapper": WRAPPER}


@pytest.mark.parametrize(("where", "row"), [(x, row) for x, rows in TABLES.items() for row in rows])
def test_in_a_kernel_or_a_wrapper(where: str, row: str) -> None:
    name, before, change = TABLES[where][row]
    assert change is None or before.count(change[0]) == 1
    after = None if change is None else _source(**{where: before.replace(*change)})
    _check(KIND[name], _source(**{where: before}), after)


@pytest.mark.parametrize("row", RESULTS)
def test_in_what_a_call_leaves(row: str) -> None:
    name, kernel, wrapper, after = RESULTS[row]
    changed = None if after is None else _source(after[0], wrapper=after[1])
    _check(KIND[name], _source(kernel, wrapper=wrapper), changed)


def _recorded(root: Path, form: str, *models: str) -> list[Source]:
    files = {"aoti": ("wrapper.cpp", "kernel.cpp")}.get(form, ("output_code.py",))
    return [read(model, form, *(root / model / form / file for file in files)) for model in models]


def test_the_same_seed_gives_the_same_corpus() -> None:
    sources = _recorded(CPU, "python", "mlp", "conv") + _recorded(CPU, "cpp_wrapper", "mlp")
    first, again = corpus(sources, 40, 3), corpus(sources, 40, 3)
    assert [(x.name, x.difference) for x in first] == [(x.name, x.difference) for x in again]
    assert [x.difference for x in first] != [x.difference for x in corpus(sources, 40, 4)]
    assert len({x.difference for x in first}) == 40


def test_kinds_take_turns_where_each_program_gets_one_fault() -> None:
    sources = _recorded(CPU, "python", "mlp")
    planted = [corpus(sources, 1, 0, first=number)[0].kind for number in range(2 * len(KINDS))]
    assert planted[: len(KINDS)] == planted[len(KINDS) :]
    there = set(planted)
    assert there == {x.kind for x in corpus(sources, 200, 0)}
    assert all(kind == one.name for kind, one in zip(planted, KINDS, strict=False)
               if one.name in there)  # fmt: skip


def test_what_the_answer_calls_unchecked_is_no_miss_in_silence() -> None:
    """Unless it accuses another launch, or calls another one unchecked."""
    fault = corpus(_recorded(CPU, "python", "mlp"), 1, 0)[0]
    (culprit,) = fault.change.culprits
    wrong = [oracle.Changed(culprit, "buf1", 1e6, True)]
    honest = {str(culprit): "no graph is known"}
    for answer, expected in (
        (Answer(), score.MISSED),
        (Answer(suspects={str(culprit + 1): "why"}), score.MISSED),
        (Answer(suspects=honest, kind="wrong", named=(culprit + 1,)), score.MISSED),
        (Answer(suspects=honest), score.UNCHECKED),
        (Answer(suspects=honest, kind="wrong", named=(culprit,)), score.FIRST),
    ):
        assert score.outcome(fault, answer, wrong) == expected


def test_every_kind_is_planted_in_every_form() -> None:
    """But for what the models of one form have no place for."""
    models = ("mlp", "transformer", "scatter", "mutate")
    for form in ("python", "cpp_wrapper"):
        sources = _recorded(CPU, form, *models)
        kinds = {x.kind for x in corpus(sources, 60, 0)}
        nowhere = {"dropped reduction tail", "unwritten region", "wrong type"}
        nowhere |= {"another input"} if form != "python" else set()
        assert {x.name for x in KINDS} - kinds <= nowhere
    packages = corpus(_recorded(CPU, "aoti", "mlp", "conv", "customop"), 60, 0)
    missing = {x.name for x in KINDS} - {x.kind for x in packages}
    nowhere = {
        "another input",
        "dropped reduction tail",
        "stale reuse",
        "lost update",
        "unwritten region",
        "wrong type",
    }
    assert missing <= nowhere
    assert any(edit.file == "kernel.cpp" for x in packages for edit in x.change.edits)


def test_a_hundred_faults_on_a_gpu_parse() -> None:
    """Each is one of its own, in Python and in the source of a Triton kernel."""
    models = ("combo", "conv", "gpt", "mlp", "mlp_dyn", "scatter")
    sources = _recorded(CUDA, "python", *models)
    faults = corpus(sources, 120, 0)
    assert len(faults) == 120
    missing = {x.name for x in KINDS} - {x.kind for x in faults}
    assert missing <= {"lost update", "unwritten region"}
    for fault in faults:
        ast.parse(fault.changed.text)
        kernel = fault.changed.kernels.get(fault.source.launches[fault.launch].kernel)
        if kernel is not None:
            ast.parse("if 1:\n" + kernel.text.partition("'''")[0])
    assert len(controls(sources, 10, 0)) == 10


def test_kernels_that_were_compiled_before_are_not_changed() -> None:
    """A C++ wrapper for a GPU quotes the source of its Triton kernels, and loads what was made."""
    (source,) = _recorded(CUDA, "cpp_wrapper", "mlp")
    assert "async_compile.triton(" in source.text
    assert source.kernels == {}
    (source,) = _recorded(CUDA, "python", "mlp")
    assert {one.language for one in source.kernels.values()} == {"triton"}


@pytest.mark.exhaustive
def test_faults_of_one_model_are_named(tmp_path: Path) -> None:
    """Planted, run, judged and scored: three faults, of which one may change nothing, and one
    change that is none."""
    command = ["--work", str(tmp_path), "--forms", "python", "--models", "mlp", "--check"]
    result = tmp_path / "result.json"
    assert main([*command, "--count", "3", "--controls", "1", "--json", str(result)]) == 0
    rows = json.loads(result.read_text())["rows"]
    counts = Counter(row["outcome"] for row in rows)
    assert counts["clean"] == 2
    assert counts["first"] >= 2
    assert counts["first"] + counts["changes nothing"] == 3
    # Nothing is asked twice.
    kept = (tmp_path / "results.jsonl").read_bytes()
    assert main([*command, "--count", "3", "--controls", "1"]) == 0
    assert (tmp_path / "results.jsonl").read_bytes() == kept
