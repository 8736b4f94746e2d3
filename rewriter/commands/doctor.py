"""`rewriter doctor`: can this be run here, and if not, why."""

from __future__ import annotations

from rewriter.commands._click import argument, command
from rewriter.commands._options import ARTIFACT, JsonOption
from rewriter.commands._output import emit
from rewriter.core.errors import DIFFERS, OK
from rewriter.core.terminal import escape, level_style, say

_MARKS = {True: "ok  ", False: "FAIL", None: "note"}
_STYLES = {True: level_style("good"), False: level_style("error"), None: level_style("warning")}


class Arguments(JsonOption):
    artifact: str | None = argument("[ARTIFACT]", ARTIFACT)


@command(
    Arguments,
    ("this machine", "rewriter doctor"),
    ("can this package be rebuilt and run here?", "rewriter doctor model.pt2"),
)
def act(arguments: Arguments) -> int:
    from rewriter.execution.doctor import diagnose

    checks = diagnose(arguments.artifact)
    if arguments.json:
        from rewriter.commands._documents.doctor import DoctorDocument

        emit(DoctorDocument(checks=tuple(checks)))
    else:
        width = max(len(escape(check.name)) for check in checks)
        for check in checks:
            mark, style = _MARKS[check.ok], _STYLES[check.ok]
            say([(mark, style), (f"  {escape(check.name):<{width}}  {check.found}", "")])
            if check.hint:
                say(f"      {'':<{width}}  {check.hint}")
    return DIFFERS if any(check.ok is False for check in checks) else OK
