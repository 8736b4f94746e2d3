"""`rewriter instrument`: put probes around launches and write the result."""

from __future__ import annotations

import argparse
from typing import Any

from rewriter import api, write
from rewriter.commands._common import (
    add_output_options,
    add_probe_options,
    deliver,
    emit_json,
    message,
    selection,
    warn_about,
)
from rewriter.errors import DIFFERS, OK
from rewriter.types import Instrumented

ORDER = 20


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("instrument", help="put probes around the launches")
    parser.add_argument("artifact", metavar="ARTIFACT")
    add_output_options(parser, "default: <stem>.instrumented<ext> beside the input")
    parser.add_argument(
        "--replace", action="store_true", help="exchange the probes of an instrumented file"
    )
    parser.add_argument(
        "--standalone",
        action="store_true",
        help="embed the runtime, for machines without inductor-rewriter",
    )
    add_probe_options(parser)
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    artifact = api.open(arguments.artifact)
    wrapper = artifact.only
    result = api.instrument(
        artifact,
        selection(arguments, default="print") or api.select(()),
        replace=arguments.replace,
        standalone=arguments.standalone,
    )
    warn_about(result.plan)
    told = deliver(
        arguments,
        wrapper.path,
        wrapper.source,
        result.source,
        write.output_path(wrapper.path),
    )
    if arguments.json:
        _emit(result, told)
    elif told:
        message(f"{_summary(result)}: {told}")
    return DIFFERS if arguments.check and result.source != wrapper.source else OK


def _summary(result: Instrumented) -> str:
    total = len(result.plan.probed) + len({skipped.launch.index for skipped in result.plan.skipped})
    if not total:
        return "0 launches, so no probes"
    probes = ", ".join(result.selection.probes)
    return f"{probes} around {len(result.plan.probed)} of {total} launches selected"


def _emit(result: Instrumented, told: str) -> None:
    emit_json(
        "instrument",
        {
            "artifact": str(result.path),
            "probes": list(result.selection.probes),
            "launches": [launch.index for launch in result.plan.probed],
            "skipped": [
                {"launch": skipped.launch.index, "reason": skipped.reason}
                for skipped in result.plan.skipped
            ],
            "unrecognised": [
                {"line": call.line, "text": call.text} for call in result.plan.unrecognised
            ],
            "result": told,
        },
    )
