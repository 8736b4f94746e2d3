"""`rewriter replace` on a wrapper that is compiled here: a hot-fix, and back."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capture import Compiled
from rewriter.cli import main
from test_bisect import CHECK, plant
from test_verify import compiled_cache, wrapper

__all__ = ["compiled_cache", "wrapper"]  # fixtures

pytestmark = pytest.mark.usefixtures("warm_python")
FAULT = "another operator"  # in launch 2


def printed(capfd: pytest.CaptureFixture[str], *command: str, code: int = 0) -> dict[str, Any]:
    capfd.readouterr()
    assert main([*command, "--json"]) == code
    found: dict[str, Any] = json.loads(capfd.readouterr().out)
    return found


def passes() -> bool:
    Path("check.py").write_text(CHECK)
    return subprocess.run([sys.executable, "check.py"], capture_output=True).returncode == 0


def test_a_hot_fix_in_the_cache_and_back(wrapper: Path, capfd: pytest.CaptureFixture[str]) -> None:
    plant(wrapper, FAULT)
    planted = wrapper.read_bytes()
    assert not passes()
    made = printed(capfd, "replace", str(wrapper), "--launch", "2", "--in-place")
    assert (made["launches"], made["changed"], made["unmeasured"]) == ([2], True, "")
    assert made["before"] > 0
    assert made["seconds"] > 0
    assert Path(made["backup"]).read_bytes() == planted
    assert passes()
    listed = printed(capfd, "list", str(wrapper))
    assert [x["index"] for x in listed["launches"] if x.get("replaced")] == [2]
    # It has no place for probes, and says so.
    assert main(["instrument", str(wrapper), "--replace"]) == 2
    assert "has launches replaced (#2)" in capfd.readouterr().err
    assert main(["strip", str(wrapper), "--check-probes"]) == 1
    assert "not checked: its launches are replaced" in capfd.readouterr().err
    # It runs alone as any wrapper does, and leaves no dump.
    assert main(["run", str(wrapper)]) == 0
    assert list(Path.cwd().glob("*.dump")) == []
    capfd.readouterr()
    assert main(["strip", str(wrapper), "--in-place"]) == 0
    assert wrapper.read_bytes() == planted


def test_several_launches_beside_the_file(wrapper: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = wrapper.read_bytes()
    assert main(["replace", str(wrapper), "--launch", "0-2,4", "--precise"]) == 0
    said = capfd.readouterr().err
    assert "4 launches replaced (#0 cpp_fused_" in said
    assert "a call takes " in said
    made = wrapper.with_name(f"{wrapper.stem}.replaced.py")
    assert main(["list", str(made)]) == 0
    assert "4 launches replaced (#0 cpp_fused_" in capfd.readouterr().err
    assert main(["strip", str(made), "-o", "back.py"]) == 0
    assert (Path("back.py").read_bytes(), wrapper.read_bytes()) == (before, before)
    # Only shown: nothing is written, and nothing is run.
    assert main(["replace", str(wrapper), "--launch", "1", "--diff"]) == 0
    assert "+def _rw_reference_1(" in capfd.readouterr().out
    assert main(["replace", str(wrapper), "--launch", "1", "--check"]) == 1


REFUSED = {
    "no launch of that number": (["--launch", "7"], "no-such-launch", "has no launch #7; it has 5"),
    "no number": (["--launch", "x"], "bad-launches", "no index or range"),
    "none": (["--launch", ","], "bad-launches", "names no launch"),
    "something else": (["--launch", "1", "--by", "hand"], "usage", "expected one of reference"),
}


@pytest.mark.parametrize(("words", "slug", "text"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(
    words: list[str], slug: str, text: str, wrapper: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = sorted(wrapper.parent.iterdir())
    assert main(["replace", str(wrapper), *words]) == 2
    said = capfd.readouterr().err
    assert f"error[{slug}]" in said
    assert text in said
    assert sorted(wrapper.parent.iterdir()) == before


def test_without_a_graph_it_is_refused(wrapper: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shutil.copy(wrapper, "output_code.py")
    assert main(["replace", "output_code.py", "--launch", "2", "--in-place"]) == 2
    said = capfd.readouterr().err
    assert "error[no-substitute]" in said
    assert "no graph of its wrapper is known" in said
    assert Path("output_code.py").read_bytes() == wrapper.read_bytes()


def test_cpp_is_refused(
    compiled_cpp: Callable[[str], Compiled], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "output_code.py"
    path.write_text(compiled_cpp("mlp").graphs[0].source)
    assert main(["replace", str(path), "--launch", "0", "--in-place"]) == 2
    assert "it is launched from C++" in capfd.readouterr().err


def test_a_graph_that_is_named(
    compiled: Callable[[str], Compiled], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    graph = compiled("mlp").graphs[0]
    path, folder = tmp_path / "output_code.py", tmp_path / "debug"
    path.write_text(graph.source)
    folder.mkdir()
    (folder / "fx_graph_transformed.py").write_text(graph.lowered)
    command = ["replace", str(path), "--launch", "1", "--graph", str(folder), "--check"]
    assert main(command) == 1
