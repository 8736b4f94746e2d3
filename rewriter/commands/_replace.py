"""`rewriter replace`: replaces launches of a wrapper, says what that costs, and writes it."""

from __future__ import annotations

from pathlib import Path

from rewriter.artifact.opening import open_artifact
from rewriter.artifact.types import Artifact, Wrapper
from rewriter.commands._deliver import deliver, only_shows, require_target
from rewriter.commands._documents.replace import ReplaceDocument
from rewriter.commands._output import emit
from rewriter.commands._selection import indices
from rewriter.commands._verify import given_graphs, register_operators
from rewriter.commands.replace import Arguments
from rewriter.core.errors import DIFFERS, OK, RewriterError
from rewriter.core.terminal import message
from rewriter.core.text import counted
from rewriter.diagnosis.verification.replacing.insert import replaced
from rewriter.diagnosis.verification.replacing.substitutes import Substitute, substitutes
from rewriter.execution.host_process import HostOutput
from rewriter.execution.runner import RunRequest, seconds_beside
from rewriter.instrumentation.editable import require_plain
from rewriter.model_names.known import Compilations


def act(arguments: Arguments) -> int:
    artifact = open_artifact(arguments.artifact).choose(arguments.wrappers)
    wrapper = artifact.only
    require_plain(wrapper, replace=False)
    require_target(arguments, artifact, probing=True)
    register_operators(arguments.imports)
    chosen = _chosen(arguments, artifact, wrapper)
    made = replaced(wrapper, chosen)
    cost: tuple[float, float] | str = "only what would change is shown"
    if not only_shows(arguments):
        cost = _cost(arguments, artifact, made.source)
    delivered = deliver(arguments, artifact, {wrapper.name: made.source}, _output)
    names = ", ".join(f"#{x.launch.index} {x.launch.kernel}" for x in chosen)
    times = (None, None) if isinstance(cost, str) else cost
    if arguments.json:
        document = ReplaceDocument(
            artifact=str(artifact.path),
            launches=tuple(x.launch.index for x in chosen),
            changed=delivered.changed,
            output=delivered.output,
            backup=delivered.backup,
            diff=delivered.diff,
            before=times[0],
            seconds=times[1],
            unmeasured=cost if isinstance(cost, str) else "",
        )
        emit(document)
    elif arguments.check or delivered.is_written:
        message(
            f"{counted(len(chosen), 'launch')} replaced ({names}): {delivered.tell(wrapper.path)}"
        )
        if delivered.is_written:
            message(_said(cost))
    return DIFFERS if arguments.check and delivered.changed else OK


def _chosen(arguments: Arguments, artifact: Artifact, wrapper: Wrapper) -> list[Substitute]:
    """What stands in the place of the launches. Raises `RewriterError` if one has nothing."""
    wanted = [x for some in indices(arguments.launch, "--launch") for x in some]
    launches = {x.index: x for x in wrapper.located.launches}
    if not wanted:
        raise RewriterError("bad-launches", "--launch names no launch", hint="Such as 3, or 3,7.")
    if missing := [x for x in wanted if x not in launches]:
        raise RewriterError(
            "no-such-launch",
            f"--launch {arguments.launch}: {wrapper.name} has no launch "
            f"{', '.join(f'#{x}' for x in missing)}; it has {counted(len(launches), 'launch')}",
            hint="`rewriter list` has their numbers.",
        )
    given = given_graphs(arguments.graph)
    known = Compilations.of_artifact(artifact).of_wrapper(wrapper)
    graph = given.of(wrapper.plain.data) if given is not None else ""
    graph = graph or (known.lowered if known is not None else "")
    found = substitutes(wrapper, graph, {}, precise=arguments.precise)
    kept = {x.launch.index: x.reason for x in found.kept}
    for number in wanted:
        if number in kept:
            launch = launches[number]
            raise RewriterError(
                "no-substitute",
                f"{wrapper.path}:{launch.line}: launch #{number} {launch.kernel} is not replaced: "
                f"{kept[number]}",
                hint=_HINT if not graph else "",
            )
    return [x for x in found.found if x.launch.index in wanted]


_HINT = (
    "The graph of a wrapper is in Inductor's cache, where the wrapper lies in it, or in the "
    "directory that TORCH_COMPILE_DEBUG=1 leaves: --graph PATH."
)


def _cost(arguments: Arguments, artifact: Artifact, source: bytes) -> tuple[float, float] | str:
    request = RunRequest(
        artifact,
        args=Path(arguments.args) if arguments.args else None,
        imports=arguments.imports,
        output=HostOutput(muted=True),
    )
    try:
        return seconds_beside(request, source)
    except RewriterError as error:
        return error.message


def _said(cost: tuple[float, float] | str) -> str:
    if isinstance(cost, str):
        return f"its cost was not measured: {cost}"
    before, after = cost
    return (
        f"a call takes {after * 1e3:.3g} ms, and took {before * 1e3:.3g} ms ({after / before:.3g}x)"
    )


def _output(path: Path) -> Path:
    return path.with_name(f"{path.stem}.replaced{path.suffix}")
