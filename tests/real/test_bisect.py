"""`rewriter bisect` on a program that is compiled here, with and without faults."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import programs
from rewriter.cli import main
from rewriter.diagnosis.verification.replacing import insert_cpp
from test_verify import FAULTS, PROGRAM, compiled_cache, plant, wrapper

__all__ = ["compiled_cache", "wrapper"]  # fixtures

pytestmark = pytest.mark.usefixtures("warm_python")
exhaustive = pytest.mark.exhaustive

# The same model, so that its wrapper is found in the cache.
CHECK = (
    PROGRAM.partition("torch.manual_seed(0)")[0]
    + """
import copy

torch.manual_seed(0)
model = Model()
given = torch.randn(40, 32), torch.randint(0, 10, (40,))
with torch.no_grad():
    right = copy.deepcopy(model)(*given)
    found = torch.compile(model)(*given)
for one, other in zip(right, found):
    torch.testing.assert_close(other.float(), one.float(), rtol=1e-5, atol=2e-6)
"""
)

# Trained, and with C++ wrappers.
TRAINED = (
    CHECK.replace("with torch.no_grad():", "if True:")
    .replace("import copy\n", "import copy\nconfig.cpp_wrapper = True\n")
    .replace("right = copy.deepcopy(model)(", "eager = copy.deepcopy(model)\n    right = eager(")
    + """
for outputs in right, found:
    (outputs[0].sum() + outputs[1].float().pow(2).sum()).backward()
for one, other in zip(eager.parameters(), model.parameters()):
    torch.testing.assert_close(other.grad, one.grad, rtol=1e-4, atol=2e-5)
"""
)


@pytest.fixture
def check(wrapper: Path) -> list[str]:
    """The command of a program that fails if its wrapper is wrong."""
    Path("check.py").write_text(CHECK)
    return ["--", sys.executable, "check.py"]


def bisected(
    capfd: pytest.CaptureFixture[str], *command: str, code: int
) -> tuple[dict[str, Any], str]:
    capfd.readouterr()
    return programs.document("bisect", *command, code=code), capfd.readouterr().err


@pytest.mark.parametrize(
    "name",
    ["another operator", *(pytest.param(x, marks=exhaustive) for x in FAULTS if x[0] != "a")],
)
def test_the_launch_that_is_wrong(
    name: str, check: list[str], wrapper: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = wrapper.read_bytes()
    plant(wrapper, name)
    planted = wrapper.read_bytes()
    found, said = bisected(capfd, *check, code=1)
    (one,) = found["launches"]
    assert (one["launch"], one["wrapper"]) == (FAULTS[name][2], str(wrapper))
    assert any("model.py:" in line or "check.py:" in line for line in one["lines"])
    assert found["next"] == (
        f"rewriter replace {wrapper} --launch {one['launch']} --by reference --in-place"
    )
    assert found["never_replaced"] == []
    # Five launches: two runs, halves, one more where no half had the launch alone, and as it is.
    assert found["candidates"] == 5
    assert len(found["runs"]) <= 2 + 3 + 3
    assert [x["what"] for x in found["runs"][-2:]] == ["as it is, once more"] * 2
    assert said.count("run ") == len(found["runs"])
    assert wrapper.read_bytes() == planted != before


@exhaustive
def test_cpp_wrappers_are_compiled_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("REWRITER_CACHE_DIR", str(tmp_path / "kept"))
    Path("check.py").write_text(TRAINED)
    check = ["--", sys.executable, "check.py"]
    found, _ = bisected(capfd, *check, code=0)
    assert found["launches"] == []
    wrappers = [x for x in Path("cache").glob("??/c*.py") if "CppWrapper" in x.read_text()]
    (forward,) = (x for x in wrappers if FAULTS["another operator"][0] in x.read_text())
    plant(forward, "another operator")
    found, _ = bisected(capfd, *check, code=1)
    (one,) = found["launches"]
    assert (one["launch"], Path(one["wrapper"]).name) == (2, forward.name)
    assert (found["candidates"], found["never_replaced"], len(wrappers)) == (13, [], 2)
    built = [x for x in Path("kept/wrappers").glob("??/*.cpp") if "_rw_reference" in x.read_text()]
    assert len(built) == len(wrappers)
    assert list(Path("kept/wrappers").glob("??/*.py")) == []  # what torch compiled is in its cache
    # C++ that does not compile with our lines accuses nothing.
    monkeypatch.setattr(insert_cpp, "CALL", "This is no C++.")
    assert main(["bisect", *check]) == 3
    said = capfd.readouterr().err
    assert "error[compile-failed]" in said
    assert "its C++ does not compile with lines of ours" in said


def test_two_that_are_wrong_together(
    check: list[str], wrapper: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plant(wrapper, "another operator", "wrong strides")
    found, _ = bisected(capfd, *check, code=1)
    assert [one["launch"] for one in found["launches"]] == [1, 2]
    assert len(found["runs"]) <= 2 * 2 * (1 + 3)


def test_the_outputs_of_a_call_decide(
    check: list[str], wrapper: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    head = CHECK.partition("    found = ")[0]
    Path("right.py").write_text(f"{head}    torch.save([None, right[1]], 'right.pt')\n")
    programs.run(sys.executable, "right.py")
    plant(wrapper, "another operator")
    Path("check.py").write_text(CHECK.partition("for one, other")[0])  # it compares nothing
    found, said = bisected(capfd, *check, code=0)
    assert (found["launches"], found["next"]) == ([], "")
    assert [one["passed"] for one in found["runs"]] == [True]
    assert "run 1: as it is" in said
    found, _ = bisected(capfd, "--expected", "right.pt", *check, code=1)
    assert [one["launch"] for one in found["launches"]] == [2]
    assert found["runs"][0]["outcome"] == "fails: its outputs are not the expected ones"
    torch.save([torch.zeros(3)], "other.pt")
    assert main(["bisect", "--expected", "other.pt", *check]) == 2
    assert "error[bad-expected]" in capfd.readouterr().err


def test_a_program_that_fails_by_chance_accuses_nothing(
    check: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    """It fails in every other run."""
    chance = "import os\nopen('count', 'a').write('x')\nsys.exit(os.path.getsize('count') % 2)\n"
    Path("check.py").write_text(f"{CHECK}\n{chance}")
    found, _ = bisected(capfd, *check, code=1)
    assert found["launches"] == []
    assert "passes in another" in found["verdict"]


def test_what_no_launch_explains(check: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    Path("check.py").write_text(f"{CHECK}\nsys.exit(3)\n")
    found, _ = bisected(capfd, *check, code=1)
    assert found["launches"] == []
    assert [one["outcome"] for one in found["runs"]] == ["fails: exit code 3"] * 2
    assert found["verdict"].startswith("verdict: no launch: with all 5 launches replaced")


def test_what_fails_in_the_place_of_a_launch_is_said(
    check: list[str],
    wrapper: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from rewriter.diagnosis.verification.replacing import substitutes

    monkeypatch.setattr(substitutes._Scope, "_as_node", lambda _, text, layout, node: f"{text}[:1]")
    plant(wrapper, "another operator")
    found, _ = bisected(capfd, *check, code=1)
    assert found["launches"] == []
    (reason,) = {x["reason"].partition(":")[0] for x in found["never_replaced"]}
    assert reason == "what stands in its place failed"


def test_wrappers_that_differ_from_run_to_run(
    check: list[str],
    wrapper: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    # As those of frozen weights, whose addresses stand in a comment.
    changed = f"import os\nopen({str(wrapper)!r}, 'a').write(f'# {{os.getpid()}}\\n')\n"
    Path("check.py").write_text(f"{changed}{CHECK}\nsys.exit(3)\n")
    assert main(["bisect", *check]) == 2
    assert "error[no-wrapper-matches]" in capfd.readouterr().err


@pytest.mark.parametrize("words", [[], ["output_code.py"], ["a", "--", "python", "x.py"]])
def test_it_takes_a_program(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bisect", *words]) == 2
    assert "behind --" in capfd.readouterr().err
