"""Files whose names are not UTF-8: they are read, instrumented, compared and given back."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from artifacts import get
from rewriter.cli import main

WRAPPERS = ["cuda-torch2.11/mlp", "cpu-torch2.13/mlp cpp_wrapper", "cpu-torch2.15/mlp aoti"]


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_name_that_is_not_utf8(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fixture = get(name)
    path = tmp_path / os.fsdecode(b"caf\xe9" + os.fsencode(fixture.path.suffix))
    shutil.copy(fixture.path, path)
    probed, restored = (path.with_name(f"{x}{path.suffix}") for x in ("probed", "restored"))
    beside = path.with_name(f"{path.stem}.instrumented{path.suffix}")
    assert main(["list", str(path), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["launches"]
    assert main(["instrument", str(path), "--probe", "print"]) == 0
    assert main(["instrument", str(path), "--probe", "print", "--diff", "-o", str(probed)]) == 0
    assert beside.read_bytes() == probed.read_bytes()
    capfd.readouterr()
    assert main(["diff", str(path), str(beside)]) == 0
    assert capfd.readouterr().out.startswith("instrumented: ")
    assert main(["diff", str(path), str(beside), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["verdict"] == "instrumented"
    assert main(["strip", str(beside), "-o", str(restored)]) == 0
    assert restored.read_bytes() == fixture.data


def test_a_pattern_that_is_not_utf8(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--print-env", "--kernels", os.fsdecode(b"caf\xe9")]) == 2
    assert "is not UTF-8, and selects nothing" in capfd.readouterr().err
