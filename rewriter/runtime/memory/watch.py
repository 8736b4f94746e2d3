"""Does the work of the memory probes: guards and fills buffers, and compares their bands."""

from __future__ import annotations

import os
import struct
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .. import device
from .bands import Bands, Damage, band, bands
from .guarded import Guarded, fill, flat, guarded, is_shared
from .patterns import GUARD_VARIABLE, PROBES, VARIABLE, parse_fills, pattern
from .regions import is_in_graph_tree, make_lines, make_memory
from .rows import coverage_row, encoded, store_line, write_rows

if TYPE_CHECKING:
    from ..event import ProbedLaunch
    from ..printer import Printer
    from ..running_call import RunningCall

GUARD = 4096  # bytes of a guard band
KEPT = 16 << 20  # bytes of released, filled memory that is kept from being reused
_FAILED = {
    "bounds": "the bands could not be compared",
    "poison": "it could not be filled",
    "stale": "it could not be filled",
}
_ELSEWHERE = "on another device"
_OF_GRAPHS = "in the memory of CUDA graph trees"
_NO_BAND = f"{GUARD_VARIABLE} is 0"


@dataclass(eq=False, slots=True)
class _Buffer:
    """A guarded buffer of a call."""

    event: int  # the memory event at which it was allocated
    name: str
    dtype: torch.dtype
    device: int
    places: tuple[int, int]  # the records of damage of its two bands
    since: int  # how many of `_Watched.launches` came before it was allocated


@dataclass(eq=False, slots=True)
class _Alive:
    """A buffer whose bands are compared, as long as it is not freed."""

    memory: Guarded
    rows: bytes  # its two rows of the table of bands


@dataclass(eq=False)
class _Watched:
    """What is known about the memory of one call."""

    buffers: list[_Buffer] = field(default_factory=list)
    tables: dict[int, bytes] | None = None  # bands of `alive` by device; None: to be made again
    alive: dict[int, _Alive] = field(default_factory=dict)  # by address
    launches: list[int] = field(default_factory=list)  # after which bands were compared
    done: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PROBES, 0))
    skipped: dict[str, Counter[str]] = field(  # buffers by probe and reason
        default_factory=lambda: {probe: Counter() for probe in PROBES}
    )
    reported: set[int] = field(default_factory=set)  # records of damage that were written
    kept: deque[Tensor] = field(default_factory=deque)  # released memory, the oldest first
    kept_bytes: int = 0
    is_captured: bool = False  # into a CUDA graph
    native: Any = None  # the state of buffers in regions (`regions.py`); shares `launches`

    def keep(self, memory: Tensor) -> None:
        """Keep released memory from being reused: a launch that still reads it reads its fill."""
        self.kept.append(memory)
        self.kept_bytes += memory.nbytes
        while self.kept_bytes > KEPT:
            self.kept_bytes -= self.kept.popleft().nbytes

    @property
    def devices(self) -> set[int]:
        """The devices that have buffers with bands."""
        native = () if self.native is None else self.native.devices()
        return {buffer.device for buffer in self.buffers}.union(native)

    def take_counts(self) -> None:
        """At the end of the call: add the counts of buffers in regions."""
        if self.native is None:
            return
        for probe, done, failed in zip(PROBES, *self.native.counts(), strict=True):
            self.done[probe] += done
            if failed:
                self.skipped[probe][_FAILED[probe]] += failed


class Memory:
    """The memory probes of one wrapper. Its methods run under the recorder's lock."""

    def __init__(
        self,
        options: Mapping[str, Any],
        launches: Mapping[int, ProbedLaunch],
        printer: Printer,
        warn: Callable[[str, str], None],
    ) -> None:
        self.probes = frozenset(options["probes"]) & frozenset(PROBES)
        self._rows: dict[int, Any] = {row["event"]: row for row in options.get("memory", ())}
        self._launches = launches
        self._printer = printer
        self._warn = warn
        self._captured: list[_Watched] = []
        self._lines: Any = None
        self._covered: object = None  # the facts from which `_coverage` was made
        self._coverage = ""  # the coverage rows of the last call
        try:
            self._fills = parse_fills(os.environ.get(VARIABLE, "") if self.probes else "")
        except ValueError as error:
            self._fills = parse_fills("")
            warn("memory", f"{error}; fill 0 is used")
        self._guard = GUARD
        text = os.environ.get(GUARD_VARIABLE, "")
        if text.isascii() and text.isdecimal() and 0 < len(text) < 9:
            self._guard = -(-int(text) // 512) * 512
        elif text and self.probes:
            warn("memory", f"{GUARD_VARIABLE} is {text!r}: expected a number of bytes")

    def make_lines(
        self,
        calls: Mapping[int, RunningCall],
        report: Callable[[RunningCall], None],
        otherwise: tuple[Callable[..., Any], ...],
    ) -> Any | None:
        """Make the native memory lines of the wrapper, once; None if that is not possible.

        `report` writes the damage of a call; `otherwise` are the slow paths (`regions.make_lines`).
        """
        if self._lines is None and "bounds" in self.probes and self._guard:
            of_memory = (self._open, self._find_ways, make_memory, report)
            events = tuple(index for index, row in self._rows.items() if row.get("waits"))
            launches = tuple(index for index, one in self._launches.items() if one.memory_waits)
            waiting = (events, launches)
            self._lines = make_lines(calls, self._guard, waiting, of_memory, otherwise)
        return self._lines

    def allocated(self, call: RunningCall, index: int, tensor: Tensor) -> Tensor:
        """A buffer was allocated at memory event `index`. Returns the tensor to use instead."""
        watched = self._watched(call)
        wanted = self.probes & {"bounds", "poison"}
        reason = _unguardable(tensor) or (is_in_graph_tree() and _OF_GRAPHS)
        if reason:
            for probe in wanted:
                watched.skipped[probe][reason] += 1
            return tensor
        dtype = _name(tensor.dtype)
        places = None
        if "bounds" in wanted:
            known = (
                bands(tensor.get_device() if tensor.is_cuda else -1) if self._guard else _NO_BAND
            )
            places = known.take() if isinstance(known, Bands) else None
            if places is None:
                reason = known if isinstance(known, str) else "too many buffers at once"
                watched.skipped["bounds"][reason] += 1
        edge = pattern("bounds", self._fills["bounds"], dtype) if places else None
        inside = pattern("poison", self._fills["poison"], dtype) if "poison" in wanted else None
        result, memory = guarded(tensor, self._guard if places else 512, edge, inside)
        watched.done["poison"] += inside is not None
        if edge is None or places is None:
            return result
        watched.done["bounds"] += 1
        watched.buffers.append(
            self._buffer(index, tensor.dtype, memory.device, places, len(watched.launches))
        )
        watched.alive[memory.address] = _Alive(memory, _table(memory, edge, places))
        watched.tables = None
        if watched.native is not None:
            watched.native.others()
        return result

    def _buffer(
        self, event: int, dtype: torch.dtype, where: int, places: tuple[int, int], since: int
    ) -> _Buffer:
        return _Buffer(event, self._rows[event]["buffer"], dtype, where, places, since)

    def _open(self, call: RunningCall) -> Any:
        """Make the native state of a call, at its first memory line."""
        return self._watched(call).native

    def _find_ways(self, tensor: Tensor) -> tuple[Any, ...] | None:
        """How to make buffers like `tensor` in regions: the members of `Ways` in C++.

        Returns None for a tensor that cannot be guarded.
        """
        if _unguardable(tensor):
            return None
        known = bands(tensor.get_device() if tensor.is_cuda else -1)
        if not isinstance(known, Bands):
            return None
        dtype = tensor.dtype
        words = (
            int.from_bytes(pattern(probe, self._fills[probe], _name(dtype)), "little")
            for probe in PROBES
        )
        is_filled = "poison" in self.probes
        return *words, is_filled, dtype.itemsize, known.address, tensor.device, dtype, known

    def gone(
        self,
        call: RunningCall,
        index: int,
        tensor: object,
        *,
        is_held: bool = False,
        is_reused: bool = False,
    ) -> None:
        """The wrapper no longer needs the content of a buffer: fill it.

        `is_held`: something other than the wrapper's variable refers to the tensor, so it is left
        as it is. `is_reused`: another variable has taken over the memory.
        """
        watched = self._watched(call)
        if not isinstance(tensor, Tensor):
            return
        reason = _unguardable(tensor) or (is_in_graph_tree() and _OF_GRAPHS)
        reason = reason or (is_held and "another variable has it")
        reason = reason or (is_shared(tensor) and "another tensor has its memory")
        if reason:
            watched.skipped["stale"][reason] += 1
            return
        fill(flat(tensor), pattern("stale", self._fills["stale"], _name(tensor.dtype)))
        watched.done["stale"] += 1
        if not (is_reused or watched.is_captured):
            buffer = watched.alive.get(tensor.untyped_storage().data_ptr())
            owner = buffer and buffer.memory.owner()
            watched.keep(owner.memory if owner else flat(tensor))

    def checked(self, call: RunningCall, launch: int) -> None:
        """A launch was issued: compare the bands of all buffers."""
        watched = self._watched(call)
        watched.launches.append(launch)
        gone = [place for place, one in watched.alive.items() if one.memory.owner() is None]
        for place in gone:
            del watched.alive[place]
            watched.tables = None
        if watched.tables is None:
            tables: dict[int, list[bytes]] = {}
            for one in watched.alive.values():
                tables.setdefault(one.memory.device, []).append(one.rows)
            watched.tables = {where: b"".join(rows) for where, rows in tables.items()}
        for where, table in watched.tables.items():
            stream = torch._C._cuda_getCurrentRawStream(where) if where >= 0 else 0
            known = _bands(where)
            found = known.compare(table, launch, stream)
            if found < 0:
                watched.skipped["bounds"][_FAILED["bounds"]] += 1
            if found > 0 or (where >= 0 and known.has_damage):
                self._report(call, watched)

    def report(self, call: RunningCall) -> None:
        """Report the bands that are known to be damaged by now."""
        self._report(call, self._watched(call))

    def finish(self, call: RunningCall) -> None:
        """End a call: wait for its comparisons, and write damage and coverage."""
        watched = call.states.pop(self, None)
        if watched is None:
            return
        if watched.native is not None:
            self._lines.settle(watched.native)
        if torch.cuda.is_initialized() and not device.is_capturing():  # type: ignore[no-untyped-call]
            for where in watched.devices - {-1}:
                torch.cuda.current_stream(where).synchronize()
            for capture in self._captured:
                self._report(call, capture)
        self._report(call, watched)
        watched.take_counts()
        if call.directory is not None:
            write_rows(call.directory, self._coverage_rows(watched))
        closing = []
        if watched.native is not None:
            is_short = any(_bands(where).is_short for where in watched.devices)
            closing = self._lines.close(watched.native, watched.reported, is_short)
        if watched.is_captured:
            self._captured.append(watched)  # each replay compares its bands again
        else:
            closing += [(_bands(x.device), place) for x in watched.buffers for place in x.places]
        for known, place in closing:
            known.give(place)

    def _coverage_rows(self, watched: _Watched) -> str:
        """The coverage rows of a call; those of the last call if they are the same."""
        launches = len(watched.launches)
        facts = [
            (probe, watched.done[probe], tuple(watched.skipped[probe].items()))
            for probe in PROBES
            if probe in self.probes
        ]
        if (launches, facts) != self._covered:
            self._covered = launches, facts
            self._coverage = "".join(
                coverage_row(probe, done, dict(why), launches if probe == "bounds" else None)
                for probe, done, why in facts
            )
        return self._coverage

    def _watched(self, call: RunningCall) -> _Watched:
        watched = call.states.get(self)
        if watched is None:
            watched = call.states[self] = _Watched()
            if self._lines is not None:
                call.watch = watched.native = self._lines.open(watched.launches, call.uses_cuda)
        if call.uses_cuda and not watched.is_captured and device.is_capturing():
            watched.is_captured = True
        return watched

    def _report(self, call: RunningCall, watched: _Watched) -> None:
        """Write the known damage in the order of launches, each band once."""
        found = []
        buffers = list(watched.buffers)
        if watched.native is not None:
            buffers += [self._buffer(*row) for row in watched.native.damaged()]
        for buffer in reversed(buffers):  # damage of a region belongs to the last buffer in it
            known = _bands(buffer.device)
            for side, place in zip(("before", "behind"), buffer.places, strict=True):
                if place in watched.reported or not (damage := known.read(place)):
                    continue
                if damage.launch not in watched.launches[buffer.since :]:
                    continue
                watched.reported.add(place)
                found.append((damage, buffer, side))
        for damage, buffer, side in sorted(found, key=lambda row: row[0].launch):
            self._write(call, watched, damage, buffer, side)

    def _write(
        self,
        call: RunningCall,
        watched: _Watched,
        damage: Damage,
        buffer: _Buffer,
        side: str,
    ) -> None:
        launch = self._launches.get(damage.launch)
        earlier = watched.launches[: watched.launches.index(damage.launch)]
        facts = {
            "event": "memory",
            "probe": "bounds",
            "what": "store out of bounds",
            "launch": damage.launch,
            **({"kernel": launch.kernel} if launch else {}),
            **({"since": earlier[-1]} if earlier else {}),
            "buffer": buffer.name,
            "allocated": buffer.event,
            "side": side,
            "distance": damage.distance,
            "count": damage.count,
            "dtype": _name(buffer.dtype),
            **({"value": value} if (value := _value(damage, buffer.dtype)) else {}),
        }
        if watched.is_captured:
            facts["captured"] = True
        if call.directory is not None:
            write_rows(call.directory, encoded(facts))
        self._printer.write([store_line(self._printer, call.number, facts)])


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _bands(where: int) -> Bands:
    """The `Bands` of a device that is known to have them."""
    known = bands(where)
    assert isinstance(known, Bands)
    return known


def _unguardable(tensor: Tensor) -> str:
    """Why a tensor cannot be guarded or filled; empty if it can."""
    if not (tensor.is_cpu or tensor.is_cuda) or tensor.layout is not torch.strided:
        return _ELSEWHERE
    storage = tensor.untyped_storage()
    if not storage.nbytes():
        return "it has no elements"
    if not storage.data_ptr():
        return "it has no memory"
    if tensor.is_quantized:
        return "it is quantized"
    if tensor.is_cpu and tensor.is_pinned():
        return "its memory is pinned"
    return ""


def _table(memory: Guarded, edge: bytes, places: tuple[int, int]) -> bytes:
    size, end, item = memory.guard, memory.address + memory.nbytes, memory.dtype.itemsize
    front = band(memory.address - size, size, edge, places[0], before=True, item=item)
    return front + band(end, size, edge, places[1], before=False, item=item)


def _value(damage: Damage, dtype: torch.dtype) -> str:
    """The element that was written, as text; empty if it has more bytes than were recorded."""
    if dtype.itemsize > len(damage.element):
        return ""
    data = bytearray(damage.element[: dtype.itemsize])
    try:
        return str(torch.frombuffer(data, dtype=dtype).item())
    except (RuntimeError, ValueError, struct.error):
        return data.hex()
