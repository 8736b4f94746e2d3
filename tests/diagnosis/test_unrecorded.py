"""Where a launch was not recorded, what earlier ones left is not known, and accuses nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dumps
from dumps import value
from rewriter.comparison.dumps.compare import compare
from rewriter.diagnosis.corruption import examine_corruption
from rewriter.diagnosis.nonfinite import search
from rewriter.dump.reading import open_dump

X = value("arg0_1", mean=3.0)
WRAPPER = """# AOT ID: ['0_inference']
from torch._inductor.codecache import AsyncCompile


def call(args):
    arg0_1, = args
    buf0 = empty_strided_cpu((4, 8), (8, 1), torch.float32)
    extern_kernels.mm(arg0_1, arg0_1, out=buf0)
    buf1 = buf0; del buf0  # reuse
    cpp_fused_relu_0(buf1)
    buf2 = empty_strided_cpu((4, 8), (8, 1), torch.float32)
    extern_kernels.mm(buf1, arg0_1, out=buf2)
    return (buf1, buf2, )
"""
MEMORY = {"buf1": "buf0"}


def _dump(
    folder: Path,
    *,
    launches: tuple[int, ...] = (0, 2),
    inf: int = 0,
    again: bool = True,
    **last: Any,
) -> Path:
    """A call of which these launches were recorded; the last one is shown what it reads if
    `again`."""
    kept, updated = value("buf0", "out", 1.0, inf=inf), value("buf1", "inout", 2.0)
    read = [value("buf1", mean=2.0)] if again else []
    facts = {"scope": "call", "buffers": MEMORY}
    recorded = [
        dumps.launch(0, "extern_kernels.mm", [X], [kept], **facts),
        dumps.launch(1, "cpp_fused_relu_0", [value("buf1", "inout", 1.0)], [updated], **facts),
        dumps.launch(2, "extern_kernels.mm", read, [value("buf2", "out", **last)], **facts),
    ]
    if not again:
        recorded[2][0]["reads"] = [["in", "buf1"], ["in", "arg0_1"]]
    return dumps.write(
        folder, [recorded[x] for x in launches], inputs=[X], artifact="wrapper.py",
        wrapper=WRAPPER, outputs=("buf0", "buf2"),
    )  # fmt: skip


@pytest.mark.parametrize(("launches", "state"), [((0, 1, 2), "made"), ((0, 2), "wrote")])
def test_a_nan_may_be_of_what_was_not_recorded(
    launches: tuple[int, ...], state: str, tmp_path: Path
) -> None:
    (verdict,) = search(_dump(tmp_path, launches=launches, again=False, nan=1)).verdicts
    assert (verdict.launch, verdict.state) == (2, state)


def test_infinities_may_be_absorbed_by_what_was_not_recorded(tmp_path: Path) -> None:
    assert search(_dump(tmp_path / "a", launches=(0, 1, 2), inf=4)).verdicts == ()
    assert search(_dump(tmp_path / "b", launches=(0,), inf=4)).verdicts == ()


def test_an_output_is_not_what_an_earlier_launch_left(tmp_path: Path) -> None:
    whole, part = _dump(tmp_path / "a", launches=(0, 1, 2)), _dump(tmp_path / "b")
    for pair in ((whole, part), (part, whole)):
        assert compare(*pair).culprits == ()


def _without_updates(rows: list[dumps.Row]) -> None:
    rows[:] = [row for row in rows if row.get("role") != "inout"]


def test_what_changes_may_have_been_written_without_a_row(tmp_path: Path) -> None:
    dump = _dump(tmp_path, launches=(0, 1, 2))
    assert examine_corruption(open_dump(dump)).findings == ()
    dumps.change_rows(dump, _without_updates)
    assert examine_corruption(open_dump(dump)).findings == ()
