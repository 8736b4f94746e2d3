"""`rewriter strip`: give back the original, byte for byte."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rewriter import api
from rewriter.commands._common import add_output_options, deliver, emit_json, message
from rewriter.errors import DIFFERS, OK

ORDER = 30


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("strip", help="take the probes out again")
    parser.add_argument("artifact", metavar="ARTIFACT")
    add_output_options(parser, "default: the name without .instrumented, or <stem>.stripped<ext>")
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    result = api.strip(arguments.artifact)
    path = result.path
    if not result.exact:
        message(
            f"warning: {path} was edited after it was instrumented: "
            "the probes are gone, the edits stay"
        )
    if result.removed:
        told = deliver(arguments, path, result.instrumented, result.source, _output_path(path))
        told = f"took out {result.removed} lines: {told}" if told else ""
    elif arguments.output and not arguments.check:
        told = f"{path} has no probes: " + deliver(
            arguments, path, result.instrumented, result.source, path
        )
    else:
        told = f"{path} has no probes; nothing to do"
    if arguments.json:
        emit_json(
            "strip",
            {
                "artifact": str(path),
                "removed": result.removed,
                "exact": result.exact,
                "result": told,
            },
        )
    elif told:
        message(told)
    return DIFFERS if arguments.check and result.removed else OK


def _output_path(path: Path) -> Path:
    """`x.instrumented.py` came from `x.py`, which usually still stands beside it."""
    original = path.with_name(path.name.replace(".instrumented", ""))
    return path.with_name(f"{path.stem}.stripped{path.suffix}") if original == path else original
