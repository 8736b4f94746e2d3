"""`rewriter replace`: replaces launches of a wrapper, says what that costs, and writes it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rewriter.artifact.opening import open_artifact
from rewriter.artifact.package.model import Package
from rewriter.artifact.types import Artifact, Wrapper
from rewriter.commands._deliver import deliver, only_shows, require_target
from rewriter.commands._documents.replace import ReplaceDocument
from rewriter.commands._options import refuse_options
from rewriter.commands._output import emit
from rewriter.commands._package import build, tell_built, tell_checked
from rewriter.commands._selection import indices
from rewriter.commands._verify import given_graphs, register_operators
from rewriter.commands.replace import Arguments
from rewriter.core.errors import DIFFERS, OK, RewriterError
from rewriter.core.terminal import message
from rewriter.core.text import counted
from rewriter.diagnosis.verification.replacing.insert import (
    replaced,
    replaced_in_package,
    selection_of,
)
from rewriter.diagnosis.verification.replacing.insert_cpp import NotCalledError
from rewriter.diagnosis.verification.replacing.substitutes import Substitute, substitutes
from rewriter.execution.runner import RunRequest, seconds_beside
from rewriter.instrumentation.editable import require_plain
from rewriter.instrumentation.rebuild.probed_models import Probed
from rewriter.instrumentation.types import Instrumented, Plan
from rewriter.locate.types import Launch
from rewriter.model_names.known import Compilations


def act(arguments: Arguments) -> int:
    artifact = open_artifact(arguments.artifact, models=arguments.models)
    artifact = artifact.choose(arguments.wrappers)
    wrapper = artifact.only
    require_plain(wrapper, replace=False)
    if not artifact.is_rebuilt:
        if not wrapper.is_module:
            raise RewriterError(
                "no-substitute",
                f"{wrapper.path} belongs to a package, which has the file of the operators that "
                "its launches would be replaced by",
                hint="Replace them in the .pt2 package.",
            )
        refuse_options(arguments, "route no_check models", f"{artifact.path} is no package")
        require_target(arguments, artifact, probing=True)
    register_operators(arguments.imports)
    chosen = _chosen(arguments, artifact, wrapper)
    names = ", ".join(f"#{x.launch.index} {x.launch.kernel}" for x in chosen)
    said = f"{counted(len(chosen), 'launch')} replaced ({names})"
    cost: tuple[float, float] | str = "only what would change is shown"
    if artifact.is_rebuilt:
        make = partial(_in_package, wrapper=wrapper, chosen=chosen)
        done = build(arguments, artifact, make, _output, may_replace=False)
        delivered = done.delivered
        if delivered.output is not None:
            plain = open_artifact(delivered.backup or artifact.path, models=arguments.models)
            cost = _cost(arguments, plain, Path(delivered.output))
        if not arguments.json and delivered.is_written:
            tell_built(done.built, 0, said)
            tell_checked(done.built)
            said = "written"
    else:
        made = replaced(wrapper, chosen)
        if not only_shows(arguments):
            cost = _cost(arguments, artifact, made.source)
        delivered = deliver(arguments, artifact, {wrapper.name: made.source}, _output)
    times = (None, None) if isinstance(cost, str) else cost
    if arguments.json:
        document = ReplaceDocument(
            artifact=str(artifact.path),
            launches=tuple(x.launch.index for x in chosen),
            delivered=delivered,
            before=times[0],
            seconds=times[1],
            unmeasured=cost if isinstance(cost, str) else "",
        )
        emit(document)
    elif arguments.check or delivered.is_written:
        message(f"{said}: {delivered.tell(wrapper.file)}")
        if delivered.is_written:
            message(_said(cost))
    return DIFFERS if arguments.check and delivered.changed else OK


def _in_package(
    package: Package, *, wrapper: Wrapper, chosen: Sequence[Substitute]
) -> Sequence[Probed]:
    """What is put into a package. Raises `RewriterError` if its operators cannot be called."""
    (model,) = package.models
    try:
        edited, nodes = replaced_in_package(wrapper, chosen, model.device)
    except NotCalledError as error:
        raise _no_substitute(wrapper, error.launch, str(error)) from error
    launches = tuple(x.launch for x in chosen)
    plan = Plan(edited.insertions, launches, (), (), ())
    result = Instrumented(
        wrapper.path, edited.source, wrapper.plain.data, plan, selection_of(chosen)
    )
    return [Probed(model, result, operators=tuple(nodes))]


def _no_substitute(wrapper: Wrapper, launch: Launch, why: str, hint: str = "") -> RewriterError:
    return RewriterError(
        "no-substitute",
        f"{wrapper.path}:{launch.line}: launch #{launch.index} {launch.kernel} is not replaced: "
        f"{why}",
        hint=hint,
    )


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
    if given is not None and (why := given.misfit(wrapper, graph)):
        raise RewriterError(
            "no-graph",
            f"{arguments.graph} holds the graph of another wrapper than {wrapper.path}: {why}",
            hint="TORCH_COMPILE_DEBUG=1 leaves the graph beside the code of its wrapper.",
        )
    graph = graph or (known.lowered if known is not None else "")
    found = substitutes(wrapper, graph, {}, precise=arguments.precise)
    kept = {x.launch.index: x.reason for x in found.kept}
    for number in wanted:
        if number in kept:
            hint = _HINT if not graph else ""
            raise _no_substitute(wrapper, launches[number], kept[number], hint)
    return [x for x in found.found if x.launch.index in wanted]


_HINT = (
    "The graph of a wrapper is in Inductor's cache, where the wrapper lies in it, or in the "
    "directory that TORCH_COMPILE_DEBUG=1 leaves: --graph PATH."
)


def _cost(
    arguments: Arguments, artifact: Artifact, other: bytes | Path
) -> tuple[float, float] | str:
    request = RunRequest(
        artifact,
        args=Path(arguments.args) if arguments.args else None,
        imports=arguments.imports,
        output="muted",
    )
    try:
        return seconds_beside(request, other)
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
