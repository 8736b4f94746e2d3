"""Signals that end programs, for whoever has something to finish first."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Signals:
    """Notes the signals that end programs instead of acting on them, as long as it is entered.

    Nothing is cut short by one: whoever waits or goes on to a next step asks `received`. In another
    thread than the main one, where none arrives, it does nothing.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is not threading.main_thread():
            return self
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # `nohup` has it ignored: it stays so, here and in the program.
            if (before := signal.getsignal(number)) is not signal.SIG_IGN:
                self._before[number] = before
                signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received.append(number)
