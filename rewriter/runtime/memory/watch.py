"""The probes of memory at work: buffers are guarded and filled, and bands are compared."""

from __future__ import annotations

import os
import struct
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from .. import device
from .bands import Bands, Damage, band, bands
from .guarded import Guarded, fill, flat, guarded, is_shared
from .patterns import GUARD_VARIABLE, PROBES, VARIABLE, parse_fills, pattern
from .regions import Form, Region, Regions, can_lend
from .rows import coverage_row, encoded, store_line, write_rows

if TYPE_CHECKING:
    from ..event import ProbedLaunch
    from ..printer import Printer
    from ..running_call import RunningCall

GUARD = 4096  # bytes on each side
KEPT = 16 << 20  # bytes of memory that was given back and filled, and nobody gets yet
_MOST_FORMS = 4096
_ELSEWHERE = "on another device"
_NO_BAND = f"{GUARD_VARIABLE} is 0"


@dataclass(eq=False, slots=True)
class _Buffer:
    """A guarded buffer of a call: where it was allocated, behind how many of the launches that are
    compared, and its places for damage. A `region` may be that of several, one after the other."""

    event: int
    name: str
    dtype: torch.dtype
    device: int
    places: tuple[int, int]
    rows: bytes  # of the table of bands
    since: int
    region: Region | None = None
    memory: Guarded | None = None

    @property
    def is_gone(self) -> bool:
        """Whether nobody has it any more."""
        return self.memory is not None and self.memory.owner() is None


_Key = tuple[int, torch.dtype, int]  # the line of an allocation, what it makes, and where


class _Ways(NamedTuple):
    """How buffers of a dtype are made on a device."""

    bands: Bands
    edge: bytes
    inside: int | None
    stale: int
    item: int


@dataclass(eq=False)
class _Watched:
    """What is watched of one call. `tables` are the bands by device, None where they are to be made
    again, of the buffers `alive`, some of which are not `lent`; `launches` are those after which
    bands were compared; `kept` has memory that was given back, the oldest first; `closing` are
    regions whose places are free when the call is over."""

    buffers: list[_Buffer] = field(default_factory=list)
    tables: dict[int, bytes] | None = None
    alive: dict[int, _Buffer] = field(default_factory=dict)
    unlent: int = 0
    closing: list[Region] = field(default_factory=list)
    launches: list[int] = field(default_factory=list)
    done: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PROBES, 0))
    skipped: dict[str, Counter[str]] = field(
        default_factory=lambda: {probe: Counter() for probe in PROBES}
    )
    reported: set[int] = field(default_factory=set)
    by_address: dict[int, _Buffer] = field(default_factory=dict)
    kept: deque[tuple[int, Tensor | Region]] = field(default_factory=deque)
    kept_bytes: int = 0
    is_captured: bool = False

    def keep(self, memory: Tensor | Region, nbytes: int) -> None:
        """Keep memory from those who allocate next: a launch that still reads it reads its fill."""
        self.kept.append((nbytes, memory))
        self.kept_bytes += nbytes
        while self.kept_bytes > KEPT:
            self.let_go()

    def let_go(self) -> None:
        """The memory that was given back first is anybody's."""
        nbytes, memory = self.kept.popleft()
        self.kept_bytes -= nbytes
        if isinstance(memory, Region):
            memory.kept = False
            if memory.lease is None:  # else it comes back when that is gone
                self.take_back(memory)

    def take_back(self, region: Region) -> None:
        """Nobody has a region: the next buffer like the last one may get it."""
        if not region.pool.give(region):
            self.closing.append(region)


class Memory:
    """The memory of one wrapper. Its methods run under the recorder's lock."""

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
        self._regions = Regions()
        self._ways: dict[_Key, _Ways | None] = {}
        self._forms: dict[tuple[_Key, int, int], Form] = {}
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

    def allocated(self, call: RunningCall, index: int, tensor: Tensor) -> Tensor:
        """A buffer was allocated; the result takes its place."""
        watched = self._watched(call)
        if (
            "bounds" in self.probes
            and not watched.is_captured
            and self._lend(watched, index, tensor)
        ):
            return tensor
        wanted = self.probes & {"bounds", "poison"}
        if reason := _unguardable(tensor):
            for probe in wanted:
                watched.skipped[probe][reason] += 1
            return tensor
        dtype = str(tensor.dtype).removeprefix("torch.")
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
        rows = _table(memory, edge, places)
        name, since = self._rows[index]["buffer"], len(watched.launches)
        where = memory.device
        buffer = _Buffer(index, name, tensor.dtype, where, places, rows, since, memory=memory)
        watched.unlent += 1
        self._add(watched, buffer, memory.address)
        return result

    def _add(self, watched: _Watched, buffer: _Buffer, address: int) -> None:
        watched.buffers.append(buffer)
        watched.by_address[address] = watched.alive[address] = buffer
        watched.tables = None

    def _lend(self, watched: _Watched, index: int, tensor: Tensor) -> bool:
        """Have a new buffer use a region, if there can be one; what tells why comes later."""
        where = tensor.get_device()
        key = index, tensor.dtype, where
        if key not in self._ways:
            self._ways[key] = self._find_ways(tensor, where)
        if (ways := self._ways[key]) is None:
            return False
        if not (nbytes := tensor.untyped_storage().nbytes()):
            return False
        if self._regions.ended:
            self._drain(watched)
        stream = torch._C._cuda_getCurrentRawStream(where) if where >= 0 else 0
        if (form := self._forms.get((key, nbytes, stream))) is None:
            form = Form(where, stream, nbytes, self._guard, ways.edge, ways.item)
            if len(self._forms) >= _MOST_FORMS:
                self._forms.clear()  # sizes that change
            self._forms[key, nbytes, stream] = form
        device = tensor.device
        try:
            region = self._regions.take(form) or Region(form, device, ways.bands, self._regions)
        except MemoryError:
            return False
        region.lend(tensor, device)
        region.watched = watched
        if ways.inside is not None:
            ways.bands.fill(region.address, nbytes, ways.inside, stream)
            watched.done["poison"] += 1
        watched.done["bounds"] += 1
        assert region.places is not None
        name, since = self._rows[index]["buffer"], len(watched.launches)
        buffer = _Buffer(
            index, name, tensor.dtype, where, region.places, region.rows, since, region
        )
        self._add(watched, buffer, region.address)
        return True

    def _find_ways(self, tensor: Tensor, where: int) -> _Ways | None:
        if not self._guard or _unguardable(tensor) or not can_lend():
            return None
        if not isinstance(known := bands(where), Bands):
            return None
        dtype = str(tensor.dtype).removeprefix("torch.")
        edge, inside, stale = (pattern(probe, self._fills[probe], dtype) for probe in PROBES)
        poison = int.from_bytes(inside, "little") if "poison" in self.probes else None
        return _Ways(known, edge, poison, int.from_bytes(stale, "little"), tensor.dtype.itemsize)

    def _drain(self, watched: _Watched) -> None:
        """Regions that nobody has any more come back."""
        ended = self._regions.ended
        while ended:
            region = ended.popleft()
            region.lease = None
            had = region.watched or watched
            buffer = had.alive.get(region.address)
            if buffer is not None and buffer.region is region:
                del had.alive[region.address]
                had.tables = None
            if not region.kept:
                watched.take_back(region)

    def gone(
        self,
        call: RunningCall,
        index: int,
        tensor: object,
        *,
        is_held: bool = False,
        is_reused: bool = False,
    ) -> None:
        """The wrapper is through with what is in the memory of a buffer; `is_held` says that not
        only the variable has it that the wrapper gives up, `is_reused` that another one has it
        now."""
        watched = self._watched(call)
        if not isinstance(tensor, Tensor):
            return
        if (
            not is_held
            and not watched.is_captured
            and self._fill_stale(watched, tensor, is_reused=is_reused)
        ):
            return
        reason = _unguardable(tensor) or (is_held and "another variable has it")
        reason = reason or (is_shared(tensor) and "another tensor has its memory")
        if reason:
            watched.skipped["stale"][reason] += 1
            return
        dtype = str(tensor.dtype).removeprefix("torch.")
        fill(flat(tensor), pattern("stale", self._fills["stale"], dtype))
        watched.done["stale"] += 1
        if not (is_reused or watched.is_captured):
            buffer = watched.by_address.get(tensor.untyped_storage().data_ptr())
            owner = buffer and buffer.memory and buffer.memory.owner()
            memory = owner.memory if owner else flat(tensor)
            watched.keep(memory, memory.nbytes)

    def _fill_stale(self, watched: _Watched, tensor: Tensor, *, is_reused: bool) -> bool:
        """Fill a buffer in a region that nobody has but the variable that gives it up."""
        storage = tensor.untyped_storage()
        buffer = watched.alive.get(storage.data_ptr())
        if buffer is None or (region := buffer.region) is None or is_shared(tensor):
            return False
        if (ways := self._ways.get((buffer.event, tensor.dtype, buffer.device))) is None:
            return False
        stream = torch._C._cuda_getCurrentRawStream(buffer.device) if buffer.device >= 0 else 0
        if not ways.bands.fill(region.address, region.form.nbytes, ways.stale, stream):
            return False
        watched.done["stale"] += 1
        if not is_reused:
            region.kept = True
            watched.keep(region, region.total)
        return True

    def checked(self, call: RunningCall, launch: int) -> None:
        """A launch was issued: its bands are compared behind it."""
        watched = self._watched(call)
        watched.launches.append(launch)
        if self._regions.ended:
            self._drain(watched)
        if watched.unlent:
            gone = [place for place, one in watched.alive.items() if one.is_gone]
            for place in gone:
                del watched.alive[place]
                watched.unlent -= 1
                watched.tables = None
        if watched.tables is None:
            tables: dict[int, list[bytes]] = {}
            for buffer in watched.alive.values():
                tables.setdefault(buffer.device, []).append(buffer.rows)
            watched.tables = {where: b"".join(rows) for where, rows in tables.items()}
        for where, table in watched.tables.items():
            stream = torch._C._cuda_getCurrentRawStream(where) if where >= 0 else 0
            known = bands(where)
            assert isinstance(known, Bands)
            found = known.compare(table, launch, stream)
            if found < 0:
                watched.skipped["bounds"]["the bands could not be compared"] += 1
            if found > 0 or (where >= 0 and known.has_damage):
                self._report(call, watched)

    def finish(self, call: RunningCall) -> None:
        """A call is over: what was damaged is known once the device is through with it."""
        watched = call.states.pop(self, None)
        if watched is None:
            return
        if torch.cuda.is_initialized() and not device.is_capturing():  # type: ignore[no-untyped-call]
            for where in {x.device for x in watched.buffers} - {-1}:
                torch.cuda.current_stream(where).synchronize()
            for capture in self._captured:
                self._report(call, capture)
        self._report(call, watched)
        if call.directory is not None:
            rows = (
                coverage_row(
                    probe,
                    watched.done[probe],
                    watched.skipped[probe],
                    len(watched.launches) if probe == "bounds" else None,
                )
                for probe in PROBES
                if probe in self.probes
            )
            write_rows(call.directory, rows)
        if watched.is_captured:
            self._captured.append(watched)  # what a graph compares it compares in each replay
            return
        self._drain(watched)
        while watched.kept:
            watched.let_go()
        places: set[tuple[int, int]] = set()
        for buffer in watched.buffers:
            region = buffer.region
            if region is None:
                places |= {(buffer.device, place) for place in buffer.places}
            elif not watched.reported.isdisjoint(buffer.places):
                self._regions.drop(region)
                watched.closing.append(region)
            elif region.lease is not None:  # it outlives the call: nothing is compared any more
                watched.closing.append(region)
        for region in watched.closing:
            places |= {(region.form.device, place) for place in region.places or ()}
            region.places = None
        for where, place in places:
            known = bands(where)
            assert isinstance(known, Bands)
            known.give(place)

    def _watched(self, call: RunningCall) -> _Watched:
        watched = call.states.get(self)
        if watched is None:
            watched = call.states[self] = _Watched()
        if call.uses_cuda and not watched.is_captured and device.is_capturing():
            watched.is_captured = True
        return watched

    def _report(self, call: RunningCall, watched: _Watched) -> None:
        """Write what is known of damage, the first launch first, each band once."""
        found = []
        for buffer in reversed(watched.buffers):  # a region is that of the last one which had it
            known = bands(buffer.device)
            assert isinstance(known, Bands)
            for side, place in zip(("before", "behind"), buffer.places, strict=True):
                if place in watched.reported or not (damage := known.read(place)):
                    continue
                if damage.launch in watched.launches[: buffer.since]:
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
        item = buffer.dtype.itemsize
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
            "distance": damage.distance // item,
            "count": -(-damage.count // item),
            "dtype": str(buffer.dtype).removeprefix("torch."),
            **({"value": value} if (value := _value(damage, buffer.dtype)) else {}),
        }
        if watched.is_captured:
            facts["captured"] = True
        if call.directory is not None:
            write_rows(call.directory, [encoded(facts)])
        self._printer.write([store_line(self._printer, call.number, facts)])


def _unguardable(tensor: Tensor) -> str:
    """Why a tensor cannot be guarded or filled; empty where it can."""
    if not (tensor.is_cpu or tensor.is_cuda) or tensor.layout is not torch.strided:
        return _ELSEWHERE
    if not tensor.untyped_storage().nbytes():
        return "it has no elements"
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
    """The element that was written, as text; empty where that is not known as a whole."""
    if dtype.itemsize > len(damage.element):
        return ""
    data = bytearray(damage.element[: dtype.itemsize])
    try:
        return str(torch.frombuffer(data, dtype=dtype).item())
    except (RuntimeError, ValueError, struct.error):
        return data.hex()
