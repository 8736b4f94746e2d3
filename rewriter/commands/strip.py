"""`rewriter strip`: give back the original, byte for byte."""

from __future__ import annotations

import argparse
from typing import Any

from rewriter import api, write
from rewriter.commands import _package
from rewriter.commands._common import Delivered, add_output_options, deliver, emit_json, message
from rewriter.errors import DIFFERS, OK

ORDER = 30


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("strip", help="take the probes out again")
    parser.add_argument("artifact", metavar="ARTIFACT")
    add_output_options(parser, "default: the name without .instrumented, or <stem>.stripped<ext>")
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    artifact = api.open(arguments.artifact)
    if artifact.package is not None:
        return _package.strip(arguments, artifact)
    result = api.strip(artifact)
    path = result.path
    if not result.exact:
        message(
            f"warning: {path} was edited after it was instrumented: "
            "the probes are gone, the edits stay"
        )
    delivered = Delivered(changed=False)
    if result.removed or arguments.output:
        delivered = deliver(
            arguments,
            path,
            result.instrumented,
            result.source,
            default=write.restored_path(path),
            plain=result.source,
        )
    if arguments.json:
        emit_json(
            "strip",
            {
                "artifact": str(path),
                "removed": result.removed,
                "exact": result.exact,
                **vars(delivered),
            },
        )
    elif not result.removed:
        message(f"{path} has no probes" + (f": {delivered.output}" if delivered.output else ""))
    elif arguments.check or delivered.output:
        message(f"took out {result.removed} lines: {delivered.tell(path)}")
    return DIFFERS if arguments.check and delivered.changed else OK
