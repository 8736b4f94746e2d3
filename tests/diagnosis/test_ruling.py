"""What a diagnosis makes of what was observed: the table of decisions."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from launch_facts import checked, crashed, facts
from rewriter.commands._diagnosis_text import page
from rewriter.core.exit_status import ExitStatus
from rewriter.diagnosis.findings import Finding, FindingKind
from rewriter.diagnosis.outputs import of_calls
from rewriter.diagnosis.ruling import (
    Examined,
    of_end,
    of_nonfinite,
    of_verification,
    rule,
    without_effect,
)
from rewriter.diagnosis.verdict import CrashVerdict, NonFiniteState, NonFiniteVerdict, StoppedState
from rewriter.diagnosis.verdict_values import Producer
from rewriter.diagnosis.verification.end_to_end import CallCheck
from rewriter.diagnosis.verification.text import AGAINST
from rewriter.diagnosis.verification.types import (
    Checked,
    Comparison,
    LaunchCheck,
    Outcome,
    Route,
    Verification,
)
from rewriter.dump.names import SourceLine

LINE = SourceLine("model.py", 9, "forward", "h = gelu(x)")


def verdict(state: NonFiniteState, launch: int = 2) -> NonFiniteVerdict:
    about = {"launch": launch, "kernel": "cpp_fused_log_2", "lines": (LINE,)}
    return NonFiniteVerdict(state=state, **facts(rank=0, pid=1, **about))


def crash(state: StoppedState, ended: ExitStatus, launch: int = 2) -> CrashVerdict:
    about = {"launch": launch, "kernel": "cpp_fused_log_2", "lines": (LINE,)}
    return crashed(state=state, ended=ended, **about)


def check(launch: int, outcome: Outcome, reason: str = "") -> LaunchCheck:
    wrong = 5 * (outcome == "differs")
    comparison = Comparison(wrong, 32, at=(1, 2), expected=1.0, got=1.5, allowed=1e-6, why="sums")
    results = () if outcome == "unchecked" else (Checked("buf1", "log = aten.log(x)", comparison),)
    about = {"launch": launch, "kernel": "cpp_fused_log_2", "lines": (LINE,)}
    return checked(outcome=outcome, reason=reason, results=results, **about)


def finding(kind: FindingKind, launch: int | None, **more: object) -> Finding:
    base = Finding(kind, "is wrong", "shown by a test", run="rank0/run0", launch=launch)
    return replace(base, **more)  # type: ignore[arg-type]


ENDED = ExitStatus(0)
CRASHED = ExitStatus(None, signal=11)
AGREE = Verification((check(0, "agrees"), check(2, "agrees")))
DIFFER = Verification((check(0, "agrees"), check(2, "differs")))
UNKNOWN = Verification((check(0, "agrees"), check(2, "unchecked", "random numbers")))


def test_nothing_wrong_is_ruled_out_with_counts() -> None:
    nan = of_nonfinite((), AGREE, launches=2, is_random=False)
    diagnosis = rule([of_end(ENDED, ()), nan, of_verification(UNKNOWN)])
    assert diagnosis.finding is None
    assert page(diagnosis) == [
        "diagnosis: only 1 of 2 launches (50%) could be checked; nothing wrong was found in what "
        "was",
        "ruled out:",
        "  a crash or a hang: it ran to its end",
        "  NaN: no value of 2 launches has one",
        "  wrong kernels: 2 launches: 1 computes what it claims to; 1 could not be checked: "
        "1 (random numbers)",
        "not checked:",
        "  #2 cpp_fused_log_2 (model.py:9): random numbers",
    ]


def test_the_first_line_says_how_many_calls_were_checked() -> None:
    whole = rule([Examined(checked=6, launches=6)])
    assert whole.headline == "nothing wrong was found; all launches were checked"
    some = replace(whole, calls=(3, 6)).headline
    assert some == "nothing wrong was found; all launches of 3 of 6 calls were checked"
    assert rule([Examined(outputs=2, compared=2)]).headline == (
        "nothing wrong was found: 2 outputs are as expected"
    )


def test_a_suspicion_is_ruled_out_for_several_wrappers_in_one_line() -> None:
    many = [Examined(ruled_out=f"stale memory: {name} reads none") for name in "abcde"]
    lines = page(rule([of_end(ENDED, ()), *many]))
    assert lines[2:] == [
        "  a crash or a hang: it ran to its end",
        "  stale memory: a reads none; b reads none; c reads none; and so for 2 more",
    ]
    alike = [Examined(ruled_out="a missing launch: its kernel is launched") for _ in range(3)]
    assert page(rule(alike))[2] == "  a missing launch: its kernel is launched (3 wrappers)"


@pytest.mark.parametrize(
    ("examined", "kind", "words"),
    [
        pytest.param(
            of_end(CRASHED, (crash("running", CRASHED),)), "crash",
            "the program ended in launch #2 cpp_fused_log_2 (line 30): signal SIGSEGV "
            "(model.py:9); shown by where the process ended", id="crash",
        ),
        pytest.param(
            of_end(ExitStatus(None, timed_out=True), ()), "hang",
            "stopped at the time limit, while no recorded launch was running", id="hang",
        ),
        pytest.param(
            of_nonfinite((verdict("made"),), UNKNOWN, launches=2, is_random=False), "nan",
            "launch #2 cpp_fused_log_2 (line 30) makes the first NaN", id="nan",
        ),
        pytest.param(
            of_verification(DIFFER), "wrong",
            "launch #2 cpp_fused_log_2 (line 30 of c, model.py:9) does not compute what it claims: "
            "5 of 32 elements of buf1 differ by more than rounding explains; shown by the graph",
            id="wrong",
        ),
    ],
)  # fmt: skip
def test_the_sentence_says_which_launch_and_how_it_is_known(
    examined: Examined, kind: str, words: str
) -> None:
    diagnosis = rule([examined])
    assert diagnosis.finding is not None
    assert diagnosis.finding.kind == kind
    assert words in diagnosis.headline


def test_what_raised_outside_of_launches_is_no_launch() -> None:
    place = "at train.py:3, outside of compiled code"
    raised = ExitStatus(1, message="ValueError: no", place=place, scope="outside")
    for ended in ([], [crash("over", raised)]):
        diagnosis = rule([of_end(raised, ended)])
        assert page(diagnosis) == [
            "diagnosis: the program raised ValueError: no at train.py:3, outside of compiled code; "
            "shown by its traceback"
        ]
        assert diagnosis.level == "error"
    hung = ExitStatus(None, timed_out=True, message="stopped", place="at a.py:6", scope="outside")
    assert page(rule([of_end(hung, [crash("over", hung)])])) == [
        "diagnosis: stopped at a.py:6; shown by how it ended"
    ]
    left = ExitStatus(3)
    assert page(rule([of_end(left, [crash("over", left)])]))[0] == (
        "diagnosis: the program ended outside of launches, after launch #2 cpp_fused_log_2 "
        "(line 30), the last one of its call: exit code 3; shown by where the process ended"
    )
    # Another rank waits in a launch meanwhile: that follows from it.
    both = rule([of_end(raised, [crash("waiting", raised)])]).findings
    assert [(one.launch, one.symptom) for one in both] == [(None, False), (2, True)]
    place = "at train.py:3, in compiled code, c, line 30"
    within = replace(raised, place=place, scope="compiled")
    (one,) = rule([of_end(within, [crash("running", within)])]).findings
    assert one.headline.startswith(
        "the program raised ValueError: no at train.py:3, in compiled code, c, line 30, in launch "
        "#2 cpp_fused_log_2 (line 30) (model.py:9)"
    )


def test_a_check_that_fails_follows_from_a_wrong_launch() -> None:
    place = "at check.py:9, outside of compiled code"
    ends = {
        "exit": ExitStatus(1),
        "assert": ExitStatus(1, message="AssertionError", place=place, scope="outside"),
        "raise": ExitStatus(1, message="ValueError: no", place=place, scope="outside"),
        "signal": ExitStatus(None, signal=11),
    }
    found = {
        name: rule([of_end(ended, [crash("over", ended)]), of_verification(DIFFER)]).findings
        for name, ended in ends.items()
    }
    symptoms = {n: [one.kind for one in x if one.symptom] for n, x in found.items()}
    assert symptoms == {"exit": ["crash"], "assert": ["crash"], "raise": [], "signal": []}
    assert [found[name][0].kind for name in ("exit", "assert")] == ["wrong", "wrong"]
    within = ExitStatus(1)
    inside = rule([of_end(within, [crash("running", within)]), of_verification(DIFFER)])
    assert not any(one.symptom for one in inside.findings)


def test_the_same_output_in_further_calls_is_one_line() -> None:
    wrong = Checked("buf7", "add = aten.add.Tensor(x, 1)", Comparison(1, 1))
    calls = [CallCheck(f"rank0/run{number}", "model.py", (wrong,)) for number in range(3)]
    lines = page(rule([of_calls(calls)], order=[one.run for one in calls]))
    assert lines[0].startswith("diagnosis: what model leaves in rank0/run0 (buf7) is not what ")
    at = lines.index("beside it, 2 findings, which may follow from it:")
    assert lines[at + 1] == "  the same in 2 further calls"


def test_the_same_launch_in_further_calls_is_one_line() -> None:
    calls = [replace(check(2, "differs"), run=f"rank0/run{number}") for number in range(5)]
    other = replace(check(3, "differs"), run="rank0/run1")
    found = of_verification(Verification((check(0, "agrees"), *calls, other)))
    lines = page(rule([found], order=[one.run for one in calls]))
    at = lines.index("beside it, 5 findings, which may follow from it:")
    assert lines[at + 1] == "  the same launch in 4 further calls"
    assert lines[at + 2].startswith("  launch #3 ")
    assert lines[at + 3 : at + 5] == [
        "ruled out:",
        "  other wrong kernels: 7 launches: 1 computes what it claims to",
    ]


@pytest.mark.parametrize(
    ("state", "what"), [("made", "the NaN is"), ("infinite", "the infinities are")]
)
def test_a_nan_of_a_launch_that_computes_what_it_should_is_the_models(
    state: NonFiniteState, what: str
) -> None:
    nan = of_nonfinite((verdict(state),), AGREE, launches=2, is_random=False)
    diagnosis = rule([nan, of_verification(AGREE)])
    assert diagnosis.finding is not None
    assert diagnosis.finding.symptom
    assert f"so {what} the model's" in diagnosis.headline
    # A launch that differs comes first, also a later one.
    later = Verification((check(2, "agrees"), check(7, "differs")))
    nan = of_nonfinite((verdict("made"),), later, launches=2, is_random=False)
    assert rule([nan, of_verification(later)]).findings[0].kind == "wrong"


@pytest.mark.parametrize(("outcome", "first"), [("unchecked", 0), ("agrees", 0), ("differs", 2)])
def test_who_makes_infinities_comes_before_who_makes_nan_of_them(
    outcome: Outcome, first: int
) -> None:
    both = verdict("overflowed", 0), replace(verdict("made"), cause=Producer(0))
    checks = Verification((check(0, "agrees"), check(2, outcome, "no node")))
    found = of_nonfinite(both, checks, launches=2, is_random=False)
    assert rule([found]).findings[0].launch == first


def test_a_nan_of_random_inputs_is_no_finding_unless_its_launch_differs() -> None:
    nan = of_nonfinite((verdict("made"),), AGREE, launches=2, is_random=True)
    assert nan.findings == ()
    assert "of the random inputs" in nan.notes[0]
    nan = of_nonfinite((verdict("made"),), DIFFER, launches=2, is_random=True)
    assert [one.kind for one in nan.findings] == ["nan"]
    assert rule([nan, of_verification(DIFFER)]).findings[0].kind == "wrong"


def test_the_cause_comes_before_what_follows_from_it() -> None:
    found = (
        finding("outputs", None),
        finding("crash", 4),
        finding("wrong", 5),
        finding("corrupted", 1, certainty="possible"),
        finding("wrong", 3),
        finding("unwritten", 3),
    )
    ordered = rule([Examined(found)]).findings
    assert [(one.kind, one.launch) for one in ordered] == [
        ("unwritten", 3), ("wrong", 3), ("wrong", 5), ("corrupted", 1), ("crash", 4),
        ("outputs", None),
    ]  # fmt: skip


@pytest.mark.parametrize(("text", "first"), [("freed", "freed"), ("stale", "nan")])
def test_why_a_process_died_comes_before_nan_that_nothing_could_absorb(
    text: FindingKind, first: FindingKind
) -> None:
    found = finding("nan", 2), finding("crash", 4), finding(text, 4)
    assert rule([Examined(found)]).findings[0].kind == first


def test_a_store_out_of_bounds_comes_before_the_crash_that_it_ends_in() -> None:
    crash = finding("crash", None, run="")
    shown = rule([Examined((crash, finding("bounds", 4)))], order=["rank0/run0"])
    assert [one.kind for one in shown.findings] == ["bounds", "crash"]
    unsure = crash, finding("bounds", 4, certainty="likely")
    likely = rule([Examined(unsure)], order=["rank0/run0"])
    assert [one.kind for one in likely.findings] == ["crash", "bounds"]


def test_the_first_iteration_of_a_launch_comes_first() -> None:
    later = finding("unwritten", 2, iteration=1), finding("bounds", 2)
    assert [one.iteration for one in rule([Examined(later)]).findings] == [0, 1]


def test_where_outputs_are_wrong_what_could_not_be_checked_is_suspected() -> None:
    outputs = Examined((finding("outputs", None),))
    unchecked = of_verification(UNKNOWN)
    feeding = replace(unchecked, suspects=tuple(replace(x, feeds=True) for x in unchecked.suspects))
    diagnosis = rule([outputs, feeding])
    found = [(one.kind, one.launch) for one in diagnosis.findings]
    assert found == [("outputs", None), ("wrong", 2)]
    assert diagnosis.findings[1].headline.startswith("possibly: launch #2 cpp_fused_log_2")
    assert "feeds what is wrong, and could not be checked: random numbers" in page(diagnosis)[2]
    others = tuple(replace(x, feeds=False) for x in unchecked.suspects)
    assert len(rule([outputs, replace(unchecked, suspects=others)]).findings) == 1
    # With a launch that differs, nobody is suspected.
    assert len(rule([outputs, feeding, of_verification(DIFFER)]).findings) == 2


@pytest.mark.parametrize(
    ("kind", "about", "verification", "others", "is_kept"),
    [
        ("stale", {}, AGREE, {"right": False}, False),
        ("stale", {}, DIFFER, {"right": False}, True),
        ("stale", {}, DIFFER, {"right": True}, False),
        ("stale", {}, AGREE, {"right": False, "wrong": True}, True),
        ("stale", {"others": (4,)}, AGREE, {"right": False}, True),  # a later launch reads it, too
        # Another launch wrote there, or the call returns it.
        ("stale", {"lasting": True}, AGREE, {"right": False}, True),
        ("stale", {"lasting": True}, AGREE, {"right": True}, False),
        # A guard that an engine leaves unchecked.
        ("inputs", {"by_guards": True}, AGREE, {"right": True}, False),
        ("inputs", {"by_guards": True}, AGREE, {"right": False}, True),
        ("inputs", {}, AGREE, {"right": True}, True),
    ],
)
def test_what_may_change_nothing(
    kind: FindingKind,
    about: dict[str, object],
    verification: Verification,
    others: dict[str, bool],
    is_kept: bool,
) -> None:
    """Such as memory that is taken over where it is read."""
    examined = Examined((finding(kind, 2, artifact="c.py", **about),))
    found = without_effect(examined, verification, **others)
    assert len(found.findings) == is_kept
    assert any("changes nothing" in note for note in found.notes) is not is_kept


def test_what_the_text_shows_goes_before_what_is_likely() -> None:
    stale = Examined((finding("stale", 4),))
    likely = Examined((finding("wrong", 2, certainty="likely"),))
    assert [one.launch for one in rule([likely, stale]).findings] == [4, 2]
    wrong = Examined((finding("wrong", 4),))
    assert [one.launch for one in rule([likely, wrong]).findings] == [2, 4]


@pytest.mark.parametrize("route", get_args(Route))
def test_each_route_says_what_a_launch_is_compared_with(route: Route) -> None:
    wrong = replace(check(2, "differs"), route=route)
    (found,) = of_verification(Verification((wrong,))).findings
    assert found.shown == f"shown by {AGAINST[route]}, on the values that it received"
    assert AGAINST[route]


def test_an_input_of_another_size_stands_before_what_follows_from_it() -> None:
    nan = finding("nan", 0)
    sized = finding("inputs", None, what="an input: arg0_1: size [4, 9], expected [4, 36]")
    strided = finding("inputs", None, what="an input: arg0_1: stride [9, 1], expected [36, 1]")
    assert rule([Examined((nan, sized))]).findings[0].kind == "inputs"
    assert rule([Examined((nan, strided))]).findings[0].kind == "nan"


def test_a_launch_that_is_checked_with_others_is_not_accused_alone() -> None:
    """What #0 left for #2 is no value of the graph, half of a mean, so either may be wrong."""
    wrong = replace(check(2, "differs"), together=(0,))
    (found,) = of_verification(Verification((wrong,))).findings
    assert found.launch == 2
    assert found.others == (0,)
    assert "or #0, which left it a value that the graph does not have" in found.headline
