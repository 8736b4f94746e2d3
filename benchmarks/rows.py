"""The rows of a benchmark's table: what was measured, the reference, and the target."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One figure and its reference, which is measured in the same run or an absolute limit."""

    name: str
    measured: float
    reference: float
    target: float | None = None  # the highest ratio allowed; None: no limit
    unit: str = "ms"  # of `measured` and `reference`

    @property
    def ratio(self) -> float:
        return self.measured / self.reference if self.reference else float("nan")

    @property
    def is_met(self) -> bool:
        return self.target is None or self.ratio <= self.target


def table(rows: Sequence[Row]) -> str:
    """Format the rows as a text table."""
    width = max([len(row.name) for row in rows], default=4)
    lines = [f"{'':{width}}  {'measured':>12}  {'against':>12}  {'ratio':>8}  target"]
    for row in rows:
        target = "" if row.target is None else f"≤ {row.target:g}"
        mark = "" if row.is_met else "  missed"
        lines.append(
            f"{row.name:{width}}  {row.measured:>9.4g} {row.unit}  {row.reference:>9.4g} "
            f"{row.unit}  {row.ratio:>8.3f}  {target}{mark}"
        )
    return "\n".join(lines) + "\n"


def options(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options that every benchmark has."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there, too")
    parser.add_argument("--check", action="store_true", help="exit 1 where a target is missed")
    return parser


def report(rows: Sequence[Row], args: argparse.Namespace, **facts: object) -> int:
    """Print the rows, and write them as JSON if asked to. Returns the exit code."""
    sys.stdout.write(table(rows))
    if args.json is not None:
        document = {
            "python": platform.python_version(),
            "machine": platform.machine(),
            **facts,
            "rows": [{**asdict(row), "ratio": row.ratio, "met": row.is_met} for row in rows],
        }
        args.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return int(args.check and not all(row.is_met for row in rows))
