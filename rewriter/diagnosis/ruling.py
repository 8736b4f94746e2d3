"""Puts the results of all examinations together: findings, ranked, and what was ruled out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rewriter.core.exit_status import ExitStatus, first_line
from rewriter.core.text import counted
from rewriter.diagnosis.findings import (
    Certainty,
    Diagnosis,
    DiagnosisStep,
    Finding,
    FindingKind,
    Suspect,
    ranked,
)
from rewriter.diagnosis.verdict import CrashVerdict, NonFiniteVerdict, Verdict
from rewriter.diagnosis.verdict_text import describe
from rewriter.diagnosis.verification import text as verification_text
from rewriter.diagnosis.verification.types import LaunchCheck, Verification
from rewriter.dump.reading import Dump
from rewriter.execution.standard_error import EARLY, how_ended

_GUARD = "the guard "  # begins what is said of an input if one of the wrapper's guards is broken
_SIZE = ": size ["  # of an input that has another one than its wrapper was compiled for
_NUMBERS = ("wrong", "differs", "outputs")  # findings that numbers are not what they should be
_SUSPECTED = 3  # unchecked launches that are named if outputs are wrong
_ABSORBED = "nothing that a call returns or updates has one"
_REASONS = 6  # reasons for unchecked launches that are listed


@dataclass(frozen=True)
class Examined:
    """The result of one examination. `ruled_out` is a sentence about what it found to be right;
    empty if there is nothing to say. The numbers are those of a `Diagnosis`."""

    findings: tuple[Finding, ...] = ()
    ruled_out: str = ""
    suspects: tuple[Suspect, ...] = ()
    notes: tuple[str, ...] = ()
    outputs_agree: bool = False  # calls return what their graphs give
    checked: int = 0
    launches: int = 0
    by_arguments: int = 0
    outputs: int = 0
    compared: int = 0
    by_check: bool = False  # the program's own check failed: see `ended_by_check`


def without_effect(
    examined: Examined, verification: Verification, *, right: bool, wrong: bool = False
) -> Examined:
    """The result without stale reads and broken guards that did no harm, which become notes.

    An engine may leave guards unchecked, and call a wrapper for 2 tokens or more with one. Memory
    may be taken over while a launch reads it element by element. Both are harmless if all outputs
    are `right`; such a read also if only this launch reads it, it computes what it should, and no
    output is known to be `wrong`.
    """
    agree = {(x.artifact, x.launch) for x in verification.checks if x.outcome == "agrees"}

    def is_harmless(one: Finding) -> bool:
        if one.kind == "inputs":
            return right and one.by_guards
        alone = not (wrong or one.others or one.lasting) and (one.artifact, one.launch) in agree
        return one.kind == "stale" and (right or alone)

    kept = tuple(finding for finding in examined.findings if not is_harmless(finding))
    notes = (
        f"{finding.headline}: it changes nothing of what the call returns"
        for finding in examined.findings
        if finding not in kept
    )
    return replace(examined, findings=kept, notes=(*examined.notes, *notes))


def merged(verifications: Sequence[Verification]) -> Verification:
    """One verification out of several of a program, each with the values of other launches."""
    checks: dict[tuple[str, str, int, int], LaunchCheck] = {}
    for verification in verifications:
        for check in verification.checks:
            key = (check.run, check.artifact, check.launch, check.iteration)
            if key not in checks or checks[key].outcome == "unchecked":
                checks[key] = check
    return Verification(tuple(checks.values()), verifications[0].caveat)


def rule(
    examined: Iterable[Examined],
    *,
    order: Sequence[str] = (),
    steps: Sequence[DiagnosisStep] = (),
) -> Diagnosis:
    """The diagnosis of all examinations. `order` are the names of the calls as they ran."""
    parts = tuple(examined)
    suspects = tuple(suspect for part in parts for suspect in part.suspects)
    counts = ((x.checked, x.launches, x.by_arguments, x.outputs, x.compared) for x in parts)
    by_check = any(part.by_check for part in parts)
    every = [finding for part in parts for finding in part.findings]
    findings = _without_symptoms(every, by_check=by_check)
    if any(finding.kind == "outputs" and not finding.symptom for finding in findings):
        findings += _suspected(suspects)
    return Diagnosis(
        ranked(findings, order),
        tuple(part.ruled_out for part in parts if part.ruled_out),
        suspects,
        tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        tuple(steps),
        "",
        *map(sum, zip(*counts, strict=True)),
    )


def _suspected(suspects: Sequence[Suspect]) -> Iterator[Finding]:
    """Possible findings if outputs are wrong and no launch is to blame: the unchecked launches that
    may reach these outputs."""
    left = [suspect for suspect in suspects if suspect.feeds is not False]
    left.sort(key=lambda x: not x.feeds)
    for suspect in left[:_SUSPECTED]:
        feeds = "feeds what is wrong, and " if suspect.feeds else ""
        what = f"{feeds}could not be checked: {suspect.reason}"
        shown = f"one of {counted(len(left), 'launch')} that may be at fault"
        yield Finding.of(suspect, "wrong", what, shown, "possible")


def _without_symptoms(findings: Sequence[Finding], *, by_check: bool) -> list[Finding]:
    """The findings, with those marked as symptoms that follow from another one: outputs are wrong
    because a launch is, a process dies because of a fault in its text or of damaged memory, and its
    own check fails (`by_check`) because its numbers are wrong. Where the text says why it died, NaN
    of that call are beside the point: what would have absorbed them may not have run."""
    named = any(
        finding.launch is not None and finding.certainty != "possible" for finding in findings
    )
    by_text = [
        finding
        for finding in findings
        if finding.kind in ("freed", "unbound", "order", "missing", "unwritten")
    ]
    stale = any(finding.kind == "stale" for finding in findings)
    # The process may die much later, such as in an allocator whose memory was overwritten.
    bad = ("bounds", "corrupted")
    damaged = any(finding.kind in bad and finding.certainty == "shown" for finding in findings)
    wrong = any(x.kind in _NUMBERS and x.certainty == "shown" for x in findings)

    def may_follow(crash: Finding) -> bool:
        """Whether a launch before the crash, or that one, is wrong by the text of its wrapper."""
        places = (x.launch for x in by_text if x.kind == "missing" or x.launch is not None)
        return any(None in (x, crash.launch) or x <= crash.launch for x in places)  # type: ignore[operator]

    explained = {x.run for x in findings if x.kind == "crash" and may_follow(x)}
    sized = {x.run for x in findings if x.kind == "inputs" and _SIZE in x.what}

    def is_symptom(one: Finding) -> bool:
        if one.run in sized:  # it read beside its input, whatever became of that
            return one.kind != "inputs"
        if one.certainty == "likely" and (by_text or stale):
            return True  # findings by the text are more certain
        if one.kind == "crash":
            return may_follow(one) or damaged or (by_check and wrong)
        if one.kind == "nan":
            return one.run in explained
        return one.kind in ("outputs", "inputs") and named

    return [
        replace(finding, symptom=True) if is_symptom(finding) else finding for finding in findings
    ]


def ended_by_check(ended: ExitStatus, verdicts: Sequence[CrashVerdict]) -> bool:
    """Whether the program may have failed because it looked at its numbers: after its launches it
    chose an exit code, as a test does, or an `assert` of its own failed."""
    if not ended.code or ended.stopped or ended.scope in ("compiled", "compiling"):
        return False
    chosen = not ended.raised or first_line(ended.message).startswith("AssertionError")
    return chosen and bool(verdicts) and all(verdict.state == "over" for verdict in verdicts)


def of_end(
    ended: ExitStatus | None, verdicts: Sequence[CrashVerdict], following: Sequence[str] = ()
) -> Examined:
    """How the process ended: the launch where it crashed or was stopped at its time limit."""
    if ended is None or ended.code == 0:
        return Examined(ruled_out="a crash or a hang: it ran to its end")
    kind: FindingKind = "hang" if ended.timed_out else "crash"
    how = "was stopped at its time limit" if ended.timed_out else "ended"
    shown = "shown by its traceback" if ended.raised else f"shown by where the process {how}"
    text = (*ended.message.strip().splitlines()[1:][-12:], *ended.stacks)
    is_outside = ended.scope == "outside"
    by_check = ended_by_check(ended, verdicts)
    is_behind = any(verdict.behind for verdict in verdicts)
    findings = []
    for at, verdict in enumerate(verdicts):
        # What raised an exception or hangs outside of launches is no launch, whichever ended last.
        if verdict.state == "over" and (ended.raised or is_outside):
            continue
        found = _of_verdict(verdict, kind, shown, following[at : at + 1])
        # A rank that waits for one that is behind is not at fault.
        symptom = is_behind and not verdict.behind
        findings.append(replace(found, symptom=symptom, text=(*text, *found.text)))
    if findings and not (ended.raised and is_outside):
        return Examined(tuple(findings), by_check=by_check)
    if ended.timed_out and not verdicts:
        text += (EARLY,)
    what = how_ended(ended, "" if ended.raised else "while no recorded launch was running")
    by = shown if ended.raised else "shown by how it ended"
    end = Finding(kind, what, by, text=text, whole=True)
    symptoms = (replace(finding, symptom=True) for finding in findings)
    return Examined((end, *symptoms), by_check=by_check)


def of_inputs(dump: Dump) -> Examined:
    """Inputs whose type, shape, stride or device is not what the wrapper was compiled for."""
    findings, calls = [], 0
    for run in dump.runs:
        calls += bool(run.inputs)
        rows = list(run.unexpected())
        if not rows:
            continue
        wrong = [f"{run.names.called(row.name)}: {row.unexpected}" for row in rows[:_REASONS]]
        what = (
            f"an input of {run.name} is not what the wrapper was compiled for: {'; '.join(wrong)}"
        )
        found = Finding.of_call(run, "inputs", what, "shown by the inputs of the call")
        by_guards = all(row.unexpected.startswith(_GUARD) for row in rows)
        findings.append(replace(found, by_guards=by_guards))
    if findings or not calls:
        return Examined(tuple(findings))
    right = f"inputs that the wrapper was not compiled for: none in {counted(calls, 'call')}"
    return Examined(ruled_out=right)


def of_nonfinite(
    verdicts: Sequence[NonFiniteVerdict],
    verification: Verification | None,
    *,
    launches: int,
    is_random: bool,
    following: Sequence[str] = (),
) -> Examined:
    """Where the first NaN is from, and whether the launch that made it is itself wrong.

    NaN that no result of the call has (`absorbed`) are a note if their launch is right.
    """
    if not verdicts:
        what = f"NaN: no value of {counted(launches, 'launch')} has one" if launches else ""
        return Examined(ruled_out=what)
    findings, notes = [], []
    for at, verdict in enumerate(verdicts):
        check = _check_of(verdict, verification)
        given = verdict.launch is None
        shown = f"shown by {'the values that it was given' if given else 'what it read and wrote'}"
        finding = _of_verdict(verdict, "nan", shown, following[at : at + 1])
        if check is not None and check.outcome == "agrees":
            does = "is given" if check.route == "arguments" else "computes"
            its_own = (
                f"the launch {does} what its graph says, so the infinities are the model's, or come"
                if verdict.state == "infinite"
                else f"the launch {does} what its graph says, so the NaN is the model's, or comes"
            )
            finding = replace(finding, symptom=True, shown=f"{its_own} from its inputs")
        elif check is not None and check.outcome == "unchecked":
            unsure = f"note: whether it computes what it should is not known: {check.reason}"
            finding = replace(finding, text=(*finding.text, unsure))
        follows = at > 0 and verdicts[at - 1].state == "overflowed"
        if follows and (check is None or check.outcome != "differs"):
            finding = replace(finding, symptom=True)
        if is_no_fault(verdict, verification):
            notes.append(no_fault(verdict))
        elif is_random and (check is None or check.outcome != "differs"):
            notes.append(
                f"{finding.label} makes NaN of the random inputs: {verdict.headline}. With --args "
                "FILE.pt it is given those of the program."
            )
        else:
            findings.append(finding)
    ruled_out = "" if findings or is_random else f"NaN: {_ABSORBED}"
    return Examined(tuple(findings), ruled_out, notes=tuple(notes))


def is_no_fault(verdict: NonFiniteVerdict, verification: Verification | None) -> bool:
    """Whether no result of a call has the NaN of a verdict, and the launch that made them, if they
    did not come in, computes what it should."""
    if not verdict.absorbed or verdict.launch is None:
        return verdict.absorbed
    check = _check_of(verdict, verification)
    return check is not None and check.outcome == "agrees"


def no_fault(verdict: NonFiniteVerdict) -> str:
    """The note about NaN that are no fault."""
    right = "" if verdict.launch is None else ", and the launch does what its graph says"
    return f"{verdict.headline}; no fault: {_ABSORBED}{right}"


def _check_of(verdict: NonFiniteVerdict, verification: Verification | None) -> LaunchCheck | None:
    for check in verification.checks if verification is not None else ():
        same = (check.run, check.launch, check.iteration, check.artifact)
        if same == (verdict.run, verdict.launch, verdict.iteration, verdict.artifact):
            return check
    return None


def _of_verdict(
    verdict: Verdict, kind: FindingKind, shown: str, following: Sequence[str]
) -> Finding:
    _, *rest = describe(verdict, next_command=next(iter(following), "")).split("\n")
    certain = not verdict.asynchronous and verdict.state not in ("begun", "after", "wrote")
    said = verdict.ended.check if isinstance(verdict, CrashVerdict) else ""
    text = (*([said] if said else []), *(line.removeprefix("  ") for line in rest))
    certainty: Certainty = "shown" if certain else "likely"
    found = Finding.of(verdict, kind, verdict.headline, shown, certainty, text=text, whole=True)
    # What ended after a launch was no longer at the line of the model that the launch is from.
    return replace(found, lines=()) if verdict.state == "over" else found


def of_verification(
    verification: Verification,
    evidence: Mapping[tuple[str, int, int], Sequence[str]] = {},
    *,
    whole: bool = True,
) -> Examined:
    """Launches that do not compute what they claim, and, if the run came to its end (`whole`),
    those that could not be checked."""
    checks = verification.checks
    findings = tuple(_of_check(check, evidence) for check in checks if check.outcome == "differs")
    unchecked = [check for check in checks if check.outcome == "unchecked" and whole]
    suspects = tuple(Suspect(**vars(check)) for check in unchecked)
    agree = verification.count("agrees")
    ruled_out = ""
    if agree:
        launches = counted(len(checks), "launch")
        computed = agree - verification.by_arguments
        other = "other " if findings else ""
        says = "computes what it claims to" if computed == 1 else "compute what they claim to"
        ruled_out = f"{other}wrong kernels: {launches}: {computed} {says}"
        in_part = sum(x.outcome == "agrees" and bool(x.results and x.reason) for x in checks)
        ruled_out += f", {in_part} of these in part of their results" if in_part else ""
        ruled_out += verification_text.by_arguments(verification)
    if suspects and ruled_out:
        ruled_out += f"; {len(suspects)} could not be checked: {', '.join(_reasons(verification))}"
    notes = (verification.caveat,) if verification.caveat else ()
    checked = len(checks) - verification.count("unchecked")
    counts = checked, len(checks), verification.by_arguments
    return Examined(findings, ruled_out, suspects, notes, False, *counts)


def _reasons(verification: Verification) -> Iterator[str]:
    for reason, count in verification.reasons[:_REASONS]:
        yield f"{count} ({reason})"
    if more := sum(count for _, count in verification.reasons[_REASONS:]):
        yield f"and {more} for other reasons"


def _of_check(
    check: LaunchCheck, evidence: Mapping[tuple[str, int, int], Sequence[str]]
) -> Finding:
    what = f"{check.wrong}{verification_text.differing(check)}"
    if check.together:
        others = " or ".join(f"#{number}" for number in check.together)
        what = f"or {others}, which left it a value that the graph does not have, {what}"
    more = evidence.get((check.run, check.launch, check.iteration), ())
    shown = f"shown by {verification_text.AGAINST[check.route]}, on the values that it received"
    text = (*verification_text.evidence(check), *more)
    return Finding.of(check, "wrong", what, shown, text=text, others=check.together)
