"""What `rewriter attach` and a program that listens say to each other.

The program listens at a name that the kernel keeps as long as it runs, and that is no file. Each
side asks the kernel whose process the other one is. A client sends one line of JSON, a `Request`,
and reads lines: `{"state": "probing"}` once probes are added, and at the end `{"state": "done", …}`
or `{"state": "refused", …}`. If it closes its end earlier, the probes are removed.
"""

from __future__ import annotations

from msgspec import Struct

from rewriter.instrumentation.types import Selection
from rewriter.version import __version__


class Request(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Probes, where they dump to, and when they go out again: once a wrapper was called more often
    than `calls`, or after so many `seconds`; 0 is never."""

    version: str = __version__
    directory: str
    selection: Selection
    echo: bool = False
    calls: int = 0
    seconds: float = 0.0
