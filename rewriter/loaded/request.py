"""The request of a client to a running program, as JSON and as a value."""

from __future__ import annotations

from msgspec import Struct

from rewriter.core.types import ArgsMode, Format, Role, When
from rewriter.instrumentation.select import select
from rewriter.instrumentation.types import Selection
from rewriter.loaded.protocol import VERSION


class Request(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Probes, where they dump to, and when they go out again: once a wrapper was called more often
    than `calls`, or after so many `seconds`; 0 is never."""

    version: int = VERSION
    directory: str
    echo: bool = False
    calls: int = 0
    seconds: float = 0.0
    probes: tuple[str, ...]
    kernels: tuple[str, ...] | None = None
    launches: tuple[tuple[int, int], ...] | None = None
    when: When | None = None
    format: Format = "text"
    values: bool = False
    roles: tuple[Role, ...] | None = None
    tensors: tuple[str, ...] | None = None
    which_calls: str = ""
    last: int = 0
    args: ArgsMode | None = None
    recheck: bool = False
    max_bytes: str = ""
    allow: tuple[str, ...] = ()

    @staticmethod
    def of(
        selection: Selection, directory: str, *, echo: bool, calls: int, seconds: float
    ) -> Request:
        """Make the request for a selection."""
        ranges = selection.launches
        return Request(
            directory=directory,
            echo=echo,
            calls=calls,
            seconds=seconds,
            probes=selection.probes,
            kernels=selection.kernels,
            launches=None if ranges is None else tuple((x.start, x.stop) for x in ranges),
            when=selection.when,
            format=selection.format,
            values=selection.values,
            roles=selection.roles,
            tensors=selection.tensors,
            which_calls=selection.calls,
            last=selection.last,
            args=selection.args,
            recheck=selection.recheck,
            max_bytes=selection.max_bytes,
            allow=selection.allow,
        )

    def selection(self) -> Selection:
        """The requested selection. Raises `RewriterError` if it is invalid."""
        return select(
            self.probes,
            kernels=self.kernels,
            launches=None if self.launches is None else [range(*pair) for pair in self.launches],
            when=self.when,
            format=self.format,
            values=self.values,
            roles=self.roles,
            tensors=self.tensors,
            calls=self.which_calls,
            last=self.last,
            args=self.args,
            recheck=self.recheck,
            max_bytes=self.max_bytes,
            allow=self.allow,
        )
