"""What an instrumented C++ wrapper gets is little: an interface, and a line for each launch."""

from __future__ import annotations

from typing import Any

import pytest

import rewriter
from artifacts import get
from rewriter.core import text_diff
from rewriter.instrumentation.dialects.cpp import TABLE_BEGIN
from rewriter.runtime import bundle

WRAPPERS = ("cpu-torch2.6/mlp cpp_wrapper", "cpu-torch2.6/mlp aoti")
MOST_OF_INTERFACE = 60  # lines
MOST_OF_DIFF = 150


@pytest.mark.parametrize("name", WRAPPERS)
@pytest.mark.parametrize("probes", ["names", "print", "print,save"])
def test_a_wrapper_gets_a_small_interface_and_a_table(name: str, probes: str) -> None:
    artifact = rewriter.open(get(name).path)
    result = rewriter.instrument(artifact, rewriter.select(probes))
    launches = len(artifact.launches)
    assert launches == 5
    added = result.source.decode().splitlines()
    begin = next(n for n, line in enumerate(added) if "What the probes need:" in line)
    table = next(n for n, line in enumerate(added) if line.startswith(TABLE_BEGIN))
    end = next(n for n, line in enumerate(added) if "Here it ends." in line)
    assert table - begin - 1 <= MOST_OF_INTERFACE
    assert end - table == 5 + launches  # one line for each launch
    rest = len(added) - len(result.original.splitlines()) - (end - begin + 1)
    assert rest <= 4 * launches + 5
    diff = text_diff.unified(result.original.decode(), result.source.decode(), "a", "b")
    assert len(diff.splitlines()) <= MOST_OF_DIFF


def test_what_few_wrappers_need_is_left_out_of_the_others() -> None:
    plain = bundle.interface(arrays=False, memory=False)
    assert "allocated" not in plain
    assert "is_array" not in plain
    assert "allocated" in bundle.interface(arrays=False, memory=True)
    assert "is_array" in bundle.interface(arrays=True, memory=False)


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_standalone_wrapper_holds_the_recorder(name: str) -> None:
    result = rewriter.instrument(get(name).path, rewriter.select("print"), standalone=True)
    assert b"class Recorder " in result.source
    assert b"inductor_rewriter_recorder_1" not in result.source
    assert b"recorder_library" not in result.source


def options(**changes: Any) -> bytes:
    return rewriter.instrument(get(WRAPPERS[0]).path, rewriter.select("print"), **changes).source


def test_a_wrapper_of_python_loads_the_library_before_it_is_compiled() -> None:
    source = options()
    loads = source.index(b"from rewriter.runtime.recorder_library import load")
    assert loads < source.index(b"cpp_wrapper_src")
