"""The sources of kernels, in each kind of wrapper."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from artifacts import CPP_FIXTURES, FIXTURES, Fixture, plain
from rewriter.artifact.kernel_sources import find_kernels, kernel_sources
from rewriter.artifact.opening import open_artifact
from sampling import one_in

pytestmark = pytest.mark.properties

GENERATED = (
    *("triton", "triton_user", "triton_template", "combo", "cpp", "cuda"),
    *("pallas", "halide", "metal", "flydsl"),
)


def extra(fixture: Fixture) -> dict[str, bytes]:
    beside = fixture.path.with_name("kernel.cpp")
    return {beside.name: beside.read_bytes()} if beside.is_file() else {}


@pytest.mark.parametrize("fixture", one_in(2, FIXTURES + CPP_FIXTURES))
def test_every_generated_kernel_has_its_source(fixture: Fixture) -> None:
    wrapper = plain(fixture).only
    sources = kernel_sources(wrapper, extra(fixture))
    launched = {launch.kernel for launch in wrapper.launches if launch.kind in GENERATED}
    if (fixture.folder, fixture.kind) == ("cuda-torch2.6", "cpp_wrapper"):
        assert not sources  # it names compiled files
        return
    assert launched <= sources.keys()
    for name in launched:
        assert re.search(r"\btl\.|extern|\bkernel void\b|_main\(|import halide", sources[name])


def test_the_last_definition_counts(tmp_path: Path) -> None:
    fixture = next(one for one in FIXTURES if "cuda-torch2.11/mlp" in str(one))
    name, text = next(iter(kernel_sources(plain(fixture).only).items()))
    path = tmp_path / "output_code.py"
    again = f"{name} = async_compile.triton('{name}', '''\nlast\n''')\n"
    place = b"async_compile.wait(globals())\n"
    assert place in fixture.data
    path.write_bytes(fixture.data.replace(place, again.encode() + place, 1))
    found = kernel_sources(open_artifact(path).only)
    assert (found[name], text) == ("\nlast\n", text)
    assert text != found[name]


@pytest.mark.parametrize("fixture", one_in(2, FIXTURES + CPP_FIXTURES))
def test_a_source_stands_where_it_says(fixture: Fixture) -> None:
    wrapper = plain(fixture).only
    for kernel in find_kernels(wrapper):
        there = wrapper.plain.data[kernel.start : kernel.end].decode()
        if wrapper.language == "python":
            assert there.startswith(f"{kernel.name} = async_compile.")
        first = next(line for line in kernel.text.splitlines() if line.strip())
        assert first.strip() in there
    for kernel in find_kernels(wrapper, extra(fixture)):
        assert kernel.end or kernel.name in extra(fixture)["kernel.cpp"].decode()
