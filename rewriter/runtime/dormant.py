"""Dormant probes: they do nothing until the file that REWRITER_CONTROL names switches them on.

A wrapper asks `due()` at the start of a call whether to call `begin`, and checks `on` at each
launch. `due` is the `__next__` of an iterator, which costs less than a Python function. Each
request gets a recorder of its own with the launches and probes that it selects; the recorder is
released when its calls are over.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from threading import get_ident
from time import monotonic
from typing import Any

from .control import VARIABLE, Control, ControlError, read, write_state
from .forks import register_for_forks
from .probe_set import ProbeSet
from .process import is_data_worker, read_rank, say
from .recorder import Recorder

_PAUSE = 0.05  # seconds between two looks at the file: one look costs as much as many calls
_SKIPPED = 31  # calls that skip `begin` after one that did not, if they are short (`_skip`)
_OFTEN = 0.5  # seconds between two status reports, once more than `_FEW` calls were recorded
_FEW = 16
_NUMBERS = itertools.count()
_TRUE = itertools.repeat(True)
_ALWAYS, _NEVER = _TRUE.__next__, itertools.repeat(False).__next__


class Dormant:
    """The recorder of a wrapper with dormant probes; it has the methods of `Recorder`.

    `due()` tells whether the wrapper has to call `begin`, and `on` whether a call is recorded now.
    """

    def __init__(
        self, options: dict[str, Any], launches: list[dict[str, Any]], inputs: Sequence[str]
    ) -> None:
        self.on = False
        self.due: Callable[[], bool] = _ALWAYS
        self._is_idle = True  # nothing is on, and no call is recorded
        self._options = options
        self._launches = launches
        self._inputs = inputs
        self._path = os.environ.get(VARIABLE, "")
        self._stamp: tuple[int, int, int] | None = None
        self._request = ""  # the id of the last valid request
        self._session: _Session | None = None
        self._recording: dict[int, _Session] = {}
        self._calls = 0  # calls that began, including those about to skip `begin`
        self._skipped = 0  # how many of them skip it, since the last one that did not
        self._armed = monotonic()
        self._lock = threading.RLock()
        self._rank = read_rank()
        self._place = next(_NUMBERS)
        self._said = 0.0
        self._next = 0.0  # when to look at the file again
        self._recorded = 0  # calls recorded by the last request that switched something on
        self._warned: set[str] = set()
        self._set_state()
        if self._path:
            register_for_forks(self)

    def begin(self, values: Sequence[Any] | None = None) -> None:
        """A call of the wrapper starts in this thread."""
        now = monotonic()
        try:
            with self._lock:
                number = self._calls
                self._calls = number + 1
                if now < self._next and self._is_idle:
                    self._skip(now)
                    return
                stamp = self._stamp
                if now >= self._next:
                    self._next = now + _PAUSE
                    stamp = self._look()
                if not self._is_idle or stamp != self._stamp:
                    self._begin(stamp, number, values)
                    self._set_state()
                if self._is_idle and self._path:
                    self._skip(now)
        except Exception as error:
            self._warn(f"{type(error).__name__}: {error}")

    def _look(self) -> tuple[int, int, int] | None:
        """Inode, modification time and size of the control file; None if it is missing."""
        try:
            about = os.stat(self._path)
        except OSError:
            return None
        return about.st_ino, about.st_mtime_ns, about.st_size

    def inputs(self, *values: Any) -> None:
        """Pass the inputs of the call on to the recorder that is switched on, if any."""
        session = self._recording.get(get_ident())
        if session is not None and session.reads_inputs:
            session.recorder.inputs(*values)

    def before(self, launch: int, *values: Any) -> None:
        """Pass on that a launch comes next, if it is recorded."""
        session = self._recording.get(get_ident())
        if session is not None and launch in session.before:
            session.recorder.before(launch, *values)

    def after(self, launch: int, *values: Any) -> None:
        """Pass on that a launch was issued, if it is recorded."""
        session = self._recording.get(get_ident())
        if session is not None and launch in session.after:
            session.recorder.after(launch, *values)

    def end(self) -> None:
        """End the call in this thread. Otherwise it ends when the thread begins its next call."""
        with self._lock:
            self._end_call(get_ident())
            self._set_state()

    def close(self) -> None:
        """Stop recording for good. No call may be running in the wrapper."""
        with self._lock:
            self._path = ""
            for thread in list(self._recording):
                self._end_call(thread)
            self._session, session = None, self._session
            if session is not None:
                session.recorder.release()
            self._set_state()

    def _begin(
        self, stamp: tuple[int, int, int] | None, number: int, values: Sequence[Any] | None
    ) -> None:
        self._end_call(get_ident())
        # Threads that no longer exist begin no other call, so end theirs here.
        if self._recording:
            for thread in self._recording.keys() - sys._current_frames().keys():
                self._end_call(thread)
        if stamp != self._stamp:
            self._stamp = stamp
            self._switch()
        session = self._session
        if session is not None and session.control.is_over():
            self._close()
        elif session is not None and session.wants():
            self._recording[get_ident()] = session
            session.begin(number, values)
            if session.is_done:
                self._close()
            elif session.recorded <= _FEW or time.monotonic() - self._said > _OFTEN:
                self._report(session)

    def _set_state(self) -> None:
        self.on = bool(self._recording)
        self._is_idle = self._session is None and not self.on
        self._skipped = 0
        self.due = _ALWAYS if self._path else _NEVER

    def _skip(self, now: float) -> None:
        """Let the next calls skip `begin`, if at the pace of the last ones they take less than
        `_PAUSE` together: then the file is still looked at often enough."""
        if (now - self._armed) * (_SKIPPED + 1) < _PAUSE * (self._skipped + 1):
            self._skipped = _SKIPPED
            self._calls += _SKIPPED
            self.due = itertools.chain(itertools.repeat(False, _SKIPPED), _TRUE).__next__
        elif self._skipped:
            self._skipped = 0
            self.due = _ALWAYS
        self._armed = now

    def _switch(self) -> None:
        """The file has changed: apply its request from this call on."""
        if self._stamp is None:
            self._request = ""
            self._close()
            return
        try:
            control = read(self._path)
            if control.id == self._request:
                return
            session = self._open(control)
        except ControlError as problem:
            self._warn(f"{self._path}: {problem}; nothing was switched")
            return
        self._request = control.id
        self._close()
        self._session = session
        if session is not None:
            self._report(session)
        else:
            self._write_state_of(control.id, ())

    def _open(self, control: Control) -> _Session | None:
        known = self._options["probes"]
        for name in control.probes:
            if name not in known:
                raise ControlError(f"this wrapper has no probe {name!r}, but {', '.join(known)}")
        is_meant = control.has_rank(self._rank) and not control.is_over() and not is_data_worker()
        if not (control.probes and is_meant):
            return None
        rows = [x for x in self._launches if control.has_launch(x["launch"], x["kernel"])]
        meant = {row["launch"] for row in rows}
        # Values wait to be measured with those of the next launch only if that one is recorded.
        rows = [x if x["launch"] + 1 in meant else x | {"together": False} for x in rows]
        return _Session(control, self._options, rows, self._inputs)

    def _close(self) -> None:
        """Record no further calls in this session; calls that are running are finished."""
        session, self._session = self._session, None
        if session is None:
            return
        session.is_done = True
        self._report(session)
        if session not in self._recording.values():
            session.recorder.release()

    def _end_call(self, thread: int) -> None:
        session = self._recording.pop(thread, None)
        if session is None:
            return
        session.recorder.end_call(thread)
        if session.is_done and session not in self._recording.values():
            session.recorder.release()

    def _report(self, session: _Session) -> None:
        self._said = time.monotonic()
        self._recorded = session.recorded
        self._write_state_of(session.control.id, () if session.is_done else session.control.probes)

    def _write_state_of(self, request: str, on: Sequence[str]) -> None:
        facts = {
            "rank": self._rank,
            "wrapper": self._options["label"] or self._options["artifact"],
            "id": request,
            "on": list(on),
            "recorded": self._recorded,
        }
        write_state(self._path, self._place, facts)

    def _warn(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            say(f"[rewriter {self._rank}] warning: control: {message}\n")

    def forked(self) -> None:
        """In a forked process: drop the parent's recorder. The fork follows the file on its own."""
        self._lock = threading.RLock()
        self._session, self._recording = None, {}
        self._set_state()


class _Session:
    """One request that is switched on in one wrapper, with its recorder."""

    def __init__(
        self,
        control: Control,
        options: dict[str, Any],
        launches: Sequence[dict[str, Any]],
        inputs: Sequence[str],
    ) -> None:
        self.control = control
        self.recorded = 0
        self.is_done = False
        self._seen = 0
        options = {
            **options,
            "probes": [x for x in options["probes"] if x in control.probes],
            "directory": control.dump,
            "last": control.keep or options.get("last"),
            "max_bytes": control.max_bytes or options.get("max_bytes"),
            "quiet": control.quiet,
        }
        probes = ProbeSet(options)
        phases = {phase for phase in ("before", "after") if probes.has_any(phase)}
        rows = [_only(row, phases) for row in launches]
        self.before = frozenset(row["launch"] for row in rows if "before" in row)
        self.after = frozenset(row["launch"] for row in rows if "after" in row)
        self.reads_inputs = bool(inputs) and bool(probes.readers_at("inputs") or probes.of_inputs)
        self.recorder = Recorder(options, rows, inputs if self.reads_inputs else ())

    def wants(self) -> bool:
        """Count the call that begins, and tell whether to record it."""
        number, self._seen = self._seen, self._seen + 1
        return not self.is_done and number % self.control.every == 0

    def begin(self, number: int, values: Sequence[Any] | None) -> None:
        self.recorded += 1
        self.recorder.begin(values, number=number)
        self.is_done = self.recorded == self.control.calls


def _only(row: dict[str, Any], phases: set[str]) -> dict[str, Any]:
    """A row of the table without the phases at which no probe acts."""
    return {x: y for x, y in row.items() if x not in ("before", "after") or x in phases}
