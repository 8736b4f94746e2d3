"""Judges launches by themselves: the same launch twice, a C++ kernel without vectors and without
optimisation, and one of Triton with smaller blocks and other warps. Results that differ by more
than rounding depend on what they must not."""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from rewriter.core.errors import RewriterError
from rewriter.diagnosis.verification.bounded import NARROW, Bounded, precision, roundings_of, wide
from rewriter.diagnosis.verification.judge import compare
from rewriter.diagnosis.verification.types import Checked, LaunchCheck, Verification
from rewriter.dump.reading import open_dump
from rewriter.reproduction.independent import host
from rewriter.reproduction.reproduce import Reproduction, reproduce

_FEW = 64  # roundings that any kernel is allowed
# Which result is compared with `first`: the property that is checked, the claim in words, and what
# the launch is where they differ.
_VARIANTS = {
    "again": ("deterministic", "what the same launch on the same values wrote before",
              "not deterministic"),
    "scalar": ("scalar agrees", "what the kernel writes one element at a time, not optimised",
               "not the same without vectors and optimisation"),
    "blocks": ("other blocks agree", "what the kernel writes with smaller blocks, and other warps",
               "not the same with smaller blocks and other warps"),
}  # fmt: skip


def check_independently(
    dump: Path, verification: Verification, *, imports: Sequence[str] = ()
) -> Verification:
    """Launch each launch of a dump again, once for each of its wrapper, and add what came of it.

    One that differs by more than rounding from itself is a finding. What cannot be cut out of its
    wrapper, or draws random numbers, is left as it is.
    """
    with tempfile.TemporaryDirectory(prefix="rewriter-verify-") as scratch:
        cut = _cut_out(dump, verification, Path(scratch))
        command = [sys.executable, str(Path(host.__file__)), scratch, *imports]
        subprocess.run(command, capture_output=True, check=False)
        checks = [_added(check, cut.get(place)) for place, check in enumerate(verification.checks)]
    return replace(verification, checks=tuple(checks))


def _cut_out(dump: Path, verification: Verification, scratch: Path) -> Mapping[int, Reproduction]:
    """The scripts of the launches that can stand alone, by the place of the launch."""
    hashes = {run.name: run.sha256 for run in open_dump(dump).runs}
    seen: set[tuple[str, int]] = set()
    found: dict[int, Reproduction] = {}
    for place, check in enumerate(verification.checks):
        key = hashes.get(check.run, ""), check.launch
        if key in seen:
            continue
        seen.add(key)
        folder = scratch / str(place)
        try:
            made = reproduce(dump, check.launch, folder, run=check.run, iteration=check.iteration)
        except RewriterError:
            continue  # the reason is `repro`'s to say
        found[place] = made
    return found


def _added(check: LaunchCheck, made: Reproduction | None) -> LaunchCheck:
    path = None if made is None else made.directory / "results.pt"
    if made is None or path is None or not path.is_file():
        return check
    results = torch.load(path, weights_only=True)
    if "first" not in results:
        return check
    given = [x for x in made.recorded.given.values() if x.file is not None]
    largest = max((math.prod(x.shape) for x in given), default=1)
    agreeing: list[str] = []
    for name, (row, claim, reason) in _VARIANTS.items():
        if name not in results:
            continue
        checked = [
            Checked(arg, claim, compare(got, _allowed(results["first"][arg], largest)))
            for arg, got in results[name].items()
        ]
        if any(not x.comparison.agrees for x in checked):
            return replace(check, outcome="differs", route="itself", results=tuple(checked),
                           reason=reason)  # fmt: skip
        agreeing.append(row)
    return replace(check, independent=tuple(agreeing))


def _allowed(tensor: torch.Tensor, largest: int) -> Bounded:
    """A result with the rounding that it may have: that of the longest sum that it may be, at the
    magnitude of its largest element, since small elements may be differences of large numbers."""
    if not tensor.is_floating_point():
        return Bounded(wide(tensor), None, tensor.dtype)
    value = wide(tensor)
    terms = max(_FEW, -(-largest // max(1, tensor.numel())))
    scale = (
        value[value.isfinite()].abs().max() if bool(value.isfinite().any()) else value.new_zeros(())
    )
    eps = torch.finfo(precision([tensor.dtype])).eps * roundings_of(terms)
    eps += torch.finfo(tensor.dtype).eps if tensor.dtype in NARROW else 0.0
    return Bounded(value, torch.full((), float(scale) * eps), tensor.dtype, terms, terms)
