"""`rewriter replace` on wrappers and a package that are compiled here: a hot-fix, and back."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

import programs
from capture import Compiled, Exported, package_exported
from harness import load
from replacements import is_close, left_by
from rewriter.cli import main
from test_bisect import CHECK
from test_verify import compiled_cache, plant, wrapper

__all__ = ["compiled_cache", "wrapper"]  # fixtures

pytestmark = pytest.mark.usefixtures("warm_python")
OPERATORS = Path(__file__).parents[2] / "fixtures/models.py"
FAULT = "another operator"  # in launch 2


def passes() -> bool:
    Path("check.py").write_text(CHECK)
    return programs.run(sys.executable, "check.py", code=None).returncode == 0


def test_a_hot_fix_in_the_cache_and_back(wrapper: Path, capfd: pytest.CaptureFixture[str]) -> None:
    plant(wrapper, FAULT)
    planted = wrapper.read_bytes()
    assert not passes()
    made = programs.document("replace", str(wrapper), "--launch", "2", "--in-place")
    assert (made["launches"], made["changed"], made["unmeasured"]) == ([2], True, "")
    assert made["before"] > 0
    assert made["seconds"] > 0
    assert Path(made["backup"]).read_bytes() == planted
    assert passes()
    listed = programs.document("list", str(wrapper))
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


def graph_in(folder: Path, lowered: str) -> str:
    """A directory such as TORCH_COMPILE_DEBUG=1 leaves."""
    folder.mkdir()
    (folder / "fx_graph_transformed.py").write_text(lowered)
    return str(folder)


def test_a_cpp_wrapper_and_back(
    compiled_cpp: Callable[[str], Compiled],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = compiled_cpp("customop").graphs[0]
    path = tmp_path / "output_code.py"
    # Another number in the first kernel: the call is wrong until that launch is replaced.
    wrong = graph.source.replace("static_cast<float>(2.0)", "static_cast<float>(2.5)")
    assert wrong != graph.source
    path.write_text(wrong)
    given = ["--graph", graph_in(tmp_path / "debug", graph.lowered), "--import", str(OPERATORS)]
    made = programs.document("replace", str(path), "--launch", "0", *given, "--in-place")
    assert (made["launches"], made["unmeasured"]) == ([0], "")
    expected = load(graph.source.encode(), tmp_path).call(list(graph.args))
    got = load(path.read_bytes(), tmp_path).call(list(graph.args))
    assert all(map(is_close, expected, got))
    # What is raised there arrives as itself, also where torch would catch it or end the process.
    module = load(path.read_bytes(), tmp_path)
    function = module._rw_reference_0
    for error in (ValueError("cause"), KeyboardInterrupt(), SystemExit(3)):
        monkeypatch.setattr(module, "_rw_reference_0", Mock(side_effect=error))
        with pytest.raises(type(error)) as caught:
            module.call(list(graph.args))
        assert caught.value is error
    monkeypatch.setattr(module, "_rw_reference_0", function)
    assert all(map(is_close, expected, module.call(list(graph.args))))
    assert main(["list", str(path)]) == 0
    assert "1 launch replaced (#0 " in capfd.readouterr().err
    assert main(["instrument", str(path), "--replace"]) == 2
    assert main(["strip", str(path), "--in-place"]) == 0
    assert path.read_text() == wrong


def test_a_package_and_back(
    exported: Callable[[str], Exported], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model, path = exported("customop"), tmp_path / "model.pt2"
    package_exported({"model": model}, path)
    before = path.read_bytes()
    torch.save(list(model.inputs), tmp_path / "args.pt")
    assert main(["replace", str(path), "--launch", "5", "--in-place"]) == 2
    assert "no graph of its wrapper is known" in capfd.readouterr().err
    given = ["--graph", graph_in(tmp_path / "debug", model.lowered)]
    given += ["--import", str(OPERATORS)]
    assert main(["replace", str(path), "--launch", "4", *given, "--in-place"]) == 2
    assert "returns more than tensors" in capfd.readouterr().err
    # A wrapper without its package has no file for the operators.
    wrapper = ["replace", str(model.wrapper), "--launch", "5", *given[:2]]
    assert main(wrapper) == 2
    assert "belongs to a package" in capfd.readouterr().err
    given += ["--args", str(tmp_path / "args.pt"), "--in-place"]
    made = programs.document("replace", str(path), "--launch", "1,5", *given)
    assert (made["launches"], made["unmeasured"]) == ([1, 5], "")
    assert Path(made["backup"]).read_bytes() == before
    plain = left_by(Path(made["backup"]), model.inputs)
    assert all(map(is_close, plain, left_by(path, model.inputs)))
    listed = programs.document("list", str(path))
    assert [x["index"] for x in listed["launches"] if x.get("replaced")] == [1, 5]
    assert main(["instrument", str(path), "--replace"]) == 2
    assert "has launches replaced (#1, #5)" in capfd.readouterr().err
    assert main(["strip", str(path), "--in-place"]) == 0
    assert path.read_bytes() == before


def test_a_graph_that_is_named(
    compiled: Callable[[str], Compiled], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    graph = compiled("mlp").graphs[0]
    path = tmp_path / "output_code.py"
    path.write_text(graph.source)
    folder = graph_in(tmp_path / "debug", graph.lowered)
    command = ["replace", str(path), "--launch", "1", "--graph", folder, "--check"]
    assert main(command) == 1
    debug = Path(folder)
    (debug / "output_code.py").write_text(
        graph.source.replace("gelu", "silu")
    )  # others are its own
    assert main([*command[:-2], str(debug / "fx_graph_transformed.py"), "--check"]) == 1
    # It is that of another wrapper: by its inputs, or by the code with it.
    before, other = path.read_bytes(), compiled("mutate").graphs[0]
    graphs = {
        "its inputs are arg0_1, arg1_1, arg2_1; the wrapper has arg0_1, arg1_1, ": other.lowered,
        "its input arg3_1 is f32[17, 64][64, 1]cpu; in the wrapper it has the sizes (16, 64)": (
            graph.lowered.replace("f32[16, 64]", "f32[17, 64]")
        ),
        "the output_code.py with it has kernels of ": graph.lowered,
    }
    (debug / "output_code.py").write_text(other.source)
    for why, text in graphs.items():
        (debug / "fx_graph_transformed.py").write_text(text)
        assert main([*command[:-1], "--in-place"]) == 2
        said = capfd.readouterr().err
        assert "error[no-graph]" in said
        assert f"holds the graph of another wrapper than {path}: {why}" in said
    assert path.read_bytes() == before
