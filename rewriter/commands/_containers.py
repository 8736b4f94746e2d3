"""`instrument` and `strip` of containers: files of torch that hold the text of wrappers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from rewriter.artifact.types import Artifact, Wrapper
from rewriter.commands import _several
from rewriter.commands._options import OutputOptions
from rewriter.commands._output import (
    Delivered,
    emit,
    only_shows,
    summary,
    took_out,
    unified,
    warn_about,
)
from rewriter.core import files, text_diff
from rewriter.core.errors import DIFFERS, OK, RewriterError
from rewriter.core.labels import labels
from rewriter.core.terminal import message, say_text
from rewriter.core.text import counted
from rewriter.instrumentation import containers
from rewriter.instrumentation.instrument import instrument_all
from rewriter.instrumentation.matching import with_launches
from rewriter.instrumentation.strip import strip_wrapper
from rewriter.instrumentation.types import Instrumented, Selection, Stripped


def instrument(
    arguments: OutputOptions,
    artifact: Artifact,
    selection: Selection,
    *,
    replace: bool,
    standalone: bool,
) -> int:
    """Put probes into the wrappers of a container."""
    _refuse_output(arguments, artifact)
    is_alone = len(artifact.wrappers) == 1
    with nullcontext() if is_alone else _several.among_others():
        making = instrument_all(
            artifact.wrappers,
            selection,
            _labels(artifact.wrappers),
            replace=replace,
            standalone=standalone,
        )
        pairs = with_launches(artifact.wrappers, making)
    for wrapper, made in pairs:
        warn_about(made.plan, "" if is_alone else f"{wrapper.name}: ")
    _refuse_folder(arguments, artifact)
    after = containers.probed(artifact, pairs)
    changes = [(wrapper, made.source) for wrapper, made in pairs]
    default = files.output_path(artifact.path)
    delivered = _deliver(arguments, artifact, changes, after, default)
    if arguments.json:
        _emit_instrumented(artifact, selection, pairs, delivered)
    elif arguments.check or delivered.output:
        for wrapper, made in pairs:
            message(f"{wrapper.name}: {summary(made)}")
        if without := len(artifact.wrappers) - len(pairs):
            message(f"{counted(without, 'wrapper')} without such a launch stay as they are")
        message(delivered.tell(artifact.path))
    return DIFFERS if arguments.check and delivered.changed else OK


def _labels(wrappers: Sequence[Wrapper]) -> list[str]:
    """The name of each wrapper in prints: the part of the model that runs it, and the number of
    other parts."""
    names = labels([(wrapper.graph, wrapper.path.name) for wrapper in wrappers])
    result = []
    for wrapper, name in zip(wrappers, names, strict=True):
        parts = wrapper.stored.submodules if wrapper.stored else ()
        others = f" +{len(parts) - 1}" if len(parts) > 1 else ""
        is_named = parts and wrapper.graph == "inference"
        result.append(f"{parts[0]}{others}" if is_named else name)
    return result


def strip(arguments: OutputOptions, artifact: Artifact) -> int:
    """Write a container without its probes."""
    _refuse_output(arguments, artifact)
    results = [(wrapper, strip_wrapper(wrapper)) for wrapper in artifact.wrappers]
    after = containers.stripped(artifact, artifact.wrappers)
    if not after.exact:
        message(
            f"warning: {artifact.path} was edited after it was instrumented: "
            "the probes are gone, the edits stay"
        )
    removed = sum(made.removed for _, made in results)
    changes = [(wrapper, made.source) for wrapper, made in results]
    delivered = Delivered(changed=False)
    if removed or arguments.output or arguments.in_place:
        default = files.restored_path(artifact.path)
        delivered = _deliver(arguments, artifact, changes, after.data, default)
    if arguments.json:
        _emit_stripped(artifact, results, delivered)
    elif not removed:
        message(
            f"{artifact.path} has no probes" + (f": {delivered.output}" if delivered.output else "")
        )
    elif arguments.check or delivered.output:
        message(f"{took_out(arguments, removed)}: {delivered.tell(artifact.path)}")
    return DIFFERS if arguments.check and delivered.changed else OK


def _deliver(
    arguments: OutputOptions,
    artifact: Artifact,
    changes: Sequence[tuple[Wrapper, bytes]],
    after: bytes,
    default: Path,
) -> Delivered:
    """Write a container where the options say; --diff shows the changes of its wrappers."""
    assert artifact.container is not None
    before, path = artifact.container.contents.data, artifact.path
    changed = before != after
    diff = None
    if arguments.diff:
        diff = "".join(unified(wrapper.name, wrapper.source, source) for wrapper, source in changes)
        if not arguments.json:
            say_text(diff, text_diff.style)
    if only_shows(arguments):
        return Delivered(changed, diff=diff)
    if arguments.in_place:
        plain = containers.plain(artifact)
        backup = files.replace(path, after, plain, overwrite=arguments.overwrite)
        return Delivered(changed, str(path), None if backup is None else str(backup), diff)
    target = Path(arguments.output) if arguments.output else default
    files.write(target, after, overwrite=arguments.overwrite)
    return Delivered(changed, str(target), diff=diff)


def _refuse_output(arguments: OutputOptions, artifact: Artifact) -> None:
    artifact.require_sound()
    if arguments.output == "-":
        raise RewriterError(
            "not-text",
            f"{artifact.path} is {_description(artifact)}, and -o - is for text",
            hint="Name a file with -o. --diff prints what changes in the wrappers.",
        )


def _refuse_folder(arguments: OutputOptions, artifact: Artifact) -> None:
    """Refuse to write beside an entry of a cache: torch reads every file there as an entry."""
    if only_shows(arguments):
        return
    output = artifact.path if arguments.in_place or not arguments.output else arguments.output
    folder = Path(output).resolve().parent
    if folder.parent.name == "aotautograd" or folder.parent.parent.name == "fxgraph":
        raise RewriterError(
            "entry-folder",
            f"{folder} holds entries of a cache, and torch reads every file in it as an entry",
            hint="Name a file elsewhere with -o; or leave the entry as it is: `rewriter run -- "
            "COMMAND` puts probes into what a program loads.",
        )


def _description(artifact: Artifact) -> str:
    assert artifact.container is not None
    return artifact.container.form.description


def _each(delivered: Delivered, wrapper: Wrapper, source: bytes) -> Delivered:
    """The result for one wrapper of a container."""
    diff = None if delivered.diff is None else unified(wrapper.name, wrapper.source, source)
    return dataclasses.replace(delivered, changed=wrapper.source != source, diff=diff)


def _emit_instrumented(
    artifact: Artifact,
    selection: Selection,
    pairs: Sequence[tuple[Wrapper, Instrumented]],
    delivered: Delivered,
) -> None:
    from rewriter.commands._documents import instrument as documents

    emit(
        documents.InstrumentDirectoryDocument(
            artifact=str(artifact.path),
            probes=selection.probes,
            wrappers=tuple(
                documents.instrumented_wrapper(
                    wrapper, made, _each(delivered, wrapper, made.source)
                )
                for wrapper, made in pairs
            ),
            changed=delivered.changed,
            output=delivered.output,
        )
    )


def _emit_stripped(
    artifact: Artifact, results: Sequence[tuple[Wrapper, Stripped]], delivered: Delivered
) -> None:
    from rewriter.commands._documents.strip import StripDirectoryDocument, StrippedWrapperEntry

    emit(
        StripDirectoryDocument(
            artifact=str(artifact.path),
            removed=sum(made.removed for _, made in results),
            exact=all(made.exact for _, made in results),
            wrappers=tuple(
                StrippedWrapperEntry(
                    wrapper=wrapper.name,
                    removed=made.removed,
                    exact=made.exact,
                    **vars(_each(delivered, wrapper, made.source)),
                )
                for wrapper, made in results
            ),
            changed=delivered.changed,
            output=delivered.output,
        )
    )
