"""What a program said when it failed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from rewriter.core.exit_status import ExitStatus
from rewriter.execution.standard_error import StandardError, complaint, exception, failed_check

HEAD = "Traceback (most recent call last):\n"
FRAME = '  File "model.py", line 3, in <module>\n    f()\n    ~^^\n'
AT = " at model.py:3, outside of compiled code"
# As in compiled code that a library calls, and while it is compiled; innermost last.
LIBRARY = '  File "/v/site-packages/torch/%s.py", line 7, in call\n'
USER_CODE = f'from user code:\n   File "/a/net.py", line 8, in forward\n    f()\n{LIBRARY % "nn"}'
# What a process raises for its DataLoader's worker.
CAUGHT = "KeyError: Caught KeyError in DataLoader worker process 0.\n"
RERAISED = f"{HEAD}{FRAME}{LIBRARY % '_utils'}{CAUGHT}Original {HEAD}"
WRAPPER = f'  File "/c/xy/c{51 * "a"}.py", line 33, in call\n'

BEGUN = HEAD + FRAME
ENDS = {
    "nothing": ("", ""),
    "no traceback": ("ValueError: only said\n", ""),
    "cut": (BEGUN, ""),
    "plain": (f"step 1\n{BEGUN}ValueError: no\nmore\n", f"ValueError: no{AT}"),
    "chained": (f"{BEGUN}KeyError: 1\n\nDuring …\n\n{BEGUN}ValueError\n", f"ValueError{AT}"),
    "coloured": (f"\x1b[35m{BEGUN}\x1b[1;35mValueError\x1b[0m: no\n", f"ValueError: no{AT}"),
    "torchrun": (
        f"[rank1]: {HEAD}[rank1]:   File …\nother\n[rank1]: ValueError: no\n"
        f"{BEGUN}torch.distributed.ChildFailedError: \n", "ValueError: no",
    ),
    "compiled": (
        BEGUN + LIBRARY % "nn" + WRAPPER + LIBRARY % "_ops" + "ValueError: no\n",
        "ValueError: no at model.py:3, in compiled code, caaaaaaaaaaaaa, line 33",
    ),
    "compiling": (
        BEGUN + LIBRARY % "_inductor/compile_fx" + "E: CppCompileError: C++ compile "
        "error\n\nCommand:\ng++\n\nOutput:\na.cpp:3:9: error: no 'x' here\na.cpp:4: error: y\n",
        "E: CppCompileError: C++ compile error: no 'x' here while compiling what is "
        "called at model.py:3",
    ),
    "backend": (
        BEGUN + LIBRARY % "_inductor/compile_fx" + "torch.BackendCompilerFailed: "
        "backend='inductor' raised:\nRuntimeError: no grad\n\nSet TORCHDYNAMO_VERBOSE=1\n",
        "torch.BackendCompilerFailed: backend='inductor' raised: RuntimeError: no grad while "
        "compiling what is called at model.py:3",
    ),
    "library": (HEAD + LIBRARY % "run" + "ValueError: no\n", "ValueError: no"),
    "traced": (
        BEGUN + LIBRARY % "_dynamo/exc" + "torch.TorchRuntimeError: no\n  Explanation: "
        f"linear(x): got RuntimeError('no [8, 17]')\n\n{USER_CODE}\nSet TORCH_LOGS\n",
        "torch.TorchRuntimeError: no: RuntimeError('no [8, 17]') while compiling net.py:8 in "
        "forward",
    ),
    "not read": (
        '  File "/a/b.py", line 2\n    f(\n     ^\nSyntaxError: no\n', "SyntaxError: no at b.py:2",
    ),
    "late": (
        f"{BEGUN}torch.AcceleratorError: CUDA error: an illegal memory access\n",
        "torch.AcceleratorError: CUDA error: an illegal memory access (noticed at model.py:3)",
    ),
    "at once": (
        f"{BEGUN}RuntimeError: CUDA error: CUBLAS_STATUS_NOT_SUPPORTED\n",
        f"RuntimeError: CUDA error: CUBLAS_STATUS_NOT_SUPPORTED{AT}",
    ),
    "of a worker": (
        f"{RERAISED}{LIBRARY % 'fetch'}  File \"/a/rows.py\", line 8, in get\nKeyError: 'x'\n",
        "KeyError: 'x' at rows.py:8 in get, outside of compiled code",
    ),
    "of a worker's library": (
        f"{RERAISED}{LIBRARY % 'collate'}RuntimeError: no\n", f"RuntimeError: no{AT}",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "found"), ENDS.values(), ids=ENDS)
def test_the_exception_that_ended_it(text: str, found: str) -> None:
    assert said(text) == found


def said(text: str) -> str:
    """The exception that a text ends in, as one line."""
    raised = exception(text)
    return str(raised.of(ExitStatus.of(1))) if raised else ""


@pytest.mark.parametrize("shown", [True, False])
def test_it_is_handed_on_and_kept(shown: bool, capfd: pytest.CaptureFixture[str]) -> None:
    heard = StandardError(shown=shown)
    with heard.reading():
        subprocess.run([sys.executable, "-c", "1 / 0"], stderr=heard.descriptor, check=False)
    assert said(heard.text).startswith("ZeroDivisionError: division by zero")
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


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ""),
        ("step 1\ndouble free() is called here\n", ""),
        ("terminate called after throwing an instance of 'c10::Error'\n", ""),
        ("python: k.cpp:3: void f(): Assertion `x' failed.\n", ""),
        ("malloc(): corrupted top size\n", "malloc(): corrupted top size"),
        ("step 1\nfree(): invalid pointer\nFatal Python error\n", "free(): invalid pointer"),
        ("double free or corruption (!prev)\n", "double free or corruption (!prev)"),
        ("corrupted size vs. prev_size\n", "corrupted size vs. prev_size"),
        ("*** stack smashing detected ***\n", "*** stack smashing detected ***"),
    ],
)  # fmt: skip
def test_what_an_allocator_complained_of(text: str, found: str) -> None:
    assert complaint(text) == found


CHECK = "  what():  kernel, /c/ab.main.cpp:50, index out of bounds: 0 <= tmp2 < 100L\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("free(): invalid pointer\n", ""),
        ("IndexError: list index out of bounds\n", ""),
        (CHECK + 20 * "step\n", ""),
        (f"terminate called after …\n{CHECK}", "index out of bounds: 0 <= tmp2 < 100L"),
        (f"RuntimeError: {CHECK[:-1]}", "index out of bounds: 0 <= tmp2 < 100L"),
    ],
)  # fmt: skip
def test_a_check_that_failed_in_a_kernel(text: str, found: str) -> None:
    assert failed_check(text) == found


def test_what_was_caught_did_not_end_it() -> None:
    """Python exits with 1 after an exception: a program that exits with another code chose it."""
    heard = StandardError(shown=False)
    with heard.reading():
        os.write(heard.descriptor, f"{HEAD}{FRAME}ValueError: no\n".encode())
    ended = heard.explained(ExitStatus.of(1))
    assert (ended.message, ended.place, ended.scope) == ("ValueError: no", AT.strip(), "outside")
    assert heard.explained(ExitStatus.of(3)) == ExitStatus.of(3)


def test_only_an_abort_is_explained() -> None:
    heard = StandardError(shown=False)
    with heard.reading():
        os.write(heard.descriptor, b"free(): invalid pointer\n")
    aborted = ExitStatus.of(-signal.SIGABRT)
    assert heard.explained(aborted).message == "free(): invalid pointer"
    assert str(heard.explained(aborted)) == "signal SIGABRT"
    refused = StandardError(shown=False)
    with refused.reading():
        os.write(refused.descriptor, CHECK.encode())
    ended = refused.explained(aborted)
    assert (ended.message, ended.check) == ("", "index out of bounds: 0 <= tmp2 < 100L")
    for other in (ExitStatus.of(-signal.SIGSEGV), ExitStatus.of(1), ExitStatus.of(0)):
        assert heard.explained(other) == other
