"""Kernels that a user wrote, against the function that the user names."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from rewriter.artifact.opening import open_artifact  # noqa: E402
from rewriter.core.errors import RewriterError  # noqa: E402
from rewriter.diagnosis.verification.bounded import UncheckedError  # noqa: E402
from rewriter.diagnosis.verification.received import LaunchValues  # noqa: E402
from rewriter.diagnosis.verification.references import (  # noqa: E402
    Reference,
    check_reference,
    reference_of,
)
from rewriter.dump.documents import RunFacts  # noqa: E402
from rewriter.dump.reading import RunDump  # noqa: E402
from rewriter.dump.rows import TensorRow  # noqa: E402
from rewriter.locate.types import Launch  # noqa: E402

_WRAPPER = (
    (Path(__file__).parents[3] / "fixtures" / "artifacts" / "cuda-torch2.11" / "usertriton")
    / "python"
    / "output_code.py"
)
FUNCTIONS = """
def right(x, y):
    return x + 2.5 * y

def wrong(x, y):
    return x + 2.501 * y

def two(x, y):
    return x, y

def broken(x, y):
    raise ValueError("no")
"""


@pytest.fixture
def launch() -> Launch:
    launches = open_artifact(_WRAPPER).only.launches
    return next(one for one in launches if one.kernel == "add_k_0")


def _check(name: str, launch: Launch, folder: Path) -> bool:
    file = folder / "functions.py"
    file.write_text(FUNCTIONS)
    torch.manual_seed(0)
    x, y = torch.randn(16, 16), torch.randn(16, 16)
    rows: dict[str, dict[str, TensorRow]] = {"before": {}, "after": {}}
    values = {"arg0_1": x, "buf1": y, "buf0": x + 2.5 * y}
    for argument, tensor in values.items():
        phase = "after" if argument == "buf0" else "before"
        torch.save(tensor, folder / f"{argument}.pt")
        rows[phase][argument] = TensorRow(
            launch=1, phase=phase, arg=argument, role="out" if phase == "after" else "in",  # type: ignore[arg-type]
            dtype="float32", shape=(16, 16), stride=(16, 1), device="cuda:0", file=f"{argument}.pt",
        )  # fmt: skip
    reference = Reference.read(f"add_k*={file}:{name}")
    run = RunDump(folder, 0, 0, RunFacts())
    found = check_reference(reference, LaunchValues(run, launch, rows["before"], rows["after"]))
    assert [one.arg for one in found] == ["buf0"]
    return found[0].comparison.agrees


def test_a_kernel_is_judged_by_the_function_of_the_user(launch: Launch, tmp_path: Path) -> None:
    assert _check("right", launch, tmp_path)
    assert not _check("wrong", launch, tmp_path)


@pytest.mark.parametrize(
    ("name", "problem"), [("two", "gives 2 tensors, and it wrote 1"), ("broken", "ValueError: no")]
)
def test_a_function_that_does_not_fit(
    name: str, problem: str, launch: Launch, tmp_path: Path
) -> None:
    with pytest.raises(UncheckedError, match=problem):
        _check(name, launch, tmp_path)


@pytest.mark.parametrize("text", ["add_k", "add_k=", "add_k=math", "=math:sin", "k=no_such:f",
                                  "k=math:no_such", "k=missing.py:f"])  # fmt: skip
def test_a_reference_that_cannot_be_read(text: str) -> None:
    with pytest.raises(RewriterError) as caught:
        Reference.read(text)
    assert caught.value.slug == "bad-reference"


def test_the_last_reference_that_names_a_kernel_counts() -> None:
    references = [Reference.read("*=math:sin"), Reference.read("add_k_?=math:cos")]
    chosen = [reference_of(references, name) for name in ("add_k_0", "mul_k_1")]
    assert [one.text for one in chosen if one] == ["math:cos", "math:sin"]
