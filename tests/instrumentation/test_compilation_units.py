"""What a package is compiled from: the parts that take long are the same for many patches."""

from __future__ import annotations

import pytest

import rewriter
from artifacts import get
from rewriter.core.types import When
from rewriter.instrumentation.compilation_units import CompilationUnits, split

WRAPPER = get("cuda-torch2.11/mlp aoti").path


def units(probes: str, calls: str = "", when: When | None = None) -> CompilationUnits:
    return split(rewriter.instrument(WRAPPER, rewriter.select(probes, calls=calls, when=when)))


@pytest.mark.parametrize(
    ("probes", "calls"), [("hash", ""), ("print,save", ""), ("print", "3-5"), ("save", "2")]
)
def test_other_probes_at_the_same_places_need_another_table_alone(probes: str, calls: str) -> None:
    once, again = units("print"), units(probes, calls)
    assert again.wrapper == once.wrapper
    assert again.runtime == once.runtime
    assert again.table != once.table


def test_other_places_need_another_wrapper() -> None:
    once = units("print")
    for again in (units("names"), units("print", when="both")):
        assert again.wrapper != once.wrapper
        assert again.runtime == once.runtime


def test_the_compiled_wrapper_is_the_instrumented_one_but_for_its_table() -> None:
    whole = rewriter.instrument(WRAPPER, rewriter.select("print"))
    wrapper = split(whole).wrapper
    lines = [line for line in whole.source.splitlines() if b"_rw." in line or b"Call _rw(" in line]
    assert [line for line in wrapper.splitlines() if line in set(lines)] == lines
    assert b"const Row rows[]" in whole.source
    assert b"const Row rows[]" not in wrapper
    assert b"extern Wrapper wrapper;" in wrapper
