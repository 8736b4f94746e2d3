"""Standalone wrappers in Python carry the recorder in plain Python, and nothing else."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

import rewriter
from artifacts import get
from rewriter.cli import main
from rewriter.instrumentation.dialects.python import standalone_recorder
from rewriter.instrumentation.probes import PLAIN

MLP = get("cpu-torch2.13/mlp").path


@pytest.mark.parametrize(
    ("options", "lacks"),
    [
        (["--probe", "hash"], "hash"),
        (["--probe", "print,record"], "record"),
        (["--probe", "inputs,poison,bounds"], "bounds, inputs, poison"),
        (["--keep", "3"], "--keep"),
        (["--max-bytes", "1G"], "--max-bytes"),
        (["--dormant", "--probe", "print"], "--dormant"),
        (["--format", "upstream"], "--format upstream"),
        (["--values"], "--values"),
        (["--probe", "nan", "--stop", "--allow", "*:buf1"], "--allow, --stop"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_what_it_cannot_have_is_refused(
    options: list[str], lacks: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "probed.py"
    assert main(["instrument", str(MLP), "--standalone", *options, "-o", str(output)]) == 2
    printed = capsys.readouterr().err
    assert f"error[not-standalone]: {MLP}: --standalone and {lacks}: " in printed
    assert ", ".join(PLAIN) in printed
    assert not output.exists()
    assert main(["instrument", str(MLP), *options, "-o", str(output)]) == 0


def test_cpp_can_have_all_probes() -> None:
    path = get("cpu-torch2.13/mlp cpp_wrapper").path
    assert rewriter.instrument(path, rewriter.select("hash"), standalone=True).source


def test_wrappers_share_one_module_of_the_text() -> None:
    text = rewriter.instrument(MLP, rewriter.select(PLAIN), standalone=True).source.decode()
    header = text[text.index("_rw_text = ") : text.index("_rw = _rw_attach")]
    wrappers: list[dict[str, Any]] = [{}, {}]
    for wrapper in wrappers:
        exec(header, wrapper)
    assert wrappers[0]["_rw_text"] == standalone_recorder()
    assert wrappers[0]["_rw_attach"] is wrappers[1]["_rw_attach"]
    with pytest.raises(AttributeError) as caught:
        sys.modules[wrappers[0]["_rw_attach"].__module__].measure(None)
    shown = "".join(traceback.format_exception(caught.value))
    assert "dtype, name = tensor.dtype" in shown
