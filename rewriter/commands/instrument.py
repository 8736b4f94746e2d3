"""`rewriter instrument`: put probes around launches and write the result."""

from __future__ import annotations

from rewriter.artifact.opening import open_artifact
from rewriter.commands._click import Choice, argument, command
from rewriter.commands._deliver import among_others, deliver, require_target
from rewriter.commands._options import ARGS, ARTIFACT, PROBES, WHICH, output_option, refuse_options
from rewriter.commands._output import emit, summary, warn_about
from rewriter.commands._package_options import PackageOptions
from rewriter.commands._selection import ProbeOptions, selection
from rewriter.core import files
from rewriter.core.errors import DIFFERS, OK
from rewriter.core.terminal import message
from rewriter.core.text import counted
from rewriter.core.types import ArgsMode
from rewriter.instrumentation.instrument import instrument_all
from rewriter.instrumentation.matching import with_launches
from rewriter.instrumentation.select import no_probes


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
    artifact = open_artifact(arguments.artifact, models=arguments.models)
    artifact = artifact.choose(arguments.wrappers)
    chosen = selection(arguments, default="print")
    if chosen is None:
        raise no_probes()
    if artifact.is_rebuilt:
        from rewriter.commands import _package

        return _package.instrument(arguments, artifact, chosen, may_replace=arguments.replace)
    idle = "route no_rebuild no_check imports models"
    refuse_options(arguments, idle, f"{artifact.path} is no package")
    require_target(arguments, artifact, probing=True)
    is_one = artifact.makes_one(arguments.output)
    with among_others(artifact):
        making = instrument_all(
            artifact.wrappers,
            chosen,
            artifact.labels(),
            replace=arguments.replace,
            standalone=arguments.standalone,
        )
        if is_one:
            pairs = with_launches(artifact.wrappers, making)
        else:
            pairs = [(x, made()) for x, made in zip(artifact.wrappers, making, strict=True)]
    for wrapper, made in pairs:
        warn_about(made.plan, "" if len(artifact.wrappers) == 1 else f"{wrapper.name}: ")
    if not is_one:
        for name, what in artifact.unread:
            message(f"not read: {name}: {what}")
    sources = {wrapper.name: made.source for wrapper, made in pairs}
    delivered = deliver(arguments, artifact, sources, files.output_path)
    if arguments.json:
        from rewriter.commands._documents import instrument as documents

        if is_one and artifact.is_text:
            emit(documents.InstrumentDocument(result=pairs[0][1], delivered=delivered))
        else:
            emit(documents.directory_document(artifact.path, chosen, pairs, delivered))
    elif arguments.check or delivered.is_written:
        if is_one and artifact.is_text:
            wrapper, made = pairs[0]
            message(f"{summary(made)}: {delivered.tell(wrapper.path)}")
        else:
            for wrapper, made in pairs:
                message(f"{wrapper.name}: {summary(made)}")
            if without := len(artifact.wrappers) - len(pairs):
                message(f"{counted(without, 'wrapper')} without such a launch stay as they are")
            message(delivered.tell(artifact.path))
    return DIFFERS if arguments.check and delivered.changed else OK
