"""What a plain run leaves out is written down."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIST = (ROOT / "tests/EXHAUSTIVE.md").read_text(encoding="utf-8")
MARKED = re.compile(r"mark\.exhaustive|\b(?:sampled|one_in|neighbours|examples)\(")


def test_every_file_with_exhaustive_tests_is_in_the_list() -> None:
    marked = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").glob("*/test_*.py")
        if MARKED.search(path.read_text(encoding="utf-8"))
    }
    listed = set(re.findall(r"^\| `(tests/[^`]+)`", LIST, re.MULTILINE))
    assert marked - {"tests/docs/test_exhaustive.py"} == listed
