"""Compares guard bands with their pattern, by the engine (`cpp/engine/bands.h`)."""

from __future__ import annotations

import ctypes
import struct
import threading
from dataclasses import dataclass
from functools import cache

from ..engine import start
from ..engine_library import EngineLibrary, load

_BAND = struct.Struct("=QQIHBB")
_MOST = 4096  # records of damage; the first one counts damaged bands


class _Damage(ctypes.Structure):
    _fields_ = (
        ("launch", ctypes.c_uint64),
        ("distance", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
        ("element", ctypes.c_ubyte * 8),
    )


@dataclass(frozen=True)
class Damage:
    """The damage of one band."""

    launch: int  # the launch after which it was first seen
    distance: int  # elements from the edge of the buffer to the nearest damaged one; 0: adjacent
    count: int  # damaged elements
    element: bytes  # the nearest damaged one, at most 8 bytes of it


def band(address: int, size: int, pattern: bytes, place: int, *, before: bool, item: int) -> bytes:
    """Pack one row of the table for `Bands.compare`: a guard band of `size` bytes.

    Each byte of the band should be that of the 8-byte `pattern` at its address modulo 8. `place` is
    the band's record of damage, `before` says on which side of the buffer it lies, and `item` is
    the size of the buffer's elements in bytes.
    """
    word = int.from_bytes(pattern, "little")
    return _BAND.pack(address, word, size, place, before, min(item, 255))


class Bands:
    """Compares bands of one device (-1 is the CPU), and has the records of their damage.

    One object serves all wrappers of the process.
    """

    def __init__(self, device: int, library: EngineLibrary) -> None:
        self._device = device
        self._compare = library.functions.inductor_rewriter_compare
        address = library.functions.inductor_rewriter_damage(device)
        if not address:
            raise OSError("no memory for the damage of guard bands")
        self.address = address
        self._rows = (_Damage * _MOST).from_address(address)
        self._free = list(range(_MOST - 1, 0, -1))
        self._lock = threading.Lock()

    def take(self) -> tuple[int, int] | None:
        """Reserve the records of damage for the two bands of a buffer; None if none are left."""
        with self._lock:
            return (self._free.pop(), self._free.pop()) if len(self._free) > 1 else None

    def give(self, place: int) -> None:
        """Clear and free a record. No comparison that writes to it may still be running."""
        ctypes.memset(ctypes.addressof(self._rows[place]), 0, ctypes.sizeof(_Damage))
        self._free.append(place)  # without the lock: the collector may call this while it is held

    @property
    def is_short(self) -> bool:
        """Whether less than half of the records are left, which all wrappers share."""
        return len(self._free) < _MOST // 2

    def compare(self, table: bytes, launch: int, stream: int) -> int:
        """Compare the bands of a table after a launch.

        Returns the number of newly damaged bands, or -1 if they could not be compared. On a GPU the
        comparison is issued to the stream without waiting, and 0 is returned.
        """
        count = len(table) // _BAND.size
        return int(self._compare(self._device, table, count, launch + 1, stream))

    @property
    def has_damage(self) -> bool:
        """Whether a comparison on a GPU that has finished found any damage so far."""
        return bool(self._rows[0].launch)

    def read(self, place: int) -> Damage | None:
        """The damage in a record, None if the band is whole as far as the host knows."""
        row = self._rows[place]
        if not row.launch:
            return None
        return Damage(row.launch - 1, row.distance, row.count, bytes(row.element))


@cache
def bands(device: int) -> Bands | str:
    """The `Bands` of a device, or why bands cannot be compared there."""
    library = load()
    if not isinstance(library, EngineLibrary):
        return str(library)
    if device >= 0 and (problem := start(device)):
        return problem
    try:
        return Bands(device, library)
    except OSError as error:
        return str(error)
