"""CPU seconds of each file of tests, its processes included: what `make slow` prints.

`tests/times.json` has what each file took when it was last measured; `tests/conftest.py` has the
files run in its order. Nothing fails on a time: machines differ, and so do runs. What is much above
its row, on the scale of this machine, is marked.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import warm

TESTS = Path(__file__).parents[1]
TABLE = TESTS / "times.json"
# A file below has no row of its own; it is among `OTHERS`.
SMALL = 2.0
OTHERS = "others"
# What a worker does besides its tests: Python, the collection.
AROUND = "starts and collections"
# What is above its row by more than this, in all and in proportion, is marked.
_SECONDS, _SHARE = 2.0, 1.3
_TICK = os.sysconf("SC_CLK_TCK")


def expected() -> dict[str, float]:
    """The table: seconds by file, relative to `tests/`."""
    table: dict[str, float] = json.loads(TABLE.read_text(encoding="utf-8"))
    return table


def cpu_seconds(process: int | str = "self") -> float:
    """What a process has used, with all below it that runs or was waited for."""
    try:
        # The name of the program, in brackets, may have spaces.
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        threads = list(Path(f"/proc/{process}/task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return 0.0  # it has ended: whoever waits for it has its time
    children = [child for thread in threads for child in _children(thread)]
    # Programs of the servers are in their ledger.
    children = [child for child in children if child not in warm.SERVERS]
    return sum(map(int, fields[11:15])) / _TICK + sum(map(cpu_seconds, children))


def _children(thread: Path) -> list[str]:
    """Processes that a thread started; none where it has ended, which the process need not have."""
    try:
        return (thread / "children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []


class FileTimes:
    """A plugin: measures in each process that runs tests, prints in the one that was started."""

    def __init__(self, config: pytest.Config) -> None:
        self._seconds: Counter[str] = Counter()
        self._last = 0.0
        self._worker = hasattr(config, "workerinput")
        if not self._worker:
            os.environ[warm.LEDGER] = self._ledger = tempfile.mkstemp()[1]

    def _passed(self) -> float:
        now = cpu_seconds()
        passed, self._last = now - self._last, now
        return passed

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Iterator[None]:
        self._passed_to(AROUND)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        result = yield
        self._passed_to(item.path.relative_to(TESTS).as_posix())
        return result

    def _passed_to(self, name: str) -> None:
        self._seconds[name] += self._passed()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._worker:
            self._passed_to(AROUND)
            session.config.workeroutput["file_times"] = dict(self._seconds)  # type: ignore[attr-defined]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._seconds.update(node.workeroutput.get("file_times", {}))

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        for line in Path(self._ledger).read_text(encoding="utf-8").splitlines():
            name, seconds = line.split("\t")
            self._seconds[name.removeprefix(f"{TESTS.name}/") or AROUND] += float(seconds)
        os.unlink(self._ledger)
        for line in summary(self._seconds, expected()):
            terminalreporter.write_line(line)
        if config.getoption("--times") == "write":
            TABLE.write_text(json.dumps(table_of(self._seconds), indent=1) + "\n", encoding="utf-8")


def table_of(seconds: Mapping[str, float]) -> dict[str, float]:
    """Rows of files that take long, the longest first, and one of all others."""
    rows: Counter[str] = Counter()
    for name, value in seconds.items():
        rows[name if value >= SMALL or name == AROUND else OTHERS] += value
    return {name: round(value, 1) for name, value in rows.most_common()}


def summary(seconds: Mapping[str, float], table: Mapping[str, float]) -> Iterator[str]:
    """The lines that are printed: seconds here, and in the table on the scale of this machine."""
    known = [name for name in table if seconds.get(name)]
    there = sum(table[name] for name in known)
    scale = sum(seconds[name] for name in known) / there if there else 1.0
    yield f"{'CPU s':>7} {'table':>7}"
    for name, value in table_of(seconds).items():
        due = table.get(name, SMALL) * scale
        marked = value > due * _SHARE and value > due + _SECONDS
        yield f"{value:7.1f} {due:7.1f}  {name}{'  above its row' if marked else ''}"
    yield f"{sum(seconds.values()):7.1f} {sum(table.values()) * scale:7.1f}  all"
    yield f"This machine takes {scale:.2f} of the seconds in the table."
