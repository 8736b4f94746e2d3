"""`rewriter doctor`: can this be run here, and if not, why."""

from __future__ import annotations

import argparse
from typing import Any

from rewriter.commands._common import emit_json
from rewriter.errors import DIFFERS, OK

ORDER = 50
_MARKS = {True: "ok  ", False: "FAIL", None: "note"}


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("doctor", help="check this machine, and an artifact against it")
    parser.add_argument("artifact", metavar="ARTIFACT", nargs="?")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    from rewriter.diagnosis import diagnose

    checks = diagnose(arguments.artifact)
    if arguments.json:
        emit_json("doctor", {"checks": [vars(check) for check in checks]})
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            print(f"{_MARKS[check.ok]}  {check.name:<{width}}  {check.found}")
            if check.hint:
                print(f"      {'':<{width}}  {check.hint}")
    return DIFFERS if any(check.ok is False for check in checks) else OK
