"""`rewriter.probing` of what was compiled for a GPU: Triton kernels, partitions and CUDA graphs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import rewriter
from rewriter.execution.loaded.find import loaded_entries

pytestmark = pytest.mark.gpu


def function(x: Tensor) -> Tensor:
    return (x.sin() @ x.cos()).relu().sum(-1)


def _probed() -> set[Any]:
    return {x for x in loaded_entries() if "rewriter" in str(x.__code__.co_consts)}


@pytest.fixture(autouse=True)
def _everything_is_as_before() -> Iterator[None]:
    torch.compiler.reset()
    before = _probed()  # other tests of this process may have left some
    yield
    assert _probed() <= before


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What Triton compiles."""
    import triton

    compiled: list[Any] = []
    compile_ = triton.compile

    def counting(*args: Any, **options: Any) -> Any:
        compiled.append(args)
        return compile_(*args, **options)

    monkeypatch.setattr(triton, "compile", counting)
    monkeypatch.setattr("triton.compiler.compile", counting)
    return compiled


def test_triton_kernels(compilations: list[Any]) -> None:
    model = torch.compile(function)
    x = torch.randn(64, 64, device="cuda")
    expected = model(x)
    codes = {entry: entry.__code__ for entry in loaded_entries()}
    compilations.clear()
    with rewriter.probing("print,hash") as dump:
        assert torch.equal(model(x), expected)
    assert torch.equal(model(x), expected)
    assert compilations == []
    assert {entry: entry.__code__ for entry in loaded_entries()} == codes
    kernels = {launch.kernel for launch in dump.launches}
    assert any(kernel.startswith("triton_") for kernel in kernels)
    (run,) = dump.runs
    rows = [row for row in run.events() if row.phase == "after"]
    assert rows
    assert all(row.numel for row in rows if hasattr(row, "numel"))


def test_cuda_graphs_are_left_alone() -> None:
    model = torch.compile(function, mode="reduce-overhead")
    x = torch.randn(64, 64, device="cuda")
    results = [model(x).clone() for _ in range(3)]
    with rewriter.probing() as replayed:  # no launch is called; what is around partitions may be
        assert torch.equal(model(x).clone(), results[-1])
    assert [row for row in replayed if row.phase != "inputs"] == []
    assert any("CUDA graph" in note for note in replayed.notes)


def test_what_is_captured_within_the_block_keeps_no_probes() -> None:
    x = torch.randn(64, 64, device="cuda")
    expected = torch.compile(function)(x)
    torch.compiler.reset()
    model = torch.compile(function, mode="reduce-overhead")
    with rewriter.probing() as dump:
        for _ in range(3):
            assert torch.equal(model(x).clone(), expected)
    assert any("captured into a CUDA graph" in note for note in dump.notes)
    assert list(dump)  # of the call that warmed up
    rows = len(list(dump))
    for _ in range(3):
        assert torch.equal(model(x).clone(), expected)
    assert len(list(dump)) == rows
