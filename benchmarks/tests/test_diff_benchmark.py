"""10,000 launches with 100 edits: all that survive are paired, and fast."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

import pytest

import rewriter
from artifacts import get
from rewriter.commands._output import unified
from rewriter.core.align import Keys, align
from rewriter.locate.names import launch_keys

LAUNCHES = 10_000
EDITS = 100


def model(launches: int) -> list[Keys]:
    """Layers of the same ten launches, with and without names of nodes."""
    return [
        launch_keys(
            f"triton_poi_fused_add_{number % 10}" if number % 3 else "extern_kernels.mm",
            "triton" if number % 3 else "extern_out",
            ("(8, 64)", str(number % 4)),
            [f"add_{number // 10}"] if number % 2 else [],
            ["aten.add"],
        )
        for number in range(launches)
    ]


def edited(keys: list[Keys], edits: int, seed: int) -> tuple[list[Keys], int]:
    """The same after insertions, deletions and changes; and how many launches survive."""
    draw = random.Random(seed)
    result: list[Keys | None] = list(keys)
    for position in draw.sample(range(len(keys)), edits):
        if draw.random() < 0.5:
            result[position] = None
        else:
            result[position] = launch_keys(f"new_{position}", "fallback", (), (), ())
    kept = [key for key in result if key is not None]
    for _ in range(edits // 2):
        kept.insert(draw.randrange(len(kept)), launch_keys("inserted", "fallback", (), (), ()))
    return kept, len(keys) - edits


def check(a: list[Keys], b: list[Keys], survivors: int) -> None:
    pairs = align(a, b)
    same = [pair for pair in pairs if pair.a is not None and pair.b is not None]
    assert len(same) >= survivors
    assert sum(a[p.a][0] == b[p.b][0] for p in same if p.a is not None and p.b is not None) >= (
        survivors
    )
    in_order = [pair.b for pair in same if not pair.moved and pair.b is not None]
    assert in_order == sorted(in_order)


@pytest.mark.parametrize("seed", range(3))
def test_every_surviving_launch_is_paired(seed: int) -> None:
    keys = model(LAUNCHES)
    check(keys, *edited(keys, EDITS, seed))


@pytest.mark.benchmark
def test_aligning_takes_less_than_a_second() -> None:
    keys = model(LAUNCHES)
    seconds = []
    for seed in range(5):
        other, _ = edited(keys, EDITS, seed)
        start = time.perf_counter()
        align(keys, other)
        seconds.append(time.perf_counter() - start)
    print(f"\n{LAUNCHES} launches, {EDITS} edits: {', '.join(f'{s:.3f}' for s in seconds)} s")
    assert max(seconds) < 1


def large(path: Path, copies: int, seed: int) -> Path:
    """A wrapper whose call is repeated with other buffers, and sizes changed here and there."""
    text = get("cuda-torch2.11/gpt").data.decode()
    start = text.index("            # Topologically Sorted Source Nodes", text.index("def call("))
    end = text.index("        return (")
    lines = [
        re.sub(r"\bbuf(\d+)\b", rf"buf\g<1>_{copy}", line)
        for copy in range(copies)
        for line in text[start:end].splitlines(keepends=True)
    ]
    launches = [position for position, line in enumerate(lines) if ".run(" in line]
    for position in random.Random(seed).sample(launches, EDITS if seed else 0):
        lines[position] = re.sub(r"(\d+), stream=", r"1\1, stream=", lines[position])
    path.write_text(text[:start] + "".join(lines) + text[end:])
    return path


@pytest.mark.benchmark
def test_a_whole_difference_takes_little_longer_than_reading_both(tmp_path: Path) -> None:
    a, b = large(tmp_path / "a.py", 30, 0), large(tmp_path / "b.py", 30, 1)
    start = time.perf_counter()
    count = len(rewriter.open(a).launches) + len(rewriter.open(b).launches)
    read = time.perf_counter() - start
    start = time.perf_counter()
    found = rewriter.diff(a, b)
    taken = time.perf_counter() - start
    print(f"\n{count} launches: read in {read:.2f} s, compared in {taken:.2f} s")
    assert len(found.wrappers[0].launches) == EDITS
    assert taken < 2 * read


@pytest.mark.benchmark
def test_the_text_of_a_large_difference(tmp_path: Path) -> None:
    a, b = (large(tmp_path / f"{x}.py", 400, x).read_bytes() for x in (0, 1))
    start = time.perf_counter()
    text = unified(Path("a.py"), a, b)
    taken = time.perf_counter() - start
    count = a.count(b"\n")
    print(f"\n{count} lines: {taken:.2f} s, {len(text.splitlines())} lines of difference")
    assert len(text.splitlines()) > 2 * EDITS
    assert taken < count / 20_000
