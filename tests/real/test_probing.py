"""`rewriter.probing`: probes in what this process compiled, while it runs, and out again."""

from __future__ import annotations

import gc
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._inductor.codecache import PyCodeCache

import rewriter
from capture import Compiled
from harness import call_module, load
from rewriter.core.errors import RewriterError
from rewriter.dump.rows import EventRow, TensorRow
from rewriter.execution.loaded import find, probing
from rewriter.execution.loaded.code import functions_of
from rewriter.execution.loaded.find import loaded_entries
from rewriter.runtime import extension


class Model:
    """A training step that was compiled before anything here looks at it."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        layers = torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 8)
        self._net = torch.nn.Sequential(*layers)
        self._compiled = torch.compile(self._net)
        self._x = torch.randn(4, 8)
        self.expected = self.step()

    def step(self) -> list[Tensor]:
        """The output, and the gradients."""
        self._net.zero_grad()
        output = self._compiled(self._x)
        output.sum().backward()
        return [
            output.detach(),
            *(p.grad.clone() for p in self._net.parameters() if p.grad is not None),
        ]

    def forward(self) -> Tensor:
        result: Tensor = self._compiled(self._x)
        return result.detach()

    def check(self, results: list[Tensor]) -> None:
        assert len(results) == len(self.expected) == 5
        assert all(map(torch.equal, results, self.expected))


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    torch.compiler.reset()
    PyCodeCache.cache_clear()
    gc.collect()
    yield Model()
    torch.compiler.reset()


State = list[tuple[FunctionType, CodeType, dict[str, Any]]]


def state() -> State:
    """Every function of every wrapper, its code, and the names of its module."""
    return [
        (function, function.__code__, dict(entry.__globals__))
        for entry in loaded_entries()
        for function in functions_of(entry.__globals__).values()
    ]


@pytest.fixture(autouse=True)
def before(model: Model) -> Iterator[State]:
    """After each test everything is as before it: the very codes, and no name more."""
    loader = PyCodeCache.__dict__["load_by_key_path"]
    saved = state()
    assert saved
    yield saved
    for function, code, names in saved:
        assert function.__code__ is code
        assert function.__globals__.keys() == names.keys()
        assert all(function.__globals__[name] is value for name, value in names.items())
    assert PyCodeCache.__dict__["load_by_key_path"] is loader
    model.check(model.step())


@pytest.fixture
def compilers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is compiled by Inductor."""
    started: list[Any] = []
    monkeypatch.setattr("torch._inductor.cpp_builder.run_compile_cmd", started.append)
    monkeypatch.setattr("torch._inductor.cpp_builder.CppBuilder.build", started.append)
    return started


def kernels(dump: Any) -> set[str]:
    return {launch.kernel for launch in dump.launches if launch.launch is not None}


def test_a_step_is_recorded_and_equal_bit_for_bit(model: Model, compilers: list[Any]) -> None:
    with rewriter.probing() as dump:
        model.check(model.step())
        model.check(model.step())
    model.step()  # not recorded any more
    assert compilers == []
    assert sorted(dump.calls.values()) == [2, 2]
    assert dump.notes == ()
    rows = list(dump)
    assert all(isinstance(row, EventRow) for row in rows)
    written = {row.kernel for row in rows if isinstance(row, TensorRow) and row.is_result}
    assert written == kernels(dump) >= {"extern_kernels.addmm", "cpp_fused_gelu_0"}
    outputs = [row for row in rows if isinstance(row, TensorRow) and row.arg == "buf2"]
    mean = float(model.expected[0].double().mean())
    assert outputs[0].mean == pytest.approx(mean)


def test_the_dump_is_that_of_an_instrumented_file(
    model: Model, before: State, tmp_path: Path
) -> None:
    with rewriter.probing("hash", directory=tmp_path / "dump") as dump:
        model.step()
    for run in dump.runs:
        wrapper = next(
            Path(code.co_filename) for _, code, _ in before if run.artifact in code.co_filename
        )
        result = rewriter.instrument(wrapper, rewriter.select("hash"))
        assert [row.launch for row in run.facts.launches] == [x.index for x in result.plan.probed]
        assert run.facts.sha256.encode() in result.source
    assert (tmp_path / "dump" / "manifest.json").is_file()
    dump.remove()  # what was given stays
    assert (tmp_path / "dump").is_dir()


def test_only_what_is_chosen(model: Model) -> None:
    with rewriter.probing("print", kernels="cpp_*gelu*") as dump:
        model.step()
    assert len(kernels(dump)) == 2
    assert all("gelu" in kernel for kernel in kernels(dump))
    with rewriter.probing(kernels="triton_*") as dump:
        model.check(model.step())
    assert list(dump) == []
    (note,) = dump.notes
    assert "no launch matches kernels triton_*" in note
    with rewriter.probing(calls="1") as dump:
        for _ in range(3):
            model.step()
    assert {run.facts.call for run in dump.runs} == {1}
    with pytest.raises(RewriterError, match="unknown probe"), rewriter.probing("prnt"):
        pytest.fail("it has to be said before the block")


def test_nested_blocks_record_apart(model: Model) -> None:
    with rewriter.probing() as outer:
        model.forward()
        with rewriter.probing("hash", kernels="*gelu*") as inner:
            model.check(model.step())
        model.forward()
    calls = [run.facts.call for run in outer.runs if "cpp_fused_gelu_0" in str(run.facts)]
    assert calls == [0, 1, 2]
    assert len(inner.runs) == 2
    assert {type(row) for row in inner} == {TensorRow}
    assert repr(inner).splitlines()[1].split()[-1] == "fingerprint"
    assert all(row.fingerprint for row in inner if isinstance(row, TensorRow) and row.is_result)


def test_blocks_that_overlap(model: Model) -> None:
    first, second = rewriter.probing(), rewriter.probing("hash")
    one = first.__enter__()
    two = second.__enter__()
    model.forward()
    first.__exit__(None, None, None)
    model.forward()
    second.__exit__(None, None, None)
    assert (len(one.runs), len(two.runs)) == (1, 2)


def test_threads_call_while_probes_come_and_go(model: Model) -> None:
    stop = threading.Event()
    wrong: list[object] = []
    expected = model.expected[0]

    def serve() -> None:
        with torch.no_grad():
            pass
        while not stop.is_set():
            try:
                if not torch.equal(model.forward(), expected):
                    wrong.append("another output")
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=serve) for _ in range(4)]
    for thread in threads:
        thread.start()
    dumps = []
    try:
        for _ in range(10):
            with rewriter.probing(kernels="cpp_*") as dump:
                while not dump.calls and not wrong:
                    time.sleep(0.001)
            dumps.append(dump)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert wrong == []
    for dump in dumps:
        assert {launch.kernel for launch in dump.launches} == {"cpp_fused_gelu_0"}
        # A call is recorded as a whole, or not at all.
        assert all(len(run.steps) == 1 for run in dump.runs)


def test_a_recording_that_cannot_be_ended(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks end all the same."""
    loaded = extension.load()
    assert isinstance(loaded, ModuleType)
    ended: list[object] = []

    def end(recorder: object) -> None:
        ended.append(recorder)
        raise OSError("no room")

    with rewriter.probing() as outer, rewriter.probing("hash") as inner:
        monkeypatch.setattr(loaded.Lines, "end", end)
        with pytest.raises(OSError, match="no room"):
            model.forward()
        monkeypatch.undo()
    assert len(ended) == 2
    assert (sum(outer.calls.values()), sum(inner.calls.values())) == (1, 1)
    assert not probing._PROCESS._blocks


def test_a_call_that_outlasts_the_block(model: Model, before: State) -> None:
    """Probes are taken out while a thread is in the middle of the wrapper."""
    function = next(f for f, code, _ in before if code.co_filename and f.__name__ == "call")
    names = function.__globals__
    kernel = names["cpp_fused_gelu_0"]
    inside, go = threading.Event(), threading.Event()

    def slow(*args: Any) -> None:
        inside.set()
        assert go.wait(30)
        kernel(*args)

    names["cpp_fused_gelu_0"] = slow
    results = []
    try:
        with rewriter.probing() as dump:
            thread = threading.Thread(target=lambda: results.append(model.forward()))
            thread.start()
            assert inside.wait(30)
        assert function.__code__ is next(code for f, code, _ in before if f is function)
    finally:
        go.set()
        thread.join()
        names["cpp_fused_gelu_0"] = kernel
    assert torch.equal(results[0], model.expected[0])
    (run,) = dump.runs
    assert [str(step) for step in run.steps] == ["inputs", "#0", "#1", "#2"]


def test_an_error_in_the_wrapper_is_the_programs(model: Model, before: State) -> None:
    names = next(f.__globals__ for f, _, n in before if "cpp_fused_gelu_0" in n)
    kernel = names["cpp_fused_gelu_0"]

    def fails(*args: Any) -> None:
        raise ValueError("of the kernel")

    names["cpp_fused_gelu_0"] = fails
    try:
        with pytest.raises(ValueError, match="of the kernel") as raised, rewriter.probing() as dump:
            model.forward()
    finally:
        names["cpp_fused_gelu_0"] = kernel
    # The line is that of the file as it is.
    shown = [one for one in raised.traceback if one.name == "call"][-1]
    assert "cpp_fused_gelu_0(" in Path(shown.path).read_text().splitlines()[shown.lineno]
    (run,) = dump.runs
    assert [step.launch for step in run.steps] == [None, 0]


def test_what_is_compiled_within_the_block(model: Model) -> None:
    def function(x: Tensor) -> Tensor:
        return (x.sin() + 1).sum()

    x = torch.randn(4, 4)
    with rewriter.probing() as dump:
        compiled = torch.compile(function)
        first = compiled(x)
    assert len(dump.runs) == 1
    assert torch.equal(first, compiled(x))
    assert len(dump.runs) == 1


@pytest.mark.parametrize("name", ["cond", pytest.param("while_loop", marks=pytest.mark.exhaustive)])
def test_functions_of_subgraphs(
    name: str, compiled: Callable[[str], Compiled], tmp_path: Path
) -> None:
    """What a wrapper calls itself has probes, too; and its launches may run several times."""
    graph = compiled(name).graphs[0]
    module = load(graph.source.encode(), tmp_path)
    plain = call_module(module, graph.args)
    with rewriter.probing() as dump:
        probed = call_module(module, graph.args)
    assert probed == plain
    assert dump.notes == ()
    (run,) = dump.runs
    scopes = {row.scope for row in run.facts.launches}
    assert len(scopes) > 1
    ran = {run.launch_row(step.launch).scope for step in run.steps if step.launch is not None}
    assert len(ran) > 1
    assert any(row.iteration == 0 for row in dump)


_PARTITIONED = """\
import torch
from torch._inductor.select_algorithm import extern_kernels
empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu

def partition_0(args):
    arg0_1, = args
    args.clear()
    buf0 = empty_strided_cpu((4, 4), (4, 1), torch.float32)
    extern_kernels.mm(arg0_1, arg0_1, out=buf0)
    return (buf0, )

class Runner:
    def __init__(self, partitions):
        self.partitions = partitions

    def call(self, args):
        arg0_1, = args
        args.clear()
        partition0_args = [arg0_1]
        (buf0,) = self.partitions[0](partition0_args)
        return (buf0, )

runner = Runner(partitions=[partition_0,])
call = runner.call
"""


def test_partitions_that_are_replayed(tmp_path: Path) -> None:
    """A CUDA graph has taken the place of a partition: that nothing is recorded is explained."""
    module = load(_PARTITIONED.encode(), tmp_path)
    x = torch.eye(4)
    with rewriter.probing() as called:
        (expected,) = module.call([x])
    assert {row.kernel for row in called if row.phase == "after"} == {"extern_kernels.mm"}
    assert called.notes == ()
    module.runner.partitions = [lambda args: (expected,)]
    with rewriter.probing() as replayed:
        assert module.call([x])[0] is expected
    assert not [row for row in replayed if row.phase != "inputs"]
    (note,) = replayed.notes
    assert "replayed" in note


@pytest.mark.exhaustive
def test_a_cpp_wrapper(
    compiled_cpp: Callable[[str], Compiled], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is compiled once more, and not in Inductor's cache, which stays as it is; the library of
    the same probes is loaded again."""
    graph = compiled_cpp("mlp").graphs[0]
    module = load(graph.source.encode(), tmp_path)
    plain = call_module(module, graph.args)
    cache = tmp_path / "cache"
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache))
    code, (cell,) = module.call.__code__, module.call.__closure__
    entry = cell.cell_contents
    with rewriter.probing() as outer:
        assert call_module(module, graph.args) == plain
        assert len(outer.runs) == 1  # what ended is there
        with rewriter.probing("hash", kernels="cpp_*") as inner:
            assert call_module(module, graph.args) == plain
        assert call_module(module, graph.args) == plain
    assert (len(outer.runs), len(inner.runs)) == (2, 1)
    assert all(row.fingerprint for row in inner if isinstance(row, TensorRow) and row.is_result)
    assert any("recorded by that one alone" in note for note in outer.notes)
    monkeypatch.setattr("torch._inductor.cpp_builder.run_compile_cmd", pytest.fail)
    with rewriter.probing() as again:
        assert call_module(module, graph.args) == plain
    assert len(again.runs) == 1
    assert call_module(module, graph.args) == plain
    assert (len(outer.runs), len(again.runs)) == (2, 1)
    assert [path for path in cache.rglob("*") if path.is_file()] == []
    assert module.call.__code__ is code
    assert cell.cell_contents is entry


def test_what_inductor_forgot(model: Model) -> None:
    modules, by_path = list(PyCodeCache.modules), dict(PyCodeCache.modules_no_attr)
    PyCodeCache.modules.clear()
    PyCodeCache.modules_no_attr.clear()
    try:
        with rewriter.probing() as dump:
            model.forward()
    finally:
        PyCodeCache.modules.extend(modules)
        PyCodeCache.modules_no_attr.update(by_path)
    assert len(dump.runs) == 1


@pytest.mark.parametrize("how", ["gone", "changed", "probed"])
def test_a_file_that_is_not_what_was_loaded(model: Model, before: State, how: str) -> None:
    path = next(Path(code.co_filename) for _, code, n in before if "cpp_fused_gelu_0" in n)
    kept = path.with_suffix(".kept")
    shutil.copy2(path, kept)
    if how == "gone":
        path.unlink()
    elif how == "changed":
        path.write_text(path.read_text().replace("buf1", "buf9"))
    else:
        path.write_bytes(rewriter.instrument(path).source)
    try:
        with rewriter.probing() as dump:
            model.check(model.step())
    finally:
        kept.replace(path)
    assert len(dump.runs) == 1  # of the backward graph
    (note,) = dump.notes
    why = {"gone": "cannot read", "changed": "not the text", "probed": "has probes already"}[how]
    assert path.name in note
    assert why in note


def test_the_object(model: Model) -> None:
    with rewriter.probing() as dump:
        assert (list(dump), dump.launches, dump.calls) == ([], [], {})
        assert repr(dump) == f"0 calls of 0 wrappers: {dump.path}"
        model.forward()
        assert len(dump.launches) == 4  # what ended is there
    launch = dump.launches[2]
    assert (launch.launch, launch.call, launch.kernel) == (1, 0, "cpp_fused_gelu_0")
    (row,) = launch.rows
    assert isinstance(row, TensorRow)
    assert (row.arg, row.shape, row.nan) == ("buf1", (4, 8), 0)
    shown = repr(dump).splitlines()
    assert shown[0].startswith("1 call of 1 wrapper: ")
    assert "cpp_fused_gelu_0" in shown[-2]
    assert len(shown) == 2 + len(list(dump))
    path = dump.path
    assert path.is_dir()
    del dump, launch, row
    gc.collect()
    until = time.monotonic() + 60
    while path.exists() and time.monotonic() < until:
        time.sleep(0.01)  # a thread removes it
    assert not path.exists()


def test_prints_only_if_asked(model: Model, capfd: pytest.CaptureFixture[str]) -> None:
    with rewriter.probing(kernels="cpp_*"):
        model.forward()
    assert capfd.readouterr().out == ""
    with rewriter.probing(kernels="cpp_*", echo=True) as dump:
        model.forward()
    assert "#1 after  cpp_fused_gelu_0" in capfd.readouterr().out
    assert len(list(dump)) == 2


def test_silenced(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWRITER_PROBE", "off")
    with rewriter.probing() as dump:
        model.check(model.step())
    assert list(dump) == []


def test_memory_does_not_grow(model: Model, counted: Callable[[], int]) -> None:
    """Nothing of a block is left behind: not a recorder, a function, or a code."""
    for _ in range(2):
        with rewriter.probing(kernels="cpp_*"):
            model.forward()
    first = counted()
    for _ in range(5):
        with rewriter.probing(kernels="cpp_*"):
            model.forward()
    until = time.monotonic() + 20
    while counted() > first and time.monotonic() < until:
        time.sleep(0.1)  # a thread removes the dumps
    assert counted() <= first


@pytest.fixture
def counted() -> Callable[[], int]:
    def count() -> int:
        gc.collect()
        return sum(isinstance(x, FunctionType) for x in gc.get_objects())

    return count


def test_a_tuple_that_a_thread_of_the_program_is_making(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the program is held while wrappers are looked for."""
    inside, go = threading.Event(), threading.Event()
    is_entry = find._is_entry

    def slow(function: FunctionType) -> bool:
        inside.set()
        assert go.wait(30)
        return is_entry(function)

    monkeypatch.setattr(find, "_is_entry", slow)
    monkeypatch.setattr(find, "_listed", lambda: iter(()))
    found: list[list[FunctionType]] = []
    thread = threading.Thread(target=lambda: found.append(loaded_entries()))

    def elements() -> Iterator[int]:
        yield 1
        thread.start()
        assert inside.wait(30)
        yield 2

    try:
        assert tuple(elements()) == (1, 2)
    finally:
        go.set()
        thread.join()
    assert found[0]


def test_calls_while_a_block_ends(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """What begins before the probes are out is recorded, also behind a call that ended then."""
    take_out = probing._Process._set

    def late(process: probing._Process) -> None:
        model.forward()
        model.forward()
        take_out(process)

    with rewriter.probing() as dump:
        monkeypatch.setattr(probing._Process, "_set", late)
    assert [len(run.steps) for run in dump.runs] == [4, 4]
    assert sum(dump.calls.values()) == 2
