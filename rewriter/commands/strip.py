"""`rewriter strip`: give back the original, byte for byte."""

from __future__ import annotations

from rewriter.artifact.opening import open_artifact
from rewriter.artifact.types import Artifact, Wrapper
from rewriter.commands._click import argument, command
from rewriter.commands._options import ARTIFACT, OUTPUT, OutputOptions, output_option, refuse_idle
from rewriter.commands._output import Delivered, deliver, emit, took_out
from rewriter.commands._pairs import cache_with
from rewriter.commands._routes import makes_several
from rewriter.core import files
from rewriter.core.errors import DIFFERS, OK
from rewriter.core.terminal import message
from rewriter.instrumentation.strip import strip_wrapper
from rewriter.instrumentation.types import Stripped


class Arguments(OutputOptions):
    artifact: str = argument("ARTIFACT", ARTIFACT)
    output: str | None = output_option("the name without .instrumented, or <stem>.stripped<ext>")
    check_probes: bool = OUTPUT.flag(
        "--check-probes",
        "write nothing; exit 1 unless every byte of the probes is what instrument writes",
    )


@command(
    Arguments,
    ("get the original back", "rewriter strip output_code.instrumented.py -o restored.py"),
    ("in place", "rewriter strip output_code.py --in-place"),
    ("does it have probes? exit code 1 if so", "rewriter strip output_code.py --check"),
)
def act(arguments: Arguments) -> int:
    artifact = open_artifact(arguments.artifact).choose(arguments.wrappers)
    if arguments.check_probes:
        return _check_probes(arguments, artifact)
    if artifact.package is not None:
        from rewriter.commands import _package

        return _package.strip(arguments, artifact)
    if artifact.container is not None:
        from rewriter.commands import _containers

        return _containers.strip(arguments, artifact)
    if makes_several(arguments, artifact):
        return _strip_all(arguments, artifact)
    return _strip_one(arguments, artifact.only)


def _strip_one(arguments: Arguments, wrapper: Wrapper) -> int:
    """Strip one file."""
    result = strip_wrapper(wrapper)
    path = result.path
    _warn(result)
    delivered = Delivered(changed=False)
    backup = files.backup_path(path.resolve())
    had_backup = arguments.in_place and backup.is_file()
    if result.removed or arguments.output or arguments.in_place:
        delivered = deliver(
            arguments,
            path,
            result.instrumented,
            result.source,
            default=files.restored_path(path),
            plain=result.source,
            cache=cache_with(wrapper),
        )
    if not result.removed and arguments.in_place:
        delivered = Delivered(changed=False)
    if arguments.json:
        from rewriter.commands._documents.strip import StripDocument

        emit(
            StripDocument(
                artifact=str(path), removed=result.removed, exact=result.exact, **vars(delivered)
            )
        )
    elif not result.removed:
        removed = had_backup and not backup.exists()
        about_backup = f"; {backup}, which is the same, is removed" if removed else ""
        output = f": {delivered.output}" if delivered.output else ""
        message(f"{path} has no probes{about_backup}{output}")
    elif arguments.check or delivered.output:
        message(f"{took_out(arguments, result.removed)}: {delivered.tell(path)}")
    return DIFFERS if arguments.check and delivered.changed else OK


def _check_probes(arguments: Arguments, artifact: Artifact) -> int:
    """Say of each wrapper whether its probes are what `instrument` writes."""
    from rewriter.instrumentation import probe_check

    given = {
        "-o": arguments.output,
        "--in-place": arguments.in_place,
        "--diff": arguments.diff,
        "--check": arguments.check,
        "--overwrite": arguments.overwrite,
    }
    refuse_idle(given, "--check-probes writes nothing")

    artifact.require_sound()
    checks = [(wrapper.name, probe_check.check(wrapper)) for wrapper in artifact.wrappers]
    if artifact.package is not None and artifact.package.manifest is not None:
        from rewriter.rebuild import built

        checks.append((artifact.path.name, built.check(artifact.package, artifact.wrappers)))
    worst = OK
    for name, result in checks:
        if result is None:
            message(f"{name} has no probes")
        elif result.state == "verified":
            message(f"{name}: the probes are what instrument writes")
        else:
            worst = DIFFERS
            states = {"changed": "not what instrument writes", "unverified": "not checked"}
            message(f"{name}: the probes are {states[result.state]}: {result.reason}")
    if arguments.json:
        from rewriter.commands._documents.strip import (
            CheckedWrapperEntry,
            ProbeCheckEntry,
            StripCheckDocument,
        )

        wrappers = tuple(
            CheckedWrapperEntry(
                wrapper=name, check=None if check is None else ProbeCheckEntry(**vars(check))
            )
            for name, check in checks
        )
        emit(StripCheckDocument(artifact=str(artifact.path), wrappers=wrappers))
    return worst


def _strip_all(arguments: Arguments, artifact: Artifact) -> int:
    """Strip the wrappers of a directory."""
    from rewriter.commands import _several

    _several.require_target(arguments, artifact)
    with _several.among_others():
        results = [strip_wrapper(wrapper) for wrapper in artifact.wrappers]
    for result in results:
        _warn(result)
    pairs = list(zip(artifact.wrappers, results, strict=True))
    delivered = _several.deliver(
        arguments,
        artifact,
        [_several.Result(wrapper, made.source, made.source) for wrapper, made in pairs],
    )
    removed = sum(result.removed for result in results)
    changed = any(delivery.changed for delivery in delivered)
    if arguments.json:
        from rewriter.commands._documents.strip import StripDirectoryDocument, StrippedWrapperEntry

        emit(
            StripDirectoryDocument(
                artifact=str(artifact.path),
                removed=removed,
                exact=all(result.exact for result in results),
                wrappers=tuple(
                    StrippedWrapperEntry(
                        wrapper=wrapper.name, removed=made.removed, exact=made.exact, **vars(where)
                    )
                    for (wrapper, made), where in zip(pairs, delivered, strict=True)
                ),
                changed=changed,
                output=arguments.output,
            )
        )
    elif arguments.check or delivered[0].output:
        took = took_out(arguments, removed) if removed else f"{artifact.path} has no probes"
        message(f"{took}: {_several.where(arguments, delivered)}")
    return DIFFERS if arguments.check and changed else OK


def _warn(result: Stripped) -> None:
    if not result.exact:
        message(
            f"warning: {result.path} was edited after it was instrumented: "
            "the probes are gone, the edits stay"
        )
