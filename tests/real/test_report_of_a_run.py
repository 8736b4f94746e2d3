"""The report of what a wrapper did here and now."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import torch

from programs import document
from rewriter import cli
from test_report import SCHEMA, run_report, scripts

pytestmark = pytest.mark.usefixtures("warm_python")


def test_a_dump_of_a_real_run(
    mlp_wrapper: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the wrapper to the page: values, sources and histograms are those of the run."""
    dump = tmp_path / "mlp.dump"
    assert cli.main(["run", str(mlp_wrapper), "--probe", "save", "-d", str(dump)]) == 0
    output = tmp_path / "mlp.html"
    printed = document("report", dump, "-o", output)
    jsonschema.validate(printed, SCHEMA)
    (run,) = printed["runs"]
    (gelu,) = (one for one in run["launches"] if one["kernel"] == "cpp_fused_gelu_0")
    value = gelu["values"][-1]
    saved = torch.load(dump / "rank0/run0" / value["file"], weights_only=True)
    assert value["histogram"]["counts"] == torch.histc(saved, 40).long().tolist()
    assert value["histogram"]["low"] == saved.min().item()
    sources = scripts(output.read_text(encoding="utf-8"))[-1]["sources"]
    assert any("cpp_fused_gelu_0" in source or "tmp" in source for source in sources)
    assert run_report(dump, "--no-histograms", "--json") == 0
    assert '"histogram"' not in capsys.readouterr().out
