"""A flipped byte is a difference that names its place, or an error if it breaks the wrapper."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import rewriter
from artifacts import CPP_FIXTURES, FIXTURES, Fixture, get
from rewriter.artifact.opening import open_artifact
from rewriter.cli import main
from rewriter.comparison.artifacts.types import Difference
from rewriter.comparison.artifacts.wrapper_view import WrapperView
from rewriter.core import edit, markers
from rewriter.core.errors import BAD_INPUT, DIFFERS, RewriterError
from sampling import one_in

pytestmark = pytest.mark.properties

SMALL = tuple(fixture for fixture in FIXTURES + CPP_FIXTURES if len(fixture.data) < 50_000)


def lines_of(found: Difference, side: str, path: Path) -> set[int]:
    """The lines of one side, as they are in its file, that a difference is said to be in."""
    (difference,) = found.wrappers
    named = {line.number for line in difference.lines if line.side == side}
    named |= {pair[side == "b"] for pair in difference.names}
    wrapper = open_artifact(path).only
    kept = wrapper.restored.kept
    view = WrapperView(wrapper, {})
    launches = (getattr(change, side) for change in difference.launches)
    regions = [[*view.launch_lines[launch.index]] for launch in launches if launch is not None]
    kernels = {getattr(change, side) for change in difference.kernels}
    regions += [view.kernel_lines(x, whole=True) for x in view.kernels.sources if x in kernels]
    return named | {kept[line - 1] for region in regions for line in region}


@pytest.mark.parametrize("seed", one_in(3, range(60)))
def test_a_flipped_byte_is_named(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    fixture: Fixture = draw.choice(SMALL)
    plain = tmp_path / fixture.path.name
    plain.write_bytes(fixture.data)
    data = bytearray(fixture.data)
    if probed := draw.random() < 0.4:
        selection = rewriter.select(draw.choice(["print", "names,save"]))
        data = bytearray(rewriter.instrument(plain, selection).source)
    lines = markers.lines(bytes(data))
    line = draw.choice(edit.strip(bytes(data)).kept) if probed else draw.randrange(len(lines)) + 1
    offset = sum(map(len, lines[: line - 1])) + draw.randrange(len(lines[line - 1]))
    data[offset] ^= 1 << draw.randrange(8)
    flipped = tmp_path / f"flipped{fixture.path.suffix}"
    flipped.write_bytes(data)

    if (code := main(["diff", str(flipped), str(plain)])) == BAD_INPUT:  # it broke the wrapper
        with pytest.raises(RewriterError, match=flipped.name):
            rewriter.diff(plain, flipped)
        return
    assert code == DIFFERS
    found = rewriter.diff(plain, flipped)
    assert found.verdict == "different"
    # A line that was cut in two, or joined to the next, is found by either.
    assert lines_of(found, "b", flipped) & {line - 1, line, line + 1}


@pytest.mark.parametrize(
    ("name", "old", "new", "error"),
    [
        ("cuda-torch2.11/mlp", b"", b"", "empty-file"),
        ("cuda-torch2.11/mlp", b"args.clear()", b"args.clear(", "syntax-error"),
        ("cuda-torch2.11/mlp", b"args.clear()", b"args.clear\xff)", "not-utf8"),
        ("cuda-torch2.11/mlp", b"args.clear()", b"args.clear\0)", "binary-file"),
        ("cuda-torch2.11/mlp aoti", b"inputs.clear();", b"inputs.clear(;", "syntax-error"),
        ("cuda-torch2.11/mlp aoti", b"::run_impl", b"::run_imql", "not-a-wrapper"),
        (
            "cpu-torch2.13/mlp cpp_wrapper",
            b"cpp_wrapper_src =",
            b"cpp_wrapper_srC =",
            "different-kinds",
        ),
    ],
)
def test_a_damaged_copy_is_an_error(
    name: str, old: bytes, new: bytes, error: str, tmp_path: Path
) -> None:
    fixture = get(name)
    damaged = tmp_path / fixture.path.name
    assert old in fixture.data
    damaged.write_bytes(fixture.data.replace(old, new) if old else b"")
    for pair in ((fixture.path, damaged), (damaged, fixture.path)):
        with pytest.raises(RewriterError) as caught:
            rewriter.diff(*pair)
        assert caught.value.slug == error
        assert str(damaged) in caught.value.message
    if error == "syntax-error":
        place = fixture.data[: fixture.data.index(old)].count(b"\n") + 1
        assert f"{damaged.name}:{place}" in caught.value.message
        probed = rewriter.instrument(fixture.path, rewriter.select("print")).source
        damaged.write_bytes(probed.replace(old, new))
        with pytest.raises(RewriterError, match=damaged.name):
            rewriter.diff(fixture.path, damaged)
