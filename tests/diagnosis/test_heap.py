"""A launch that a damaged heap ends is a victim: the C++ launches before it are suspects."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest

from rewriter.diagnosis import heap
from rewriter.diagnosis.findings import Finding
from rewriter.diagnosis.heap import _ARRAY, OwnArray, Watched, is_suspicious, own_arrays
from rewriter.diagnosis.ruling import Examined, rule
from rewriter.dump.reading import RunStep

COMPLAINT = "free(): invalid pointer"
ARRAY = "make_unique<float []>(32L)"
FACTS = SimpleNamespace(kind="cpp", scope="call", line=10, source_nodes=(), origins=())
CRASH = Finding("crash", "the program ended in launch #1", "shown by where the process ended")


@pytest.mark.parametrize(
    ("number", "kind", "state", "on_gpu", "message", "suspicious"),
    [
        (signal.SIGABRT, "cpp", "running", False, "", False),  # the user's abort(), an assertion
        (signal.SIGABRT, "fallback", "running", False, "", False),
        (signal.SIGSEGV, "cpp", "running", False, "", False),
        (signal.SIGSEGV, "extern_out", "running", True, "", False),
        (signal.SIGSEGV, "extern_out", "over", False, "", False),  # in code of the user
        (signal.SIGSEGV, "extern_out", "after", False, "", False),
        (signal.SIGKILL, "extern_out", "running", False, "", False),
        (signal.SIGABRT, "cpp", "running", False, COMPLAINT, True),
        (signal.SIGABRT, "extern_out", "over", False, COMPLAINT, True),
        (signal.SIGSEGV, "extern_out", "running", False, "", True),
    ],
)
def test_which_crashes_may_be_anothers_fault(
    number: int, kind: str, state: str, on_gpu: bool, message: str, suspicious: bool
) -> None:
    verdict: Any = SimpleNamespace(
        ended=SimpleNamespace(signal=number, message=message),
        launch=1,
        kind=kind,
        on_gpu=on_gpu,
        state=state,
    )
    assert is_suspicious(verdict) == suspicious
    verdict.launch = None
    assert not is_suspicious(verdict)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("auto buf = std::make_unique<float []>(1024L);", True),
        ("float tmp_buf[32];", True),
        ("alignas(64) int64_t tmp[16];", True),
        ("auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];", False),
        ("out_ptr0[x0] = tmp1;", False),
    ],
)
def test_arrays_of_a_kernels_own(source: str, found: bool) -> None:
    assert (_ARRAY.search(source) is not None) == found


def _run(name: str, number: int, sha256: str, kernels: list[str], pid: int = 1) -> Any:
    steps = [RunStep(i, i, 0, kernel, 0, 0) for i, kernel in enumerate(kernels)]
    return SimpleNamespace(
        name=name, number=number, rank=0, sha256=sha256, facts=SimpleNamespace(pid=pid),
        piece_words="", steps=steps, artifact=f"{sha256}.py",
        names=SimpleNamespace(lines={}, computes={}), launch_row=lambda launch: FACTS,
    )  # fmt: skip


def _verdict(run: str, number: int = signal.SIGABRT, message: str = COMPLAINT) -> Any:
    ended = SimpleNamespace(signal=number, message=message)
    return SimpleNamespace(
        run=run, ended=ended, launch=1, label="#1 b", kernel="b", kind="extern_out",
        on_gpu=False, state="running",
    )  # fmt: skip


@pytest.fixture
def dump(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Kernels `a` and `c` have arrays of their own."""
    monkeypatch.setattr(heap, "_arrays", lambda run: {"a": ARRAY, "c": ARRAY})
    runs = [
        _run("rank0/run0", 0, "other", ["c"], pid=2),
        _run("rank0/run1", 1, "forward", ["c", "d"]),
        _run("rank0/run2", 2, "forward", ["c", "d"]),
        _run("rank0/run3", 3, "backward", ["a", "b", "a"]),
        _run("rank0/run4", 4, "later", ["c"]),
    ]
    return SimpleNamespace(runs=runs)


def test_what_is_run_alone_is_each_kernel_with_an_array_once_the_last_ones_first(dump: Any) -> None:
    found = own_arrays([_verdict("rank0/run3")], dump)
    assert [(x.run.name, x.step.launch, x.title) for x in found] == [
        ("rank0/run3", 2, "#2 a"),
        ("rank0/run2", 0, "#0 c"),
    ]
    assert own_arrays([_verdict("rank0/run3", signal.SIGKILL)], dump) == ()


def _examined(dump: Any, verdict: Any, *watched: Watched) -> Examined:
    return heap.with_watched(Examined((CRASH,)), [verdict], dump, watched)


def test_a_kernel_that_was_seen_to_store_outside_of_its_array_is_the_finding(dump: Any) -> None:
    one = OwnArray(dump.runs[3], dump.runs[3].steps[0], ARRAY)
    seen = Watched(one, "writes element 32 of its own array of 32, x", "the values of the dump")
    diagnosis = rule([_examined(dump, _verdict("rank0/run3"), seen)])
    first, second = diagnosis.findings
    assert (first.kind, first.launch, first.certainty) == ("bounds", 0, "shown")
    assert first.headline.startswith("launch #0 a (line 10 of backward")
    assert "writes element 32 of its own array of 32, x; shown by AddressSan" in first.headline
    assert (second.what, second.symptom, second.text) == (CRASH.what, True, ())


def test_a_kernel_that_ran_clean_is_no_suspect(dump: Any) -> None:
    dump.runs = [_run("rank0/run3", 3, "backward", ["a", "b", "a"])]
    one = OwnArray(dump.runs[0], dump.runs[0].steps[0], ARRAY)
    examined = _examined(dump, _verdict("rank0/run3"), Watched(one, values="random values"))
    assert examined.ruled_out.endswith("under AddressSanitizer, #0 a on random values")
    (crash,) = examined.findings
    assert crash.text == ("suspect: #1 b",)
    # A fault has other causes: without a kernel that has an array, there is no suspect.
    fault = _verdict("rank0/run3", signal.SIGSEGV, "")
    assert _examined(dump, fault, Watched(one, values="random values")).findings == (CRASH,)


def test_a_kernel_that_could_not_be_run_stays_a_suspect_with_the_reason(dump: Any) -> None:
    one = OwnArray(dump.runs[3], dump.runs[3].steps[0], ARRAY)
    examined = _examined(dump, _verdict("rank0/run3"), Watched(one, unknown="there is no g++"))
    (crash,) = examined.findings
    assert crash.certainty == "possible"
    assert crash.text[0] == f"suspect: #0 a, which has an array of its own: {ARRAY}"
    assert COMPLAINT in crash.what
    (note,) = examined.notes
    assert note.startswith("#0 a has an array of its own")
    assert note.endswith("was not shown: there is no g++")


def test_a_program_that_aborts_by_itself_accuses_no_kernel(dump: Any) -> None:
    one = OwnArray(dump.runs[3], dump.runs[3].steps[0], ARRAY)
    own_abort = _verdict("rank0/run3", message="")
    for seen in (Watched(one, unknown="there is no g++"), Watched(one, values="random values")):
        assert _examined(dump, own_abort, seen).findings == (CRASH,)


def test_without_a_crash_all_stays_as_it_is(dump: Any) -> None:
    end = Examined(ruled_out="a crash or a hang: it ran to its end")
    assert heap.with_watched(end, [], dump, ()) == end
