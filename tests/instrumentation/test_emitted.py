"""The lines that `instrument` writes are known again, and no others."""

from __future__ import annotations

from dataclasses import replace

import pytest

import rewriter
from artifacts import get
from rewriter.artifact.types import Wrapper
from rewriter.core import markers
from rewriter.instrumentation import emitted
from rewriter.instrumentation.probes import PLAIN, registry

NAMES = ["cpu-torch2.13/mlp", "cpu-torch2.13/mlp aoti", "cpu-torch2.13/mlp cpp_wrapper"]


def probed(name: str, *, standalone: bool = False) -> tuple[Wrapper, set[int]]:
    """A wrapper with every probe around every launch, and the launches that have them."""
    wrapper = rewriter.open(get(name).path).only
    # What record writes has the same forms, and cannot be beside save.
    is_plain = standalone and wrapper.language == "python"
    names = PLAIN if is_plain else sorted({*registry()} - {"record"})
    selection = rewriter.select(names, when="both")
    result = rewriter.instrument(get(name).path, selection, standalone=standalone)
    with_probes = replace(wrapper, source=result.source)
    return with_probes, {launch.index for launch in result.plan.probed}


@pytest.mark.parametrize("standalone", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_every_line_is_known(name: str, standalone: bool) -> None:
    wrapper, launches = probed(name, standalone=standalone)
    assert launches
    assert emitted.probed_launches(wrapper) == launches
    assert emitted.count_foreign(wrapper) == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_line_with_a_copied_mark_is_foreign(name: str) -> None:
    wrapper, _ = probed(name)
    assert wrapper.probes is not None
    comment = "#" if wrapper.language == "python" else "//"
    copied = markers.Mark(wrapper.probes.tag, comment).line("x = 1", b"\n")
    source = wrapper.source + copied
    wrapper = replace(wrapper, source=source)
    assert emitted.count_foreign(wrapper) == 1


def test_a_plain_wrapper_has_none() -> None:
    wrapper = rewriter.open(get(NAMES[0]).path).only
    assert emitted.probed_launches(wrapper) == frozenset()
    assert emitted.count_foreign(wrapper) == 0
