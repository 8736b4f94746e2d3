"""The input check: what wrappers tell of their inputs, and what the recorder makes of that."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import rewriter
from artifacts import CPP_FIXTURES, FIXTURES, Fixture, get
from capture import Compiled
from cpp_driver import options_of
from cpp_driver import row_of as launch_of
from harness import Ran, call, events
from rewriter.artifact.opening import open_artifact
from rewriter.dump.reading import open_dump
from rewriter.dump.rows import to_json
from rewriter.locate.inputs import row
from rewriter.locate.python.arithmetic import dimension
from rewriter.locate.types import EntryPoint
from rewriter.runtime import attach
from rewriter.runtime.host.harness import HARNESSES
from sampling import one_in

pytestmark = pytest.mark.usefixtures("warm_python")

Compile = Callable[[str], Compiled]

# Expressions.


@pytest.mark.parametrize(
    ("written", "read"),
    [
        pytest.param("", "?", id="nothing"),
        pytest.param("max(1, s0)", "?", id="no arithmetic"),
        pytest.param("s0 / 2", "?", id="true division"),
        pytest.param("s0 ** 2", "?", id="a power"),
        pytest.param("2.0*s0", "?", id="no integer"),
        pytest.param("True", "?", id="a boolean"),
        pytest.param("__import__('os')", "?", id="a call"),
        pytest.param("s0.x", "?", id="an attribute"),
        pytest.param("(" * 300 + "1" + ")" * 300, "?", id="too deep"),
        pytest.param("64L", "64", id="a long"),
        pytest.param("-1", "-1", id="negative"),
        pytest.param("8L*s77", "8*s77", id="a product"),
        pytest.param("(s0 + 1)//2", "(s0+1)//2", id="parentheses"),
        pytest.param(
            "c10::div_floor_integer(static_cast<int64_t>(1L + s0), static_cast<int64_t>(2L))",
            "(1+s0)//2",
            id="floor of C++",
        ),
    ],
)
def test_dimensions_are_read_in_either_language(written: str, read: str) -> None:
    assert dimension(written) == read


# What wrappers tell.

F32 = "tensor float32"
MLP = [
    f"arg0_1 {F32} cpu [64,32] [32,1]",
    f"arg1_1 {F32} cpu [64] [1]",
    f"arg2_1 {F32} cpu [8,32] [32,1]",
]
TELLS = {
    "cpu-torch2.6/mlp": MLP,
    "cpu-torch2.8/mlp": MLP,
    "cpu-torch2.13/mlp": MLP,
    "cpu-torch2.15/mlp": MLP,
    "cpu-torch2.6/mlp cpp_wrapper": MLP,
    "cpu-torch2.8/mlp cpp_wrapper": MLP,
    "cpu-torch2.13/mlp cpp_wrapper": MLP,
    "cpu-torch2.15/mlp cpp_wrapper": MLP,
    # It holds no check, and no pointer to it.
    "cpu-torch2.6/mlp aoti": ["arg6_1 - -"],
    "cpu-torch2.8/mlp aoti": [f"arg6_1 {F32} cpu [8,32] [32,1]"],
    "cpu-torch2.13/mlp aoti": [f"arg6_1 {F32} cpu [8,32] [32,1]"],
    "cpu-torch2.15/mlp aoti": [f"arg6_1 {F32} cpu [8,32] [32,1]"],
    "cuda-torch2.11/mlp_dyn": [
        f"arg0_1 {F32} cuda:0 [64,32] [32,1]",
        f"arg1_1 {F32} cuda:0 [64] [1]",
        "arg2_1 int s77",
        f"arg3_1 {F32} cuda:0 [s77,32] [32,1]",
    ],
    # The sizes of the harness are an example, and this torch asserts none.
    "cuda-torch2.11/mlp_dyn cpp_wrapper": [
        f"arg0_1 {F32} cuda:0 [?,?] [?,?]",
        f"arg1_1 {F32} cuda:0 [?] [?]",
        "arg2_1 int s77",
        f"arg3_1 {F32} cuda:0 [?,?] [?,?]",
    ],
    "cuda-torch2.11/mlp_dyn aoti": [f"arg6_1 {F32} cuda [s77:2..64,32,...] [32,1,...]"],
    "cuda-torch2.11/partition": [f"arg0_1 {F32} cuda:0 [8,8] [8,1]"],
    "cuda-torch2.11/gpt_train": [
        "primals_2 tensor int64 cuda:0 [2,16] [16,1]",
    ],
    "cpu-torch2.13/dynamic aoti": [f"arg6_1 {F32} cpu [s77:2..,32] [32,1]"],
    "cpu-torch2.13/scalars aoti": [
        f"arg0_1 {F32} cpu [4,4] [4,1]",
        "arg1_1 tensor int64 cpu [] []",
    ],
    "cpu-torch2.13/dtypes aoti-arrayref": [
        f"arg0_1 {F32} cpu [4,4] [4,1]",
        "arg1_1 tensor int64 cpu [4,4] [4,1]",
        "arg2_1 tensor bool cpu [4,4] [4,1]",
    ],
    "cpu-torch2.13/empty cpp_wrapper": [f"arg0_1 {F32} cpu [0,8] [8,1]"],
}


def entries(fixture: Fixture) -> list[EntryPoint]:
    (wrapper,) = rewriter.open(fixture.path).wrappers
    return [entry for entry in wrapper.located.entries if entry.inputs]


@pytest.mark.parametrize("name", TELLS)
def test_what_a_wrapper_tells_of_its_inputs(name: str) -> None:
    entry = entries(get(name))[0]
    assert list(map(row, entry.input_specs))[: len(TELLS[name])] == TELLS[name]


SEEDS = ("getitem_4", "getitem_5", "getitem_12", "getitem_13")


@pytest.mark.parametrize("kind", ["python", "cpp_wrapper"])
def test_the_seeds_of_attention_may_be_on_any_device(kind: str) -> None:
    folder = Path(__file__).parents[2] / "fixtures/artifacts/cuda-torch2.11/gpt_train"
    (entry,) = open_artifact(folder / kind / "output_code.py").only.located.entries
    assert [x.name for x in entry.input_specs if not x.device] == list(SEEDS)


@pytest.mark.parametrize("fixture", one_in(3, FIXTURES + CPP_FIXTURES))
def test_every_real_wrapper_tells_and_hands_over(fixture: Fixture, tmp_path: Path) -> None:
    plain = rewriter.open(fixture.path)
    result = rewriter.instrument(plain, rewriter.select("inputs", launches=[0]))
    source, calls = result.source.decode(), []
    for entry in entries(fixture):
        assert [known.name for known in entry.input_specs] == list(entry.inputs)
        if fixture.kind in ("python", "cpp_wrapper"):
            assert all(known.kind for known in entry.input_specs)
            tensors = [k for k in entry.input_specs if k.kind == "tensor"]
            assert all(k.dtype for k in tensors)
            # But for the seeds of attention, which are on the CPU, too.
            without = {k.name for k in tensors if not k.device}
            assert without == (set(SEEDS) if "getitem_13" in entry.inputs else set())
        calls.append(f"_rw.inputs({', '.join(entry.inputs)})")
        # What the wrapper asserts of an input comes behind.
        assert b"assert_size_stride" not in fixture.data[entry.start : entry.inputs_at]
    assert [line.split(";")[0].split("  #")[0].strip() for line in _injected(source)] == calls
    assert result.plan.probed == ()
    assert bool(result.plan.unchecked) == (not calls)
    path = tmp_path / fixture.path.name
    path.write_bytes(result.source)
    assert rewriter.strip(path).source == fixture.data


def _injected(source: str) -> list[str]:
    """The lines in a wrapper that call the runtime, less those that begin a call of it."""
    return [
        line
        for line in source.splitlines()
        if line.strip().startswith("_rw.") and not line.strip().startswith("_rw.begin(")
    ]


# The recorder.

CASES = {
    # Nothing to say.
    "as expected": (["a tensor float32 cpu [2,3] [3,1]"], [torch.ones(2, 3)], []),
    "nothing known": (["a - -"], [torch.ones(2)], []),
    "no size known": (["a tensor float32 cpu - -"], [torch.ones(2)], []),
    "a device of any index": (["a tensor - cpu [] []"], [torch.tensor(1)], []),
    "a stride of one element": (["a tensor - - [1,3] [7,1]"], [torch.ones(1, 3)], []),
    "strides of none": (["a tensor - - [0,3] [7,9]"], [torch.ones(0, 3)], []),
    "unknown dimensions": (["a tensor - - [?,3] [?,1]"], [torch.ones(5, 3)], []),
    "unbound": (["a tensor - - [s0//s1,3] [3,1]"], [torch.ones(5, 3)], []),
    "division by zero": (["a tensor - - [3//(2-2)] [1]"], [torch.ones(5)], []),
    "within limits": (["a tensor - - [s0:2..64] [1]"], [torch.ones(2)], []),
    "more dimensions": (["a tensor - - [2,...] [3,1,...]"], [torch.ones(2, 3)], []),
    "one size": (
        ["a tensor - - [s0,s0] [s0,1]", "b tensor - - [2*s0+1] [1]"],
        [torch.ones(4, 4), torch.ones(9)],
        [],
    ),
    "a number": (["a tensor - - [s0] [1]", "b int s0"], [torch.ones(4), 4], []),
    "aligned": (["a tensor - - [4] [1] 4"], [torch.ones(4)], []),
    # Something.
    "a size": (
        ["a tensor - - [2,3] [3,1]"],
        [torch.ones(2, 4)],
        [
            "a: size [2, 4], expected [2, 3] (dimension 1); "
            "stride [4, 1], expected [3, 1] (dimension 0)"
        ],
    ),
    "two sizes": (
        ["a tensor - - [2,3] -"],
        [torch.ones(3, 2)],
        ["a: size [3, 2], expected [2, 3] (dimensions 0, 1)"],
    ),
    "a stride": (
        ["a tensor - - [2,3] [3,1]"],
        [torch.ones(3, 2).t()],
        ["a: stride [1, 2], expected [3, 1] (dimensions 0, 1)"],
    ),
    "a dtype": (
        ["a tensor bfloat16 cpu [] []"],
        [torch.ones((), dtype=torch.float16)],
        ["a: dtype float16, expected bfloat16"],
    ),
    "another device": (
        ["a tensor float32 cpu [2] [1] 16", "b tensor float32 cuda:0 [2] [1]"],
        [torch.ones(2, device="meta"), torch.ones(2)],
        ["a: device meta, expected cpu", "b: device cpu, expected cuda:0"],
    ),
    "fewer dimensions": (
        ["a tensor - - [2,3] [3,1]"],
        [torch.ones(6)],
        ["a: size [6], expected [2, 3] (1 dimension, not 2)"],
    ),
    "fewer than may be": (
        ["a tensor - - [2,s0,...] [3,1,...]"],
        [torch.tensor(1)],
        ["a: size [], expected [2, s0, ...] (0 dimensions, not 2 or more)"],
    ),
    "outside of limits": (
        ["a tensor - - [s0:2..64] [1]", "b tensor - - [?:5..] [1]"],
        [torch.ones(65), torch.ones(4)],
        [
            "a: size [65], expected [2..64] (dimension 0)",
            "b: size [4], expected [5..] (dimension 0)",
        ],
    ),
    "another size": (
        ["a tensor - - [s0,s0] -", "b tensor - - [(s0+1)//2-s0*2,-s0] -"],
        [torch.ones(3, 4), torch.ones(1, 1)],
        [
            "a: size [3, 4], expected [3, 3] (dimension 1; s0 is 3 by a)",
            "b: size [1, 1], expected [-4, -3] (dimensions 0, 1; s0 is 3 by a)",
        ],
    ),
    "another number": (
        ["a tensor - - [s0,s1] -", "b int s0"],
        [torch.ones(4, 2), 5],
        ["a: size [4, 2], expected [5, 2] (dimension 0; s0 is 5 by b)"],
    ),
    "a floor": (
        ["a tensor - - [s0-9] -", "b int s0"],
        [torch.ones(4), 2],
        ["a: size [4], expected [-7] (dimension 0; s0 is 2 by b)"],
    ),
    "no tensor": (
        ["a tensor - - [] []", "b tensor - - [] []"],
        [None, torch.tensor(1)],
        ["a: nothing, expected a tensor"],
    ),
    "a number for a tensor": (
        ["a tensor - - [] []", "b tensor - - [] []"],
        [torch.tensor(1), 3],
        ["b: int, expected a tensor"],
    ),
    "no integer": (
        ["a int s0", "b float -"],
        [3, 2.5],
        [],
    ),
    "a tensor for a number": (
        ["a int s0", "b float -"],
        [torch.tensor(1), 3],
        ["a: a tensor, expected int"],
    ),
    # Conditions.
    "guards hold": (
        [
            "a tensor - - [s0,s1] -",
            "b int s2",
            "if s0%8==0",
            "if 2<=s0",
            "if s2!=s0",
            "if max(s0,s1,s2)<=16",
            "if min(3,s0)==3 or s1==1",
            "if -s0//3==-3",
            "if s9>0",
            "if s0%(s1-s1)==1",
            "if (s0-5)%2*s1==5",
            "if s0-9>-2",
        ],
        [torch.ones(8, 5), 16],
        [],
    ),
    "guards do not hold": (
        [
            "a tensor - - [s0,s1] -",
            "b int s2",
            "if s0%8==0",
            "if s2<=s0 or s2==s1",
            "if s1>5",
            "if 4!=s0",
            "if max(s0,s1)<min(5,s0)",
            "if -s0%3==0",
            "if 5<s1",
        ],
        [torch.ones(4, 5), 9],
        [
            "a: the guard s0%8==0 does not hold (s0 is 4 by a); "
            "the guard s1>5 does not hold (s1 is 5 by a); "
            "the guard 4!=s0 does not hold (s0 is 4 by a); "
            "the guard max(s0,s1)<min(5,s0) does not hold (s0 is 4 by a; s1 is 5 by a); "
            "the guard -s0%3==0 does not hold (s0 is 4 by a); "
            "the guard 5<s1 does not hold (s1 is 5 by a)",
            "b: the guard s2<=s0 or s2==s1 does not hold "
            "(s2 is 9 by b; s0 is 4 by a; s1 is 5 by a)",
        ],
    ),
    "a size and a guard": (
        ["a tensor - - [s0,3] -", "if s0<4"],
        [torch.ones(4, 4)],
        [
            "a: size [4, 4], expected [4, 3] (dimension 1); "
            "the guard s0<4 does not hold (s0 is 4 by a)"
        ],
    ),
    "not aligned": (
        ["a tensor - - [3] [1] 16"],
        [torch.empty(64)[1:4]],
        ["a: 4 bytes off an alignment of 16"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_said_and_dumped(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """In C++ it is the same recorder; `test_packages.py` has wrong inputs of a package."""
    rows, values, wrong = CASES[name]
    options = options_of("inputs", expected=rows, reads_inputs=False)
    names = [known.split()[0] for known in rows if not known.startswith("if ")]
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path))
    runtime = attach(options, [launch_of()], names)
    for _ in range(2):
        runtime.begin()
        runtime.inputs(*values)
    assert capfd.readouterr().out == "".join(
        f"[rewriter 0] {call}inputs {text}\n" for call in ("", "call 1 ") for text in wrong
    )
    dumped = events(tmp_path / "rank0/run0")
    # What is no value has a row that readers take, too.
    assert [to_json(row) for row in open_dump(tmp_path).runs[0].events()] == dumped
    found = {row["arg"]: row["unexpected"] for row in dumped if "unexpected" in row}
    assert [f"{name}: {text}" for name, text in found.items()] == wrong
    assert not any("mean" in row for row in dumped)


def test_what_is_not_known_is_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    rows = [
        "a - -",
        "b tensor - cpu - [?]",
        "c tensor int64 - [s9+1] [1]",
        "d tensor bool cpu [] []",
    ]
    options = options_of("inputs", expected=rows, reads_inputs=False)
    values = [torch.ones(1), torch.ones(1), torch.ones(1).long(), torch.tensor(True)]
    runtime = attach(options, [launch_of()], list("abcd"))
    for _ in range(2):
        runtime.begin()
        runtime.inputs(*values)
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err == (
        "[rewriter 0] warning: inputs: 3 of 4 inputs cannot be checked in full, since the wrapper "
        "does not say what it expects: a (anything), b (dtype, size, stride), c (device, size)\n"
    )


def test_an_input_that_cannot_be_described_is_not_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Mute:
        def __repr__(self) -> str:
            raise ValueError("no text")

    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path))
    options = options_of("inputs", expected=["a - -", "b int -"], reads_inputs=False)
    runtime = attach(options, [launch_of()], ["a", "b"])
    runtime.begin()
    runtime.inputs(Mute(), 3)
    found = [(row["arg"], row["type"], row["value"]) for row in events(tmp_path)]
    assert found == [("a", "Mute", "?"), ("b", "int", "3")]
    assert "warning: ValueError: no text" in capfd.readouterr().err


# Real wrappers.


def test_python_wrappers_are_checked_before_they_assert(
    compiled: Compile,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path / "dump"))
    graph = compiled("dynamic").graphs[0]
    path = tmp_path / "output_code.py"
    path.write_text(graph.source)
    # Whatever launches are chosen.
    selection = rewriter.select("inputs,print", kernels=["*addmm*"])
    source = rewriter.instrument(path, selection).source
    names = entries_of(path)[0].inputs
    (number,) = (i for i, value in enumerate(graph.args) if isinstance(value, int))
    (place,) = (
        i
        for i, value in enumerate(graph.args)
        if isinstance(value, torch.Tensor) and value.shape[:1] == (graph.args[number],)
    )
    good: torch.Tensor = graph.args[place]
    size = list(good.shape)
    assert call(source, graph.args, tmp_path) == call(graph.source.encode(), graph.args, tmp_path)
    assert "[rewriter 0] inputs" not in capsys.readouterr().out

    def refused(values: list[Any], error: type[Exception]) -> str:
        with pytest.raises(error):
            call(source, values, tmp_path)
        lines = capsys.readouterr().out.splitlines()
        return "\n".join(line for line in lines if "] inputs" in line)

    start = f"[rewriter 0] inputs {names[place]}: "
    args = list(graph.args)
    args[place] = torch.ones(size[0] + 1, *size[1:])
    assert refused(args, AssertionError) == (
        f"{start}size {[size[0] + 1, *size[1:]]}, expected {size} "
        f"(dimension 0; s77 is {size[0]} by {names[number]})"
    )
    args[place] = torch.ones(*reversed(size)).t()
    assert refused(args, AssertionError) == (
        f"{start}stride {list(args[place].stride())}, expected {list(good.stride())} "
        "(dimensions 0, 1)"
    )
    args[place] = good.double()
    assert refused(args, RuntimeError) == f"{start}dtype float64, expected float32"
    args[place] = None
    assert refused(args, TypeError) == f"{start}nothing, expected a tensor"
    count = len(graph.args)
    assert refused(args[:-1], ValueError) == (
        f"[rewriter 0] inputs: {count - 1} values, expected {count} ({names[0]} to {names[-1]})"
    )
    assert events(tmp_path / "dump/rank0/run5") == [
        {
            "phase": "inputs",
            "unexpected": f"{count - 1} values, expected {count} ({names[0]} to {names[-1]})",
        }
    ]


def entries_of(path: Path) -> list[EntryPoint]:
    (wrapper,) = rewriter.open(path).wrappers
    return [entry for entry in wrapper.located.entries if entry.inputs]


def lines_of(ran: Ran) -> list[str]:
    """What was said of inputs, whichever call of its process it was."""
    lines = (re.sub(r"^(\[rewriter 0\]) call \d+ ", r"\1 ", x) for x in ran.out.splitlines())
    return [line for line in lines if line.startswith("[rewriter 0] inputs")]


def checked(function: Callable[..., Any], *args: Any) -> str:
    """Run what may well refuse its inputs; why it did."""
    try:
        function(*args)
    except (RuntimeError, AssertionError) as error:
        return str(error)
    return ""


def wrong_inputs(good: torch.Tensor) -> list[tuple[torch.Tensor, str]]:
    """What does not fit where `good` does, and what is said of it."""
    return [
        (torch.ones(4, 32), "size [4, 32], expected [8, 32] (dimension 0)"),
        (torch.ones(32, 8).t(), "stride [1, 8], expected [32, 1] (dimensions 0, 1)"),
        (good.double(), "dtype float64, expected float32"),
        (good.to("meta"), "device meta, expected cpu"),
    ]


def on_cpu(text: str) -> str:
    """The text of a wrapper for another device, with the CPU in that device's place."""
    return re.sub(r"\b(cuda|xpu|mps):0", "cpu", text)


@pytest.mark.parametrize(
    "fixture", one_in(3, [x for x in FIXTURES + CPP_FIXTURES if not x.kind.startswith("aoti")])
)
def test_nothing_is_said_of_what_a_wrapper_makes_for_itself(
    fixture: Fixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its harness, on the CPU: examples of sizes that have names, too."""
    module = ast.parse(fixture.data)
    functions = [node for node in module.body if getattr(node, "name", "") in HARNESSES]
    # Up to torch 2.8 the one that runs the benchmark makes them, too.
    made = functions[0].body if isinstance(functions[0], ast.FunctionDef) else []
    kept = [node for node in made if isinstance(node, (ast.ImportFrom, ast.Assign))]
    wanted = [node for node in kept if "print_performance" not in ast.unparse(node)]
    text = on_cpu("\n".join(map(ast.unparse, wanted)))
    values: dict[str, Any] = {"torch": torch}
    exec(text, values)
    for entry in entries(fixture):
        rows = [on_cpu(row(x)) for x in entry.input_specs]
        given = [values[name] for name in entry.inputs]
        longer = [x.new_ones(*x.shape, 2) if isinstance(x, torch.Tensor) else x for x in given]
        recorder = attach(options_of("inputs", expected=rows), [], entry.inputs)
        for some in (given, longer):
            recorder.begin()
            recorder.inputs(*some)
            recorder.end()
            said = capsys.readouterr().out.splitlines()
            wrong = [x for x in some if isinstance(x, torch.Tensor)] if some is longer else []
            assert len(said) == len(wrong)
            assert all("size [" in line for line in said)
