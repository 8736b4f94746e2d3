"""`rewriter list`: every launch of an artifact, and every call that nobody recognised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rewriter.artifact.locate_all import locate_all
from rewriter.artifact.opening import open_artifact
from rewriter.artifact.recognise import is_library
from rewriter.artifact.types import Artifact, Wrapper
from rewriter.commands._click import argument, command
from rewriter.commands._options import ARTIFACT, OUTPUT, WhichOptions
from rewriter.commands._output import emit
from rewriter.core.errors import DIFFERS, OK
from rewriter.core.terminal import Line, message, say, table
from rewriter.core.text import counted
from rewriter.dump.names import Names, SourceLine, listed
from rewriter.locate.races import find_races
from rewriter.locate.types import Launch
from rewriter.model_names.known import Compilations

_SHOWN = 4  # names of parts and layers of a model


class Arguments(WhichOptions):
    artifact: str = argument("ARTIFACT", ARTIFACT)
    sources: bool = OUTPUT.flag(
        "--sources",
        "quote the lines of the model, and the nodes of the graph that each launch computes",
    )
    strict: bool = OUTPUT.flag(
        "--strict",
        "exit 1 if a call is not recognised, or a launch does not wait for another stream",
    )


@command(
    Arguments,
    ("the launches of a wrapper", "rewriter list output_code.py"),
    ("of all wrappers that a compilation left", "rewriter list torch_compile_debug"),
    ("of the backward graphs alone", "rewriter list torch_compile_debug --wrapper backward"),
    ("which lines of the model each launch computes", "rewriter list output_code.py --sources"),
    ("a package, for a script", "rewriter list model.pt2 --json"),
    ("the symbols of a library without its source", "rewriter list model.so"),
)
def act(arguments: Arguments) -> int:
    if is_library(Path(arguments.artifact)):
        from rewriter.commands import _library

        return _library.show(arguments, Path(arguments.artifact))
    artifact = open_artifact(arguments.artifact, models=arguments.models, kernels=True)
    artifact = artifact.choose(arguments.wrappers)
    locate_all(artifact.wrappers)
    launches, unrecognised = artifact.launches, artifact.unrecognised
    compilations = Compilations.of_artifact(artifact)
    names: dict[str, Names] = {}
    if any(map(compilations.knows, artifact.wrappers)):
        from rewriter.model_names.names import of_wrappers

        names = of_wrappers(artifact.wrappers, compilations)
    races = [
        (wrapper.name, race)
        for wrapper in artifact.wrappers
        for race in find_races(wrapper.located, wrapper.launches)
    ]
    if arguments.json:
        from rewriter.commands._documents.list import list_document

        emit(list_document(artifact, names, races))
    else:
        for wrapper in artifact.wrappers:
            known = names.get(wrapper.name, Names())
            is_one_of_several = wrapper.stored.submodules or known.partner
            if len(artifact.wrappers) > 1 or is_one_of_several:
                say(_head(wrapper, known), style="bold")
            if wrapper.launches and arguments.sources:
                say(*_sources(wrapper.launches, known))
            elif wrapper.launches:
                say(*_table(wrapper.launches, known))
            elif wrapper.is_fragment:
                say(*_kernels(wrapper))
            if wrapper.is_fragment:
                from rewriter.artifact.posted import described

                for line in described(wrapper):
                    message(line)
            if wrapper.replaced:
                message(f"{wrapper.name}: {_replaced(wrapper)} by what the graph says")
            elif wrapper.probes is not None:
                message(f"{wrapper.name} is instrumented with {', '.join(wrapper.probes.probes)}")
        for name, race in races:
            message(f"race: {name}: {race.label} {race.sentence}")
        for call in unrecognised:
            message(f"warning: unrecognised call at {call.wrapper}:{call.line}: {call.text}")
        for name, what in artifact.unread:
            message(f"not read: {name}: {what}")
        for name, error in artifact.damaged:
            message(f"not read: {name}: {error.message}")
        for file, why in compilations.damaged:
            message(f"not read: {file}: {why}")
        message(
            f"{counted(len(launches), 'launch')}, "
            f"{counted(len(unrecognised), 'unrecognised call')}{_graphs(artifact)}"
        )
    return DIFFERS if arguments.strict and (unrecognised or races) else OK


def _replaced(wrapper: Wrapper) -> str:
    names = (f"#{x.index} {x.kernel}" for x in wrapper.launches if x.index in wrapper.replaced)
    return f"{counted(len(wrapper.replaced), 'launch')} replaced ({', '.join(names)})"


def _kernels(wrapper: Wrapper) -> Sequence[Line]:
    """The kernels of a text without launches, and what their parameters are."""
    from rewriter.artifact.kernel_sources import find_kernels
    from rewriter.locate.python.kernel_functions import parameters_of

    rows = [["line", "kernel", "reads", "writes", "numbers"]]
    for kernel in find_kernels(wrapper):
        known = parameters_of(kernel.text) or ()
        tensors = [parameter for parameter in known if parameter.type == "tensor"]
        rows.append(
            [
                str(wrapper.plain.line_of(kernel.start)),
                kernel.name,
                " ".join(x.name for x in tensors if x.role != "out"),
                " ".join(x.name for x in tensors if x.role != "in"),
                " ".join(x.name for x in known if x.type != "tensor"),
            ]
        )
    return table(rows)


def _head(wrapper: Wrapper, names: Names) -> str:
    """What stands above the launches of one of several wrappers."""
    about: list[str] = []
    if wrapper.graph != "inference":
        about.append(names.part or wrapper.graph)
    elif names.graph:
        about.append(f"inference of {names.graph}")
    about += _some(wrapper.stored.submodules)
    if wrapper.stored.layers:
        about.append(f"of {', '.join(_some(wrapper.stored.layers))}")
    return f"{wrapper.name}: {', '.join(about)}".rstrip()


def _sources(launches: tuple[Launch, ...], names: Names) -> Iterator[Line]:
    """Each launch with the lines of the model, and the nodes of the graph, that it computes."""
    for launch in launches:
        yield f"#{launch.index} {launch.kernel} (line {launch.line})"
        yield from (f"  {line}" for line in names.lines.get(launch.index, ()))
        yield from (f"    {node}" for node in names.computes.get(launch.index, ()))
        if launch.index not in names.lines and launch.index not in names.computes:
            nodes = " ".join(launch.source_nodes or names.nodes.get(launch.index, ()))
            yield f"  no line of the model is known{nodes and f'; source nodes: {nodes}'}"


def _some(names: Sequence[str]) -> list[str]:
    """The first names of many, and the last."""
    return [*names] if len(names) <= _SHOWN else [*names[: _SHOWN - 1], "…", names[-1]]


def _graphs(artifact: Artifact) -> str:
    """How many graphs of which sort there are, if a model is trained."""
    counts = Counter(wrapper.graph for wrapper in artifact.wrappers)
    if not counts.keys() - {"inference"}:
        return ""
    there = (f"{count} {graph}" for graph, count in sorted(counts.items(), reverse=True))
    return f"; graphs: {', '.join(there)}"


def _table(launches: tuple[Launch, ...], names: Names) -> Sequence[Line]:
    given = {name: value.name for name, value in names.inputs.items() if value.name}
    lines = names.lines
    head = ["#", "line", "kind", "kernel", "reads", "writes", "source nodes"]
    rows = [[*head, *(["model"] if lines else [])]]
    for launch in launches:
        tensors = launch.tensors
        rows.append(
            [
                str(launch.index),
                str(launch.line),
                launch.kind,
                launch.kernel,
                _names((a.name for a in tensors if a.role != "out"), given),
                _names((a.name for a in tensors if a.role != "in"), given),
                " ".join(launch.source_nodes or names.nodes.get(launch.index, ())),
                *([_place(lines.get(launch.index, ()))] if lines else []),
            ]
        )
    return table(rows)


def _place(lines: Sequence[SourceLine]) -> str:
    """The lines of the model in few words, and the text of the first."""
    return " ".join(filter(None, (listed(lines), lines[0].code))) if lines else ""


def _names(names: Iterable[str], given: Mapping[str, str]) -> str:
    """Each name once, an input with what it is in the model."""
    each = dict.fromkeys(names)
    return " ".join(f"{name}={given[name]}" if name in given else name for name in each)
