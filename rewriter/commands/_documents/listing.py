"""The document of `list`."""

from __future__ import annotations

from collections.abc import Mapping

from rewriter.artifact.types import Artifact, OpenWrapper
from rewriter.commands._documents.artifacts import (
    ArgumentEntry,
    DamagedEntry,
    InputEntry,
    LaunchEntry,
    ListDocument,
    WrapperEntry,
    WrapperUnrecognisedEntry,
)
from rewriter.dump.names import Names
from rewriter.locate.types import Launch


def list_document(artifact: Artifact, names: Mapping[str, Names]) -> ListDocument:
    """The launches of an artifact; `names` are those of the model, by wrapper."""
    return ListDocument(
        launches=tuple(launch_entry(one, names.get(one.wrapper)) for one in artifact.launches),
        unrecognised=tuple(
            WrapperUnrecognisedEntry(line=call.line, text=call.text, wrapper=call.wrapper)
            for call in artifact.unrecognised
        ),
        wrappers=tuple(_wrapper_entry(wrapper) for wrapper in artifact.wrappers),
        inputs=tuple(
            InputEntry(wrapper=wrapper, input=name, name=given.name, at=given.at)
            for wrapper, known in names.items()
            for name, given in known.inputs.items()
        ),
        damaged=tuple(
            DamagedEntry(wrapper=name, error=error.slug, message=error.message)
            for name, error in artifact.damaged
        ),
    )


def launch_entry(launch: Launch, names: Names | None = None) -> LaunchEntry:
    """A launch; what the source does not say of its operators, the names do."""
    nodes = launch.source_nodes or (names or Names()).nodes.get(launch.index, ())
    return LaunchEntry(
        index=launch.index,
        scope=launch.scope,
        kernel=launch.kernel,
        kind=launch.kind,
        line=launch.line,
        args=tuple(
            ArgumentEntry(name=x.name, expr=x.expr, buffer=x.buffer, role=x.role, type=x.type)
            for x in launch.args
        ),
        origins=launch.origins,
        source_nodes=nodes,
        wrapper=launch.wrapper,
    )


def _wrapper_entry(wrapper: OpenWrapper) -> WrapperEntry:
    return WrapperEntry(
        wrapper=wrapper.name,
        graph=wrapper.graph,
        file=str(wrapper.inside or wrapper.path),
        launches=len(wrapper.launches),
    )
