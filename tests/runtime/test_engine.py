"""The measuring engine on the CPU, its fallback, and the GPU's kernel run on the host: the same
numbers, and those of exact arithmetic."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from exact_statistics import adversarial, check, contents, decode
from rewriter.runtime import engine, engine_library
from rewriter.runtime.engine import Measurement

ENGINE = Path(engine_library.__file__).parent / "cpp"
CASES = adversarial()
Measure = Callable[[Sequence[torch.Tensor]], list[Measurement]]


@pytest.fixture(scope="module")
def emulate(tmp_path_factory: pytest.TempPathFactory) -> Measure:
    """Measures on the host with the source of the GPU's kernel."""
    library = tmp_path_factory.mktemp("emulation") / "emulation.so"
    source = Path(__file__).parent / "engine/emulation.cpp"
    flags = ["-std=c++17", "-O1", "-fPIC", "-shared", "-ffp-contract=off", "-I", str(ENGINE)]
    subprocess.run([engine_library.compiler(), *flags, source, "-o", library], check=True)
    run = ctypes.CDLL(str(library)).emulate
    run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p]

    def measure(tensors: Sequence[torch.Tensor]) -> list[Measurement]:
        group = engine._groups(tensors)[-1]
        count = len(group.places)
        room = ctypes.create_string_buffer(engine.MEASURED.size * count)
        assert run(*group.pointers(), count, 1, room) == count
        rows = zip(group.layouts, engine.MEASURED.iter_unpack(room.raw), strict=True)
        return [engine.decode(row, layout.dtype, layout.numel) for layout, row in rows]

    return measure


def by_operators(tensors: Sequence[torch.Tensor]) -> list[Measurement]:
    return [engine.measure_by_operators(tensor) for tensor in tensors]


def check_measurement(found: Measurement, tensor: torch.Tensor) -> None:
    assert found.statistics is not None
    check(found.statistics, decode(contents(tensor), tensor.dtype), tensor.dtype)
    assert (
        found.fingerprint
        == engine.measure([tensor.clone(memory_format=torch.contiguous_format)])[0].fingerprint
    )


@pytest.mark.parametrize("name", CASES)
def test_the_engine_agrees_with_exact_arithmetic(name: str) -> None:
    (found,) = engine.measure([CASES[name]])
    check_measurement(found, CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_torch_operators_agree_with_the_engine(name: str) -> None:
    tensor = CASES[name]
    check_measurement(engine.measure_by_operators(tensor), tensor)


def test_the_kernel_of_the_gpu_agrees_with_exact_arithmetic(emulate: Measure) -> None:
    tensors = list(CASES.values())
    for start in range(0, len(tensors), 16):
        some = tensors[start : start + 16]
        for found, tensor in zip(emulate(some), some, strict=True):
            check_measurement(found, tensor)
