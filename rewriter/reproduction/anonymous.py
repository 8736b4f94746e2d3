"""Takes the names of people, machines and folders out of a text that is going to be published."""

from __future__ import annotations

import getpass
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# An absolute path: what is below the packages of Python, or else its last part, says enough.
# It may follow `file://`, or a colon as in PATH; what follows `https:` is no path.
_PATH = re.compile(r"(?:(?<![\w.~:/<-])|(?<=file://)|(?<=[\w.]:))(?:/[\w.+@-]+){2,}")
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/")
_SYSTEM = re.compile(r"/(?:dev|proc|sys|usr/(?:lib|include|bin))/")
# Names that machines give, and that are words.
_COMMON = frozenset({"root", "user", "admin", "ubuntu", "runner", "localhost", "host", "home"})
_LEAST = 3  # letters of a name: shorter ones are parts of everything


@dataclass(frozen=True)
class Anonymous:
    """`names` are those of people and machines."""

    names: tuple[str, ...]

    @classmethod
    def here(cls) -> Anonymous:
        """For what was made by this user on this machine."""
        return cls.of([Path.home().name, _user(), *socket.gethostname().split(".")])

    @classmethod
    def of(cls, names: Iterable[str]) -> Anonymous:
        unlike = (x for x in names if len(x) >= _LEAST and x.lower() not in _COMMON)
        return cls(tuple(sorted({*unlike}, key=len, reverse=True)))

    def __call__(self, text: str) -> str:
        text = _PATH.sub(_short, text)
        for name in self.names:
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", "user", text)
        return text


def _short(match: re.Match[str]) -> str:
    path = match[0]
    if _SYSTEM.match(path):
        return path
    if packages := _PACKAGES.match(path):
        return path[packages.end() :]
    return path.rpartition("/")[2]


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container without a name for its user
        return ""
