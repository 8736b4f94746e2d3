"""`rewriter bisect`: makes the runs, and names the launches that make the difference."""

from __future__ import annotations

import io
import shlex
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rewriter.artifact.types import Wrapper
from rewriter.commands._documents.bisect import BisectDocument, BisectLaunch, BisectRun
from rewriter.commands._output import emit
from rewriter.commands.bisect import Arguments
from rewriter.core import files
from rewriter.core.errors import DIFFERS, OK, RewriterError
from rewriter.core.labels import short
from rewriter.core.quantities import comma_separated
from rewriter.core.terminal import level_style, message, say
from rewriter.core.text import counted
from rewriter.diagnosis.expected import agree, compare_outputs, load_expected
from rewriter.diagnosis.verification.functional import schemas
from rewriter.diagnosis.verification.replacing.insert import replaced
from rewriter.diagnosis.verification.replacing.search import smallest
from rewriter.diagnosis.verification.replacing.substitutes import (
    Kept,
    Substitute,
    substitutes,
)
from rewriter.dump.reading import RunDump, is_recorded, open_dump
from rewriter.execution import program
from rewriter.execution.dumped_wrappers import plain_hash
from rewriter.execution.hook.run import (
    HookedRun,
    ReplacedRun,
    Request,
    nothing_compiled,
    run,
    run_replaced,
)
from rewriter.execution.standard_input import StandardInput
from rewriter.instrumentation.select import select
from rewriter.instrumentation.types import Edited, Selection
from rewriter.locate.types import Launch
from rewriter.model_names.attribution import is_fused
from rewriter.model_names.known import Compilations

if TYPE_CHECKING:
    import torch

_CALLS = "0-2"
_PROBED = select("names", calls=_CALLS)  # which wrappers are called, and with which operators
_SAVED = select("names,save", calls=_CALLS)  # and what they return
_SHOWN = 8  # launches that are never replaced, by their reasons
_NONE = (
    "verdict: no launch: with {} replaced that can be, the program fails as before. What is "
    "wrong is in a launch that is never replaced, in the graph itself, or outside of the wrappers"
)
_NO_CANDIDATE = "verdict: no launch: none of them can be replaced; the reasons are below"
_CHANCE = (
    "verdict: no launch: the program fails in one run as it is, and passes in another: fix its "
    "seeds first"
)


@dataclass(frozen=True)
class _Loaded:
    """A wrapper that the program loaded, by the hash of its plain source; `call` is a recorded
    call of it, if there is one."""

    key: str
    wrapper: Wrapper
    call: RunDump | None
    found: tuple[Substitute, ...]
    kept: tuple[Kept, ...]

    def described(self, launch: Launch, reason: str = "") -> BisectLaunch:
        lines = self.call.names.lines.get(launch.index, ()) if self.call is not None else ()
        return BisectLaunch(
            wrapper=str(self.wrapper.path),
            launch=launch.index,
            kernel=launch.kernel,
            kind=launch.kind,
            line=launch.line,
            lines=tuple(map(str, lines)),
            reason=reason,
        )


def act(arguments: Arguments) -> int:
    if arguments.artifact or arguments.program is None:
        raise RewriterError(
            "no-program",
            "bisect runs a program, which stands behind --",
            hint="rewriter bisect -- python check.py: its exit code says whether it is right.",
        )
    program.require(arguments.program)
    expected = None
    if arguments.expected is not None:
        files.require_file(
            Path(arguments.expected), hint="Make it with torch.save([output], FILE)."
        )
        expected = load_expected(Path(arguments.expected))
    with tempfile.TemporaryDirectory(prefix="rewriter-bisect-") as folder:
        return _Bisection(arguments, arguments.program, Path(folder), expected).act()


def replacing(launches: Sequence[BisectLaunch], *, precise: bool) -> str:
    """The command that replaces some launches in their files; one for each wrapper."""
    numbers: dict[str, list[str]] = {}
    for launch in launches:
        numbers.setdefault(launch.wrapper, []).append(str(launch.launch))
    how = ["--by", "reference", *["--precise"] * precise, "--in-place"]
    return " && ".join(
        shlex.join(["rewriter", "replace", wrapper, "--launch", ",".join(some), *how])
        for wrapper, some in numbers.items()
    )


def _all(launches: int) -> str:
    return "the one launch" if launches == 1 else f"all {launches} launches"


_R = TypeVar("_R", HookedRun, ReplacedRun)


@dataclass
class _Bisection:
    arguments: Arguments
    command: tuple[str, ...]
    folder: Path
    expected: list[torch.Tensor | None] | None
    narrow: str = ""  # as in `ComparedCall`
    stdin: StandardInput = field(default_factory=StandardInput)
    runs: list[BisectRun] = field(default_factory=list)
    loaded: list[_Loaded] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    candidates: list[tuple[_Loaded, Substitute]] = field(default_factory=list)

    def act(self) -> int:
        plain = self._timed("as it is", 0, self._plain, self._plain_passes)
        if self.runs[0].passed:
            return self._conclude((), "verdict: no launch: the program passes as it is", OK)
        self.loaded = list(self._planned(plain))
        self._choose()
        if not self.candidates:
            return self._conclude((), _NO_CANDIDATE, DIFFERS)
        every = range(len(self.candidates))
        passes = self._trial(every)
        if self.failed:  # these ran as they are
            self._choose()
        if not passes:
            return self._conclude((), _NONE.format(_all(len(self.candidates))), DIFFERS)
        if not self.candidates:
            return self._conclude((), _CHANCE, DIFFERS)
        found = smallest(len(self.candidates), lambda chosen: self._trial(sorted(chosen)))
        # Else what was found would be chance. Twice: a program may fail in every other run.
        if self._trial(()) or self._trial(()):
            return self._conclude((), _CHANCE, DIFFERS)
        chosen = sorted((self.candidates[x] for x in found), key=lambda x: x[1].launch.index)
        named = [x for loaded in self.loaded for x in chosen if x[0] is loaded]
        launches = [substitute.launch for _, substitute in named]
        what = ", ".join(f"#{x.index} {x.kernel} (line {x.line})" for x in launches)
        verb = "makes" if len(launches) == 1 else "together make"
        verdict = f"verdict: {counted(len(launches), 'launch')} {verb} the difference: {what}"
        return self._conclude(named, verdict, DIFFERS)

    def _plain(self) -> HookedRun:
        dump = self.folder / "plain"
        probes = _PROBED if self.expected is None else _SAVED
        request = self._request(probes, dump=str(dump), redirected=self.arguments.json)
        return run(request, message)

    def _plain_passes(self, ran: HookedRun) -> bool:
        if self.expected is None or ran.ended.code != 0 or ran.dump is None:
            return ran.ended.code == 0
        path = Path(str(self.arguments.expected))
        compared = compare_outputs(open_dump(ran.dump), self.expected, path)
        self.narrow = compared.narrow
        return not compared.wrong

    def _replaced_passes(self, ran: ReplacedRun) -> bool:
        if self.expected is None or ran.ended.code != 0:
            return ran.ended.code == 0
        import torch

        loaded = (torch.load(io.BytesIO(x), weights_only=True) for x in ran.outputs)
        found = (agree(x, self.expected, self.narrow) for x in loaded)
        return next((x for x in found if x is not None), False)

    def _request(self, selection: Selection, *, dump: str, redirected: bool) -> Request:
        return Request(
            program=self.command,
            selection=selection,
            globs=comma_separated(*self.arguments.wrappers),
            dump=dump,
            timeout=self.arguments.timeout,
            redirected=redirected,
            command=self.arguments.command_line,
            stdin=self.stdin,
            hears=True,
        )

    def _planned(self, plain: HookedRun) -> Iterator[_Loaded]:
        """What can stand in the place of each launch of the wrappers that were loaded."""
        if not plain.loaded:
            raise nothing_compiled(plain)
        calls: dict[str, RunDump] = {}
        if plain.dump is not None and is_recorded(plain.dump):
            for run in open_dump(plain.dump).runs:
                calls.setdefault(run.sha256, run)
        others = Compilations()
        for path in plain.probed:
            wrapper = path.wrapper
            key = plain_hash(wrapper.source)
            call = calls.get(key)
            graph = call.graph if call is not None else ""
            if not graph and (known := others.of_wrapper(wrapper)) is not None:
                graph = known.lowered
            given = {} if call is None else schemas(call)
            found = substitutes(wrapper, graph, given, precise=self.arguments.precise)
            yield _Loaded(key, wrapper, call, found.found, found.kept)

    def _choose(self) -> None:
        """The launches that are replaced: all with something to stand in their place, but for those
        of which that failed. Generated kernels come first: they are rather to blame than libraries.
        """
        found = [
            (loaded, substitute)
            for loaded in self.loaded
            for substitute in loaded.found
            if f"{loaded.key}#{substitute.launch.index}" not in self.failed
        ]
        self.candidates = sorted(found, key=lambda x: not is_fused(x[1].launch))

    def _trial(self, numbers: Sequence[int]) -> bool:
        """Whether the program passes with some of the launches replaced."""
        chosen = [self.candidates[number] for number in numbers]
        names = ", ".join(f"#{x.launch.index} {x.launch.kernel}" for _, x in chosen[:2])
        more = f" and {len(chosen) - 2} more" if len(chosen) > 2 else ""
        if len(chosen) == len(self.candidates):
            names, more = _all(len(chosen)), ""
        edits: dict[str, Edited] = {}
        for loaded in self.loaded:
            own, keeps = [x for y, x in chosen if y is loaded], self.expected is not None
            if own or keeps:
                edits[loaded.key] = replaced(
                    loaded.wrapper, own, attempts=loaded.key, keeps=keeps, among=loaded.found
                )

        asked: list[bool] = []

        def edited(wrapper: Wrapper) -> Edited | None:
            found = edits.get(plain_hash(wrapper.source))
            asked.append(found is not None)
            return found

        def once() -> ReplacedRun:
            request = self._request(_PROBED, dump="", redirected=True)
            ran = run_replaced(request, edited, message)
            self.failed |= ran.failed
            if chosen and asked and not any(asked):
                raise RewriterError(
                    "no-wrapper-matches",
                    "the program loaded none of the wrappers that it loaded in its first run, so "
                    "that nothing was replaced",
                    hint="Its wrappers differ from run to run, as those with frozen weights do.",
                )
            return ran

        what = f"{names}{more} replaced" if chosen else "as it is, once more"
        self._timed(what, len(chosen), once, self._replaced_passes)
        return self.runs[-1].passed

    def _timed(
        self, what: str, number: int, once: Callable[[], _R], passes: Callable[[_R], bool]
    ) -> _R:
        message(f"run {len(self.runs) + 1}: {what}")
        started = time.perf_counter()
        ran = once()
        ended = ran.ended
        if ended.interrupted:
            raise KeyboardInterrupt(f"in run {len(self.runs) + 1}")
        passed = passes(ran)
        why = "its outputs are not the expected ones" if ended.code == 0 else str(ended)
        outcome = "passes" if passed else f"fails: {why}"
        seconds = round(time.perf_counter() - started, 3)
        self.runs.append(
            BisectRun(what=what, replaced=number, passed=passed, outcome=outcome, seconds=seconds)
        )
        message(f"       {outcome} ({seconds:.1f} s)")
        return ran

    def _conclude(
        self, named: Sequence[tuple[_Loaded, Substitute]], verdict: str, code: int
    ) -> int:
        launches = tuple(loaded.described(substitute.launch) for loaded, substitute in named)
        never = tuple(self._never_replaced())
        document = BisectDocument(
            program=self.command,
            verdict=verdict,
            launches=launches,
            candidates=len(self.candidates),
            never_replaced=never,
            runs=tuple(self.runs),
            next=replacing(launches, precise=self.arguments.precise),
        )
        if self.arguments.json:
            emit(document)
        else:
            level = level_style("error" if code else "good")
            say([(verdict, level)], *self._lines(document))
        return code

    def _never_replaced(self) -> Iterator[BisectLaunch]:
        for loaded in self.loaded:
            kept = {x.launch.index: x.reason for x in loaded.kept}
            for launch in loaded.wrapper.located.launches:
                reason = kept.get(launch.index, "")
                if problem := self.failed.get(f"{loaded.key}#{launch.index}"):
                    reason = f"what stands in its place failed: {problem}"
                if reason:
                    yield loaded.described(launch, reason)

    def _lines(self, found: BisectDocument) -> Iterator[str]:
        for launch in found.launches:
            wrapper = Path(launch.wrapper).name
            yield f"  #{launch.launch} {launch.kernel}, {launch.kind}, in {wrapper}"
            yield from (f"  at {line}" for line in launch.lines)
        if self.loaded:
            how = " in float64" if self.arguments.precise else ""
            number = found.candidates + len(found.never_replaced)
            launches = f"{found.candidates} of {counted(number, 'launch')}"
            yield f"{counted(len(self.runs), 'run')}; {launches} can be replaced{how}"
        reasons = Counter(x.reason for x in found.never_replaced)
        for reason, _ in reasons.most_common(_SHOWN):
            some = [x for x in found.never_replaced if x.reason == reason]
            first = f"{short(some[0].wrapper)} #{some[0].launch} {some[0].kernel}"
            more = f" and {len(some) - 1} more" if len(some) > 1 else ""
            yield f"never replaced: {first}{more}: {reason}"
        if len(reasons) > _SHOWN:
            yield f"never replaced: others, for {len(reasons) - _SHOWN} more reasons; see --json"
        if found.next:
            yield f"next: {found.next}"
            yield "      (the same in the file itself, until the kernel is mended)"
