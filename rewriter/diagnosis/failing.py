"""How a program that fails in the runs of `sanitize` fails: in which launch, and what that was
given that still holds a filling as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rewriter.core.exit_status import ExitStatus, first_line
from rewriter.diagnosis.fill_patterns import Filling
from rewriter.diagnosis.findings import Finding, FindingKind
from rewriter.diagnosis.ruling import Examined
from rewriter.diagnosis.verdict import CrashVerdict
from rewriter.dump.rows import TensorRow

_MOST = 1 << 27  # bytes of an argument that is compared
_SHOWN = "shown by the runs"
_NO_NAME = "UnboundLocalError"  # a variable was deleted, which the text of the wrapper shows
_NO_BANDS = (
    "a launch may have damaged memory that has no guard bands: directly behind an input or a weight"
)
_GIVEN: Mapping[Filling, tuple[FindingKind, str]] = {
    "stale": ("stale", "receives freed memory"),
    "poison": ("unwritten", "receives uninitialised memory"),
}


def of_ends(
    probed: Sequence[ExitStatus],
    plain: ExitStatus,
    crashes: Sequence[CrashVerdict] = (),
    given: Mapping[str, Filling] | None = None,
) -> Examined:
    """How the runs ended, compared with the run that fills no memory.

    `crashes` is what the dump of a run that failed says of its end, `given` what `filled_arguments`
    says of the launch.
    """
    failed = next((status for status in probed if status.code != 0), None)
    if failed is None:
        if plain.code == 0:
            return Examined()
        return Examined(notes=(f"without filling it ends differently: {first_line(str(plain))}",))
    fails_anyway = plain.code != 0 and all(status.code != 0 for status in probed)
    notes: tuple[str, ...] = ()
    if fails_anyway:
        what = f"fails, also without filling: {first_line(str(plain))}"
        notes = ("nothing behind the failure was checked; `rewriter triage` says more about it",)
    else:
        runs = "runs without filling" if plain.code == 0 else "runs with another filling"
        what = (
            f"fails where uninitialised memory is filled, or has guard bands, and {runs}: "
            f"{first_line(str(failed))}"
        )
    verdict = crashes[0] if crashes else None
    if _NO_NAME in str(plain):  # a line behind that launch asks for it
        verdict = None
    if verdict is None or verdict.state == "over":  # in no launch
        text: tuple[str, ...] = () if verdict is None else (verdict.headline,)
        if failed.signal:
            text = (*text, _NO_BANDS)
        finding = Finding("crash", f"the program {what}", _SHOWN, whole=True, text=text)
        return Examined((finding,), notes=notes)
    kind: FindingKind = "crash" if fails_anyway else "unwritten"
    for filling, (of_filling, is_given) in _GIVEN.items():
        if names := [name for name, held in (given or {}).items() if held == filling]:
            kind, what = of_filling, f"{is_given} ({', '.join(names)}), and {what}"
            break
    return Examined((Finding.of(verdict, kind, what, _SHOWN, "likely"),), notes=notes)


def filled_arguments(verdict: CrashVerdict, fill: int) -> dict[str, Filling]:
    """The tensors that a launch only reads and that hold nothing but a filling, as their
    fingerprints show. `fill` is the number of the filling in that run."""
    result: dict[str, Filling] = {}
    for argument in verdict.arguments:
        row = argument.tensor
        if argument.role != "in" or row is None or row.phase != "before" or not row.fingerprint:
            continue
        if row.dtype == "bool" or (fill and not row.is_floating):
            continue  # these fillings are numbers that a program has, too
        for filling in _GIVEN:
            if row.fingerprint == _fingerprint(row, filling, fill):
                result[argument.in_model] = filling
    return result


def _fingerprint(row: TensorRow, filling: Filling, fill: int) -> str:
    """The fingerprint of a tensor of this shape that holds nothing but a filling."""
    import torch

    from rewriter.diagnosis.fill_patterns import pattern
    from rewriter.runtime.tensors import fingerprint

    dtype = getattr(torch, row.dtype, None)
    if not isinstance(dtype, torch.dtype) or not 0 < row.size * dtype.itemsize <= _MOST:
        return ""
    size = row.size * dtype.itemsize
    data = bytearray(pattern(filling, fill, row.dtype) * (size // 8 + 1))[:size]
    return fingerprint(torch.frombuffer(data, dtype=torch.uint8))
