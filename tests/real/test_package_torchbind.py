"""A package with an object of TorchScript's: it stays what it is, and the probes run beside it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

import rewriter
from capture import package_case

FIXTURE = Path(__file__).parents[2] / "fixtures/torchbind_model.py"


@pytest.mark.exhaustive
@pytest.mark.skipif(shutil.which("ninja") is None, reason="compiling the class needs ninja")
def test_a_package_with_a_torchbind_object(tmp_path: Path) -> None:
    from torchbind_model import bound

    plain, patched = tmp_path / "model.pt2", tmp_path / "probed.pt2"
    with torch._higher_order_ops.torchbind.enable_torchbind_tracing():
        made = package_case(bound("cpu"), plain)
    torch.save(list(made.inputs["model"]), tmp_path / "inputs.pt")
    imports = [str(FIXTURE)]
    built = rewriter.patch(
        plain, patched, rewriter.select("names,save", when="both"), imports=imports
    )
    assert built.check == "loaded"
    runs = [
        rewriter.run(
            file, args=tmp_path / "inputs.pt", imports=imports, dump=tmp_path / f"dump-{file.stem}"
        )
        for file in (plain, patched)
    ]
    assert [run.code for run in runs] == [0, 0]
    assert runs[0].outputs == runs[1].outputs
    launches = rewriter.open(plain).launches
    assert "torch.ops.rewriter_bind.add_by.default" in {launch.kernel for launch in launches}
    ran = {row["launch"] for row in runs[1].events if "launch" in row}
    assert ran == {launch.index for launch in launches}
    assert rewriter.restore(patched, tmp_path / "restored.pt2")
    assert (tmp_path / "restored.pt2").read_bytes() == plain.read_bytes()
