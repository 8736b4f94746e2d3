"""What is said of the outputs of calls that were compared with their graphs."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from rewriter.diagnosis.outputs import of_calls
from rewriter.verification.end_to_end import CallCheck, OutputCheck
from rewriter.verification.types import Comparison

RIGHT = OutputCheck("buf1", "add = aten.add(x)", Comparison(0, 32))
UNKNOWN = OutputCheck("buf2", "round = aten.round(x)", Comparison(0, 32, unsure=32))


def test_an_output_of_which_nothing_is_known_is_not_ruled_out() -> None:
    both = of_calls([CallCheck("rank0/run0", "c.py", (RIGHT, UNKNOWN))])
    assert both.ruled_out.startswith("wrong outputs: 1 output of 1 call are what")
    assert not both.outputs_agree
    assert of_calls([CallCheck("rank0/run0", "c.py", (RIGHT,))]).outputs_agree
    assert of_calls([CallCheck("rank0/run0", "c.py", (UNKNOWN,))]).ruled_out == ""
