"""`rewriter diff` of debug directories, logs of TORCH_TRACE and pages of tlparse."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import rewriter
from rewriter.cli import main
from rewriter.core.errors import DIFFERS, OK
from test_directories import DEBUG, LOG, TRACES, log_in


@pytest.fixture
def later(tmp_path: Path) -> Path:
    """The debug directory of the same program, run at another time by another process."""
    (run,) = DEBUG.iterdir()
    target = tmp_path / "later" / "run_2027_01_02_03_04_05_678901-pid_17"
    shutil.copytree(run, target)
    for file in target.rglob("fx_graph_runnable.py"):
        file.write_text(file.read_text().replace("/tmp/scratch", "/tmp/elsewhere"))
    (target / "torchdynamo").mkdir()
    (target / "torchdynamo" / "debug.log").write_text("at 03:04:05")
    return target.parent


def test_two_runs_of_a_program_are_the_same(
    later: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", "--json", str(DEBUG), str(later)]) == OK
    content = json.loads(capsys.readouterr().out)
    assert content["verdict"] == "identical"
    assert len(content["wrappers"]) == 4
    assert any("not compared" in note for note in content["notes"])
    (run_a,), (run_b,) = DEBUG.iterdir(), later.iterdir()
    assert rewriter.diff(run_a, run_b).verdict == "identical"


def test_a_wrapper_that_differs_counts(later: Path) -> None:
    changed = next(later.rglob("model__1_backward*/output_code.py"))
    data = changed.read_bytes()
    assert data.count(b"extern_kernels.mm(tangents_1") == 1
    changed.write_bytes(
        data.replace(b"extern_kernels.mm(tangents_1", b"extern_kernels.bmm(tangents_1")
    )
    found = rewriter.diff(DEBUG, later)
    assert found.verdict == "different"
    assert [one.name_a.split("/")[-2][:17] for one in found.wrappers if one.launches] == [
        "model__1_backward"
    ]
    changed.unlink()
    missing = rewriter.diff(DEBUG, later)
    assert missing.verdict == "different"
    assert (len(missing.only_a), missing.only_b) == (1, ())


@pytest.mark.parametrize(
    ("a", "b", "alone"),
    [
        (LOG, DEBUG, 0),
        (log_in(LOG), LOG, 0),
        (LOG, TRACES / "pages", 2),
        (TRACES / "pages", TRACES / "pages-plain", 0),
        (TRACES / "pages", DEBUG, 2),
    ],
    ids=["log-debug", "file-folder", "log-pages", "pages-plain", "pages-debug"],
)
def test_what_tells_of_one_program_is_paired(a: Path, b: Path, alone: int) -> None:
    found = rewriter.diff(a, b)
    assert {one.verdict for one in found.wrappers} == {"identical"}
    assert len(found.only_a) + len(found.only_b) == alone
    assert (found.verdict == "identical") == (not alone)


def test_the_pages_of_several_ranks(tmp_path: Path) -> None:
    """As `tlparse --all-ranks-html` lays them out."""
    for folder in ("a", "b"):
        for rank in (0, 1):
            shutil.copytree(TRACES / "pages", tmp_path / folder / f"rank_{rank}")
        (tmp_path / folder / "index.html").write_text(folder)
    found = rewriter.diff(tmp_path / "a", tmp_path / "b")
    assert (found.verdict, len(found.wrappers)) == ("identical", 4)
    assert found.wrappers[3].name_a == "rank_1/0_0_0/backward.py"


def test_a_changed_graph_in_two_logs(tmp_path: Path) -> None:
    """The AOT ID pairs what neither name nor text does."""
    text = log_in(LOG).read_bytes()
    log = tmp_path / "dedicated_log_torch_trace_zzz.log"
    log.write_bytes(text.replace(b'"frame_id": 0', b'"frame_id": 3'))
    assert rewriter.diff(LOG, tmp_path).verdict == "identical"
    (debug,) = DEBUG.iterdir()
    out = Path(shutil.copytree(debug, tmp_path / "debug"))
    changed = next(out.rglob("model__1_forward*/output_code.py"))
    changed.write_bytes(
        changed.read_bytes().replace(b"extern_kernels.addmm", b"extern_kernels.bmm", 1)
    )
    found = rewriter.diff(log, out)
    assert (found.only_a, found.only_b) == ((), ())
    names = [one.name_a for one in found.wrappers if one.verdict == "different"]
    assert names == ["3_1_0/forward.py"]
    assert main(["diff", str(log), str(out)]) == DIFFERS


def test_builds_of_a_cache_do_not_decide(tmp_path: Path) -> None:
    wrapper = next(DEBUG.rglob("model__0_forward*/output_code.py")).read_bytes()
    stem = "c" + "24" + "a" * 49
    for name in "ab":
        folder = tmp_path / name / "24"
        folder.mkdir(parents=True)
        (folder / f"{stem}.py").write_bytes(wrapper)
        (folder / f"{stem}.main.so").write_text(name)
        (folder.parent / "fxgraph").mkdir()
        (folder.parent / "fxgraph" / name).write_text(name)
    assert rewriter.diff(tmp_path / "a", tmp_path / "b").verdict == "identical"
