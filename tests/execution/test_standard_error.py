"""What a program said when it failed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rewriter.execution.standard_error import StandardError, exception

HEAD = "Traceback (most recent call last):\n"
FRAME = '  File "model.py", line 3, in <module>\n    f()\n    ~^^\n'


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ""),
        ("ValueError: only said\n", ""),
        (HEAD + FRAME, ""),
        ("step 1\n" + HEAD + FRAME + "ValueError: no\nmore\n", "ValueError: no"),
        (
            HEAD + FRAME + "KeyError: 1\n\nDuring …\n\n" + HEAD + FRAME + "ValueError\n",
            "ValueError",
        ),
        ("\x1b[35m" + HEAD + FRAME + "\x1b[1;35mValueError\x1b[0m: no\n", "ValueError: no"),
        (
            f"[rank1]: {HEAD}[rank1]:   File …\nother\n[rank1]: ValueError: no\n"
            + f"{HEAD}{FRAME}torch.distributed.ChildFailedError: \n",
            "ValueError: no",
        ),
    ],
    ids=["nothing", "no traceback", "cut", "plain", "chained", "coloured", "torchrun"],
)
def test_the_exception_that_ended_it(text: str, found: str) -> None:
    assert exception(text) == found


@pytest.mark.parametrize("shown", [True, False])
def test_it_is_handed_on_and_kept(shown: bool, capfd: pytest.CaptureFixture[str]) -> None:
    said = StandardError(shown=shown)
    with said.reading():
        subprocess.run([sys.executable, "-c", "1 / 0"], stderr=said.descriptor, check=False)
    assert exception(said.text) == "ZeroDivisionError: division by zero"
    assert ("ZeroDivisionError" in capfd.readouterr().err) == shown


def test_who_holds_it_open_is_not_waited_for() -> None:
    said = StandardError(shown=False)
    with said.reading():
        subprocess.run(
            ["sh", "-c", "echo said >&2; sleep 5 & :"], stderr=said.descriptor, check=True
        )
    assert said.text == "said\n"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(said.descriptor)
