"""From a reproduction to a smaller one that still shows what is wrong."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.core.errors import RewriterError
from rewriter.core.strides import is_dense
from rewriter.core.text import of_elements
from rewriter.reproduction.minimise.findings import (
    CRASH,
    DIFFERS,
    NONFINITE,
    Claim,
    Question,
    Watched,
    of_crash,
    of_nonfinite,
)
from rewriter.reproduction.minimise.shrink import Shrinker, Values
from rewriter.reproduction.minimise.trial import TrialProcess
from rewriter.reproduction.minimise.types import Change, Minimised
from rewriter.reproduction.reproduce import Reproduction
from rewriter.reproduction.types import Recorded, Tensor

if TYPE_CHECKING:
    import torch

_TRIAL = 30.0  # seconds for one launch
_SHOWN = 4
_Asked = tuple[Question, str]


def minimise(made: Reproduction, *, seconds: float, watched: bool = False) -> Minimised:
    """Make sizes and values of a reproduction smaller while its finding remains.

    What the finding is, is found out first: the process dies, a result has NaN or infinities that
    nothing brought, or it differs from what the launch claims to compute; with `watched`, what the
    sanitizers of g++ report. It ends after about so many seconds; a process of its own then checks
    what was written. Raises `RewriterError` (`nothing-found`) where nothing is wrong.
    """
    began = time.monotonic()
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rewriter-")))
        process = _process(stack, made, scratch / "search", watched)
        values = process.base()
        sizes = {name: int(float(text)) for name, text in made.cut.sizes.items()}
        question, before = _question(made, process, values, sizes, scratch / "search", watched)
        shrinker = Shrinker(
            dict(values),
            dict(sizes),
            lambda values, sizes: bool(question.ask(values, sizes, _TRIAL)),
            began + seconds,
            _only_written(made),
        )
        if question.takes_shapes and all(is_dense(x.shape, x.stride()) for x in values.values()):
            shrinker.shapes(_groups(made, values, sizes))
        shrinker.simplify()
        changes = tuple(_changes(made, values, sizes, shrinker))
        finding = question.ask(shrinker.values, shrinker.sizes, _TRIAL) or before
        smaller = _written(stack, made, shrinker, scratch, finding, changes)
        confirmed = bool(changes) and bool(_again(stack, smaller, scratch, question, watched))
        if not confirmed:
            smaller = made.rewritten(made.recorded, made.cut, (before,))
        return Minimised(
            question.kind,
            finding if confirmed else before,
            changes,
            shrinker.trials,
            time.monotonic() - began,
            shrinker.stopped,
            confirmed,
            smaller,
        )


def _process(stack: ExitStack, made: Reproduction, folder: Path, watched: bool) -> TrialProcess:
    folder.mkdir()
    script = Path(made.directory).absolute() / "repro.py"
    return stack.enter_context(
        TrialProcess(script, folder, "handed-trials" if watched else "trials")
    )


def _question(
    made: Reproduction,
    process: TrialProcess,
    values: Values,
    sizes: dict[str, int],
    folder: Path,
    watched: bool,
    kind: str = "",
) -> _Asked:
    """What is wrong with a launch, of `kind` if one is named, and that in words."""
    if watched:
        sanitized = Watched(process, folder, made.variables, 600.0, kind)
        if found := sanitized.ask(values, sizes, _TRIAL):
            return Question(sanitized.kind, sanitized.ask), found
        raise _nothing(made, "asan reports nothing")
    ran = process.run(values, sizes, _TRIAL)
    if ran.error:
        raise _nothing(made, f"its script does not run here: {ran.error}")
    if found := of_crash(ran):
        return Question(CRASH, lambda *given: of_crash(process.run(*given))), found
    read, run = _read(made), process.run
    if found := of_nonfinite(ran, values, read):
        return Question(NONFINITE, lambda x, *by: of_nonfinite(run(x, *by), x, read)), found
    claim = Claim(made.recorded, made.cut, folder)
    if found := claim.of(ran, values):
        return Question(DIFFERS, lambda x, *by: claim.of(run(x, *by), x), takes_shapes=False), found
    raise _nothing(
        made, "it does not crash, makes no NaN, and does not differ from what it claims to compute"
    )


def _nothing(made: Reproduction, why: str) -> RewriterError:
    return RewriterError(
        "nothing-found",
        f"{made.recorded.title}: nothing to make smaller: {why}",
        hint="The script was written. `rewriter verify` says what was checked; it needs a dump "
        "of all arguments, before and after each launch: --args all --when both.",
    )


def _read(made: Reproduction) -> frozenset[str]:
    given = made.recorded.given
    return frozenset(v for name, v in made.cut.variables.items() if given[name].role != "out")


def _only_written(made: Reproduction) -> frozenset[str]:
    return frozenset(made.cut.variables.values()) - _read(made)


def _groups(made: Reproduction, values: Values, sizes: dict[str, int]) -> dict[int, str | None]:
    """Sizes of dimensions that may be another: those that a kernel takes as numbers, or all that
    an operator gets."""
    there = {size for tensor in values.values() for size in tensor.shape if size > 1}
    symbols: dict[int, str | None] = {value: name for name, value in sizes.items()}
    if "async_compile" in made.cut.kernels or "reinterpret_tensor(" in made.cut.call:
        return {size: name for size, name in symbols.items() if size in there}
    return {size: symbols.get(size) for size in there}


def _changes(
    made: Reproduction, values: Values, sizes: dict[str, int], shrinker: Shrinker
) -> Iterator[Change]:
    for name, size in sizes.items():
        if shrinker.sizes[name] != size:
            yield Change(name, str(size), str(shrinker.sizes[name]))
    for variable, tensor in values.items():
        now = shrinker.values[variable]
        is_value = variable not in shrinker.fixed
        before, after = (in_words(x) if is_value else str(list(x.shape)) for x in (tensor, now))
        if before != after:
            yield Change(made.variables.get(variable, variable), before, after)


def in_words(tensor: torch.Tensor) -> str:
    """The shape of a tensor, and its values in short."""
    flat = tensor.reshape(-1)
    there = flat.nonzero()[:, 0].tolist()
    shape = str(list(tensor.shape))
    if not there:
        return f"{shape}, all zero"
    if bool((flat == flat[0]).all()):
        return f"{shape}, all {flat[0].item():.6g}"
    if len(there) <= _SHOWN:
        places = tensor.nonzero().tolist()
        listed = ", ".join(
            f"{at}: {flat[position].item():.6g}" for at, position in zip(places, there, strict=True)
        )
        return f"{shape}, zero but for {listed}"
    return f"{shape}, {of_elements(len(there), flat.numel())} not zero"


def _written(
    stack: ExitStack,
    made: Reproduction,
    shrinker: Shrinker,
    scratch: Path,
    finding: str,
    changes: Sequence[Change],
) -> Reproduction:
    """The directory with the smaller launch, and what that writes."""
    import torch

    folder = scratch / "smaller"
    process = _process(stack, made, folder, watched=False)
    process.base()
    results = process.run(shrinker.values, shrinker.sizes, _TRIAL).results
    recorded = made.recorded

    def changed(name: str, value: torch.Tensor | None, kind: str) -> Tensor:
        tensor = recorded.given[name] if kind == "given" else recorded.written[name]
        file = folder / f"{kind}_{len(list(folder.iterdir()))}.pt"
        if value is None:
            return replace(tensor, file=None)
        torch.save(value, file)
        is_kept = kind == "written" or tensor.file is not None
        return replace(
            tensor, shape=tuple(value.shape), stride=tuple(value.stride()),
            file=file if is_kept else None,
        )  # fmt: skip

    given = {n: changed(n, shrinker.values[v], "given") for n, v in made.cut.variables.items()}
    written = {name: changed(name, results.get(name), "written") for name in made.cut.results}
    smaller: Recorded = replace(
        recorded, given={**recorded.given, **given}, written={**recorded.written, **written}
    )
    sizes = {**made.cut.sizes, **{name: str(size) for name, size in shrinker.sizes.items()}}
    rows = [f"| `{x.name}` | {x.before} | {x.after} |" for x in changes]
    table = ("", "Made smaller:", "", "| | before | after |", "|---|---|---|", *rows)
    return made.rewritten(smaller, replace(made.cut, sizes=sizes), (finding, *table))


def _again(
    stack: ExitStack, smaller: Reproduction, scratch: Path, question: Question, watched: bool
) -> str:
    """What a fresh process finds in the directory as it is now; empty if it is another finding."""
    folder = scratch / "again"
    process = _process(stack, smaller, folder, watched)
    sizes: Mapping[str, int] = {k: int(float(x)) for k, x in smaller.cut.sizes.items()}
    kind = question.kind if watched else ""
    try:
        asked, found = _question(
            smaller, process, process.base(), dict(sizes), folder, watched, kind
        )
    except RewriterError:
        return ""
    return found if asked.kind == question.kind else ""
