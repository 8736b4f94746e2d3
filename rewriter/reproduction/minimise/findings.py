"""What is wrong with a launch, asked of any values: a crash, NaN made here, another result than the
claim, or what the sanitizers say."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.core import json_text
from rewriter.core.errors import RewriterError
from rewriter.core.text import of_elements
from rewriter.dump.document_files import EVENTS
from rewriter.dump.rows import TensorRow
from rewriter.reproduction.minimise.trial import Ran, TrialProcess
from rewriter.reproduction.types import Cut, Recorded
from rewriter.reproduction.under import asan

if TYPE_CHECKING:
    import torch

    Values = Mapping[str, torch.Tensor]

CRASH, NONFINITE, DIFFERS = "crash", "not finite", "differs"


@dataclass(frozen=True)
class Question:
    """Whether a launch shows the finding. `kind` is which finding that is. `ask` says what is found
    of values and sizes, in so many seconds, in words; empty if it is not the finding. Shapes may
    change only where `takes_shapes`."""

    kind: str
    ask: Callable[[Values, Mapping[str, int], float], str]
    takes_shapes: bool = True


def of_crash(ran: Ran) -> str:
    """A crash in words."""
    return f"the process dies of {ran.crash}" if ran.crash else ""


def of_nonfinite(ran: Ran, values: Values, read: frozenset[str]) -> str:
    """NaN and infinities that were made in a launch, in words."""
    if any(_bad(values[name]) for name in read if name in values):
        return ""
    for name, result in ran.results.items():
        if count := _bad(result):
            return (
                f"{name} has {count} NaN or infinities of {result.numel()}, made of finite values"
            )
    return ""


def _bad(tensor: torch.Tensor) -> int:
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return 0
    return int((~tensor.isfinite()).sum())


class Claim:
    """What the launch claims to compute, by `rewriter.diagnosis.verification`.

    It is asked of a copy of the dump, up to the launch, in which its values are others.
    """

    def __init__(self, recorded: Recorded, cut: Cut, folder: Path) -> None:
        self._recorded, self._cut = recorded, cut
        run = recorded.run
        root = run.path.absolute().parents[1]
        self._dump = folder / "trial.dump"
        self._run = self._dump / run.path.absolute().relative_to(root)
        self._run.mkdir(parents=True)
        for file in (x for x in root.iterdir() if x.name != self._run.parent.name):
            (shutil.copytree if file.is_dir() else shutil.copyfile)(file, self._dump / file.name)
        end = recorded.node.step.offset + recorded.node.step.size
        for file in run.path.iterdir():
            if file.name == EVENTS:
                with file.open("rb") as stream:
                    (self._run / EVENTS).write_bytes(stream.read(end))
            elif file.is_dir():
                shutil.copytree(file, self._run / file.name, copy_function=_linked)
            else:
                shutil.copyfile(file, self._run / file.name)

    def of(self, ran: Ran, values: Values) -> str:
        """What verification says of these values and results, in words."""
        if not ran.results:
            return ""
        given = {name: values[variable] for name, variable in self._cut.variables.items()}
        rows = self._recorded.run.rows(self._recorded.node.step)
        for row in (x for x in rows if isinstance(x, TensorRow) and x.file):
            changed = ran.results if row.phase == "after" and row.role != "in" else given
            tensor = changed.get(row.arg)
            if tensor is None or tuple(tensor.shape) != row.shape:
                continue
            self._put(row, tensor)
        return self._verdict()

    def _put(self, row: TensorRow, tensor: torch.Tensor) -> None:
        import torch

        file = self._run / row.file
        file.unlink(missing_ok=True)  # it may be a link to that of the dump
        torch.save(tensor.detach().cpu().clone(), file)

    def _verdict(self) -> str:
        from rewriter.diagnosis.verification.verify import verify

        try:
            checks = verify(self._dump).checks
        except RewriterError:
            return ""
        step = self._recorded.node.step
        for check in checks:
            if (check.launch, check.iteration) == (step.launch, step.iteration):
                worst = check.worst
                if check.outcome != "differs" or worst is None:
                    return ""
                one = worst.comparison
                return (
                    f"{worst.arg}: {of_elements(one.wrong, one.numel)} are not {worst.claim}; at "
                    f"{list(one.at)} {one.got:.9g}, where {one.expected:.9g} was expected; rounding"
                    f" explains {one.allowed:.2g}"
                )
        return ""


def _linked(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
    return target


class Watched:
    """The sanitizers of g++ report the kernel at the same line: `kind`, by default the first."""

    def __init__(
        self,
        process: TrialProcess,
        folder: Path,
        arguments: Mapping[str, str],
        timeout: float,
        kind: str,
    ) -> None:
        self._process, self._folder, self._arguments = process, folder, arguments
        self._timeout = timeout
        self._is_built = False
        self.kind = kind

    def ask(self, values: Values, sizes: Mapping[str, int], timeout: float) -> str:
        if self._process.run(values, sizes, timeout).error:
            return ""
        captured = json_text.parse_object((self._folder / "launch.json").read_bytes())
        if not self._is_built:
            asan.build(self._folder, captured, self._timeout)
            self._is_built = True
        findings, _ = asan.watch(self._folder, captured, self._arguments, timeout)
        for finding in findings:
            known = f"{finding.kind} in line {finding.line}"
            if self.kind in ("", known):
                self.kind = known
                return finding.headline
        return ""
