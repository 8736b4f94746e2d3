"""Values that wait for those of the next launch have the fingerprints of those that do not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import rewriter
from rewriter.dump.reading import open_dump
from rewriter.execution.runner import RunRequest, run_wrapper

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.__version__.startswith("2.11"), reason="recorded with torch 2.11, which runs them"
    ),
]

RECORDED = Path(__file__).parents[2] / "fixtures/artifacts/cuda-torch2.11"
Values = dict[tuple[object, ...], str]


def fingerprints(
    path: Path, probes: str, folder: Path, tuned: Path, which: str | None = None
) -> Values:
    request = RunRequest(
        rewriter.open(path),
        selection=rewriter.select(probes, args=which),
        dump=folder,
        environment={"REWRITER_QUIET": "1"},
        tuned=tuned,
        output="quiet",
    )
    ran = run_wrapper(request)
    assert not ran.crashed, ran.ended.message
    (run,) = open_dump(folder).runs
    rows = [row for row in run.events() if getattr(row, "fingerprint", None)]
    return {(row.launch, row.phase, row.arg): row.fingerprint for row in rows}


@pytest.mark.parametrize("model", ["gpt", "mlp", "conv", "combo", "mutate"])
def test_fingerprints_are_those_of_launches_that_are_waited_for(model: str, tmp_path: Path) -> None:
    path = RECORDED / model / "python/output_code.py"
    if not path.is_file():
        pytest.skip("it was not recorded")
    tuned = tmp_path / "tuned.json"
    waiting = fingerprints(path, "hash", tmp_path / "waiting", tuned)
    at_once = fingerprints(path, "hash,sync", tmp_path / "at-once", tuned)
    assert len(waiting) > 1
    assert waiting.items() <= at_once.items()  # with `sync`, what was read is hashed, too


@pytest.mark.parametrize("model", ["gpt", "conv", "combo", "mutate"])
def test_what_is_measured_with_lines_about_memory_is_what_launches_left(
    model: str, tmp_path: Path
) -> None:
    """What such a line fills is measured before; with `sync` each launch is waited for."""
    path = RECORDED / model / "python/output_code.py"
    if not path.is_file():
        pytest.skip("it was not recorded")
    tuned = tmp_path / "tuned.json"
    probes = "bounds,poison,stale,hash"
    joined = fingerprints(path, probes, tmp_path / "joined", tuned, "ends")
    at_once = fingerprints(path, f"{probes},sync", tmp_path / "at-once", tuned, "ends")
    alone = fingerprints(path, "hash", tmp_path / "alone", tuned, "ends")
    assert len(joined) > 1
    assert joined == at_once
    # What nobody writes is filled, and is what it was otherwise.
    assert len(joined.items() & alone.items()) >= len(alone) * 0.9
