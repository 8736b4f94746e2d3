"""`rewriter strip`: give back the original, byte for byte."""

from __future__ import annotations

from dataclasses import replace

from rewriter.artifact.opening import open_artifact
from rewriter.artifact.types import Artifact
from rewriter.commands._click import argument, command
from rewriter.commands._deliver import Delivered, among_others, deliver, require_target
from rewriter.commands._options import (
    ARTIFACT,
    OUTPUT,
    OutputOptions,
    output_option,
    refuse_options,
)
from rewriter.commands._output import emit
from rewriter.core import files
from rewriter.core.errors import DIFFERS, OK
from rewriter.core.terminal import message
from rewriter.core.text import counted
from rewriter.instrumentation.strip import strip_wrapper


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
    require_target(arguments, artifact)
    built = None
    if artifact.is_rebuilt:
        from rewriter.commands import _package

        results, built = _package.stripped(artifact)
    else:
        with among_others(artifact):
            results = [strip_wrapper(wrapper) for wrapper in artifact.wrappers]
    is_one = artifact.makes_one(arguments.output)
    path = artifact.wrappers[0].path if is_one and artifact.is_text else artifact.path
    inexact = [result.path for result in results if not result.exact]
    for edited in inexact if artifact.is_text else [path] * bool(inexact):
        message(
            f"warning: {edited} was edited after it was instrumented: "
            "the probes are gone, the edits stay"
        )
    removed = sum(result.removed for result in results)
    has_probes = bool(removed) if built is None else built.changed
    backup = files.backup_path(path.resolve())
    had_backup = arguments.in_place and backup.is_file()
    names = [wrapper.name for wrapper in artifact.wrappers]
    sources = {name: result.source for name, result in zip(names, results, strict=True)}
    delivered = Delivered(changed=False)
    if has_probes or arguments.output or arguments.in_place or arguments.diff or not is_one:
        default = files.restored_path if built is None else built.default
        delivered = deliver(arguments, artifact, sources, default, built)
    if is_one and arguments.in_place and not has_probes:
        delivered = replace(delivered, changed=False, output=None, cache=None, each={})
    exact = not inexact and (built is None or built.exact)
    if arguments.json:
        from rewriter.commands._documents import strip as documents

        if is_one and (artifact.is_text or artifact.is_rebuilt):
            document = documents.StripDocument(
                artifact=str(path), removed=removed, exact=exact, delivered=delivered
            )
            emit(document)
        else:
            emit(documents.directory_document(artifact, results, delivered))
    elif not is_one:
        took = _took_out(arguments, removed) if removed else f"{artifact.path} has no probes"
        if arguments.check or delivered.is_written:
            message(f"{took}: {delivered.tell(artifact.path)}")
    elif not has_probes:
        is_gone = had_backup and not backup.exists()
        about_backup = f"; {backup}, which is the same, is removed" if is_gone else ""
        output = f": {delivered.output}" if delivered.output else ""
        message(f"{path} has no probes{about_backup}{output}")
    elif arguments.check or delivered.is_written:
        message(f"{_took_out(arguments, removed)}: {delivered.tell(path)}")
    return DIFFERS if arguments.check and delivered.changed else OK


def _took_out(arguments: Arguments, lines: int) -> str:
    """The beginning of the message about the lines of probes; `--check` takes none out."""
    return f"{'would take' if arguments.check else 'took'} out {counted(lines, 'line')}"


def _check_probes(arguments: Arguments, artifact: Artifact) -> int:
    """Say of each wrapper whether its probes are what `instrument` writes."""
    from rewriter.instrumentation import probe_check

    idle = "output in_place diff check overwrite"
    refuse_options(arguments, idle, "--check-probes writes nothing")

    artifact.require_sound()
    checks = [(wrapper.name, probe_check.check(wrapper)) for wrapper in artifact.wrappers]
    if artifact.is_rebuilt:
        from rewriter.commands import _package

        checks += _package.check(artifact)
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
        from rewriter.commands._documents.strip import check_document

        emit(check_document(artifact, checks))
    return worst
