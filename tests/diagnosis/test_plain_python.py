"""Which step is at fault where a compiled function differs from plain Python."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from rewriter.diagnosis import plain_python
from rewriter.diagnosis.verification.end_to_end import CallCheck
from rewriter.diagnosis.verification.types import Checked
from rewriter.dump.eager_calls import EagerCall
from rewriter.dump.reading import Dump

FORWARD = EagerCall("M", "model.py", 8, 0, "call", started=0, ended=2)
BACKWARD = EagerCall(
    "M", "model.py", 8, 0, "gradients", problems=("w is 2, in plain Python 1",), started=3, ended=5
)


def _run(name: str, started: float) -> Any:
    return SimpleNamespace(
        name=name, artifact="one.py", started=started, facts=SimpleNamespace(pid=0)
    )


@pytest.mark.parametrize(
    ("wrong", "step"), [([], "tracing"), (["run1"], "inductor"), (["run0"], "inductor")]
)
def test_a_gradient_follows_from_what_the_forward_saved(wrong: list[str], step: str) -> None:
    dump = cast("Dump", SimpleNamespace(runs=[_run("run0", 1), _run("run1", 4)]))
    output = cast("Checked", SimpleNamespace(agrees=True))
    checks = [CallCheck(name, "one.py", (output,)) for name in ("run0", "run1")]
    graphs = plain_python.Graphs(checks, wrong)
    (found,) = plain_python.of_calls([FORWARD, BACKWARD], graphs, dump).findings
    assert (found.step, found.run) == (step, "run1")


@pytest.mark.parametrize("backwards", [0, 2])
def test_gradients_are_the_same_only_where_there_are_any(backwards: int) -> None:
    dump = cast("Dump", SimpleNamespace(runs=[]))
    calls = [EagerCall("M", "model.py", 8, 0, "gradients", started=3, ended=5)] * backwards
    right = plain_python.of_calls([FORWARD, *calls], plain_python.Graphs([], []), dump).ruled_out
    assert right.endswith("the gradients of 2 are the same" if backwards else "update the same")


@pytest.mark.parametrize(
    ("ended", "why"), [(True, "compiled function was entered"), (False, "did not run to its end")]
)
def test_why_no_call_was_compared(ended: bool, why: str) -> None:
    dump = cast("Dump", SimpleNamespace(runs=[]))
    (note,) = plain_python.of_calls([], plain_python.Graphs([], []), dump, ended=ended).notes
    assert note.endswith(why)
