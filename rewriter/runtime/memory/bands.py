"""Compares guard bands with the engine: `cpp/engine/bands.h`, from Python."""

from __future__ import annotations

import ctypes
import struct
import threading
from dataclasses import dataclass
from functools import cache

from ..engine import start
from ..engine_library import EngineLibrary, load

_BAND = struct.Struct("=QQIHBB")
_MOST = 4096  # places for damage; the first one counts


class _Damage(ctypes.Structure):
    _fields_ = (
        ("launch", ctypes.c_uint64),
        ("distance", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
        ("element", ctypes.c_ubyte * 8),
    )


@dataclass(frozen=True)
class Damage:
    """What was written to a band, first seen after a launch.

    `distance` is that of the nearest damaged byte from the edge of the buffer, 0 right beside it;
    `count` are all damaged bytes, `element` the bytes of the element there, at most 8.
    """

    launch: int
    distance: int
    count: int
    element: bytes


def band(address: int, size: int, pattern: bytes, place: int, *, before: bool, item: int) -> bytes:
    """One row of the table that `Bands.compare` takes: `size` bytes at an address that have the
    pattern's byte at their address modulo 8, beside a buffer of elements of `item` bytes."""
    word = int.from_bytes(pattern, "little")
    return _BAND.pack(address, word, size, place, before, min(item, 255))


class Bands:
    """The bands of one device, -1 for the CPU, in all wrappers of the process."""

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
        """Two places for damage; None where there are none left."""
        with self._lock:
            return (self._free.pop(), self._free.pop()) if len(self._free) > 1 else None

    def give(self, place: int) -> None:
        """A place is free again; what is compared there is over."""
        ctypes.memset(ctypes.addressof(self._rows[place]), 0, ctypes.sizeof(_Damage))
        with self._lock:
            self._free.append(place)

    def compare(self, table: bytes, launch: int, stream: int) -> int:
        """Compare the bands of a table after a launch: how many are newly damaged, -1 if they could
        not be compared.

        On a GPU this goes to a stream, and nothing waits: 0.
        """
        count = len(table) // _BAND.size
        return int(self._compare(self._device, table, count, launch + 1, stream))

    @property
    def has_damage(self) -> bool:
        """Whether any band of a GPU was damaged so far, as far as the host knows."""
        return bool(self._rows[0].launch)

    def read(self, place: int) -> Damage | None:
        row = self._rows[place]
        if not row.launch:
            return None
        return Damage(row.launch - 1, row.distance, row.count, bytes(row.element))


@cache
def bands(device: int) -> Bands | str:
    """The bands of a device, or why there are none."""
    library = load()
    if not isinstance(library, EngineLibrary):
        return str(library)
    if device >= 0 and (problem := start(device)):
        return problem
    try:
        return Bands(device, library)
    except OSError as error:
        return str(error)
