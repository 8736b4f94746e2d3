"""Kernels that a user wrote, against the function that the user names."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from artifacts import get
from graph_calls import saved_row
from rewriter.artifact.opening import open_artifact
from rewriter.core.errors import RewriterError
from rewriter.diagnosis.verification.bounded import UncheckedError
from rewriter.diagnosis.verification.received import LaunchValues
from rewriter.diagnosis.verification.references import (
    Reference,
    check_reference,
    reference_of,
)
from rewriter.dump.documents import RunFacts
from rewriter.dump.reading import RunDump
from rewriter.locate.types import Launch

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
    launches = open_artifact(get("cuda-torch2.11/usertriton").path).only.launches
    return next(one for one in launches if one.kernel == "add_k_0")


def _check(name: str, launch: Launch, folder: Path) -> bool:
    file = folder / "functions.py"
    file.write_text(FUNCTIONS)
    torch.manual_seed(0)
    x, y = torch.randn(16, 16), torch.randn(16, 16)
    given = {name: saved_row(folder, name, x, "before") for name, x in (("arg0_1", x), ("buf1", y))}
    written = {"buf0": saved_row(folder, "buf0", x + 2.5 * y)}
    values = LaunchValues(RunDump(folder, 0, 0, RunFacts()), launch, given, written)
    found = check_reference(Reference.read(f"add_k*={file}:{name}"), values)
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
