"""`rewriter instrument`: put probes around launches and write the result."""

from __future__ import annotations

from rewriter.artifact.opening import open_artifact
from rewriter.artifact.types import Artifact, Wrapper
from rewriter.commands._click import Choice, argument, command
from rewriter.commands._options import ARGS, ARTIFACT, PROBES, WHICH, output_option
from rewriter.commands._output import deliver, emit, summary, warn_about
from rewriter.commands._package_options import PackageOptions, refuse_package_options
from rewriter.commands._pairs import cache_with
from rewriter.commands._routes import makes_several
from rewriter.commands._selection import ProbeOptions, selection
from rewriter.core import files
from rewriter.core.errors import DIFFERS, OK
from rewriter.core.labels import labels
from rewriter.core.terminal import message
from rewriter.core.types import ArgsMode
from rewriter.instrumentation.instrument import instrument_all, instrument_wrapper
from rewriter.instrumentation.select import no_probes
from rewriter.instrumentation.types import Selection


class Arguments(PackageOptions, ProbeOptions):
    artifact: str = argument("ARTIFACT", ARTIFACT)
    output: str | None = output_option(
        "<stem>.instrumented<ext> beside the input; for several wrappers a directory"
    )
    dormant: bool = PROBES.flag(
        "--dormant",
        "the probes (default: all) do nothing until `rewriter control` switches them on",
    )
    which: ArgsMode | None = PROBES.option("--args", ARGS, type=Choice(WHICH))
    replace: bool = PROBES.flag("--replace", "replace the probes of an instrumented file")
    standalone: bool = PROBES.flag(
        "--standalone",
        "put the recorder into the file, for machines without inductor-rewriter; in Python it "
        "has names, nan, print, save, sync and time",
    )


@command(
    Arguments,
    (
        "statistics around every launch, into output_code.instrumented.py",
        "rewriter instrument output_code.py --probe print",
    ),
    (
        "see what would change around two launches, and write nothing",
        "rewriter instrument output_code.py --probe print,save --launches 0,2 --diff",
    ),
    (
        "in place; `rewriter strip` gives every byte back",
        "rewriter instrument output_code.py --in-place --probe hash --kernels '*addmm*'",
    ),
    (
        "a package, without its model",
        "rewriter instrument model.pt2 --probe print -o model.probed.pt2",
    ),
)
def act(arguments: Arguments) -> int:
    artifact = open_artifact(arguments.artifact, models=arguments.models or None)
    artifact = artifact.choose(arguments.wrappers)
    chosen = selection(arguments, default="print")
    if chosen is None:
        raise no_probes()
    if artifact.package is not None:
        from rewriter.commands import _package

        return _package.instrument(arguments, artifact, chosen, may_replace=arguments.replace)
    refuse_package_options(arguments, artifact.path)
    if artifact.container is not None:
        from rewriter.commands import _containers

        return _containers.instrument(
            arguments, artifact, chosen, replace=arguments.replace, standalone=arguments.standalone
        )
    if makes_several(arguments, artifact):
        return _instrument_all(arguments, artifact, chosen)
    return _instrument_one(arguments, artifact.only, chosen)


def _instrument_one(arguments: Arguments, wrapper: Wrapper, chosen: Selection) -> int:
    """Instrument one file."""
    result = instrument_wrapper(
        wrapper, chosen, replace=arguments.replace, standalone=arguments.standalone
    )
    warn_about(result.plan)
    delivered = deliver(
        arguments,
        wrapper.path,
        wrapper.source,
        result.source,
        default=files.output_path(wrapper.path),
        plain=result.original,
        cache=cache_with(wrapper),
    )
    if arguments.json:
        from rewriter.commands._documents import instrument as documents

        emit(documents.instrument_document(result, delivered))
    elif arguments.check or delivered.output:
        message(f"{summary(result)}: {delivered.tell(wrapper.path)}")
    return DIFFERS if arguments.check and delivered.changed else OK


def _instrument_all(arguments: Arguments, artifact: Artifact, chosen: Selection) -> int:
    """Instrument the wrappers of a directory or a log."""
    from rewriter.commands import _several

    _several.require_target(arguments, artifact)
    with _several.among_others():
        among = labels([(wrapper.graph, wrapper.name) for wrapper in artifact.wrappers])
        making = instrument_all(
            artifact.wrappers,
            chosen,
            among,
            replace=arguments.replace,
            standalone=arguments.standalone,
        )
        results = [made() for made in making]
    pairs = list(zip(artifact.wrappers, results, strict=True))
    for one, made in pairs:
        warn_about(made.plan, f"{one.name}: ")
    for name, what in artifact.unread:
        message(f"not read: {name}: {what}")
    delivered = _several.deliver(
        arguments,
        artifact,
        [_several.Result(wrapper, made.source, made.original) for wrapper, made in pairs],
    )
    changed = any(delivery.changed for delivery in delivered)
    if arguments.json:
        from rewriter.commands._documents import instrument as documents

        emit(
            documents.InstrumentDirectoryDocument(
                artifact=str(artifact.path),
                probes=chosen.probes,
                wrappers=tuple(
                    documents.instrumented_wrapper(wrapper, made, where)
                    for (wrapper, made), where in zip(pairs, delivered, strict=True)
                ),
                changed=changed,
                output=arguments.output,
            )
        )
    elif arguments.check or delivered[0].output:
        for wrapper, made in pairs:
            message(f"{wrapper.name}: {summary(made)}")
        message(_several.where(arguments, delivered))
    return DIFFERS if arguments.check and changed else OK
