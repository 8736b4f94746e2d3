"""The ring buffer of the probe `record`: the last rows and marks of a process.

It lies in a file that is mapped into memory, and so survives the process however that ends;
`cpp/engine/flight_file.h` has the same layout.
"""

from __future__ import annotations

import struct

FOLDER, RING, TABLES = "record", "ring", "tables"
MAGIC, VERSION = b"rwflight", 1
HEADER = struct.Struct("<8sQQQQIIQqQIIQQ")
"""Magic, version, capacity, head, tail, lock, state, calls, pid, start, rank, slots; the time of
creation by the wall clock and by the monotonic clock."""
SLOT = struct.Struct("<QQiiQiiQQQ")
"""The marks of one thread: thread, call; of the launch that began last: index + 1, iteration, time;
the same of the launch that ended last; the number of the call in its wrapper, table."""
RECORD = struct.Struct("<IHHQQQQQ")
"""The head of a record: size, kind, padding, call, number in its wrapper, thread, time, table."""
CALL = struct.Struct("<QQQQQ")
"""A call in packed form: call, its number in its wrapper, thread, table, time at which it began."""
HEADER_BYTES, MESSAGE_AT, SLOTS = 4096, 1024, 255
DATA_AT = HEADER_BYTES + SLOTS * SLOT.size
BEGIN, ROWS, END = 1, 2, 3
ENDED, COPIED = 2, 3  # states of a ring; 1: its program runs
LOST, LOST_AT = struct.Struct("<I"), 100
"""In the header: how often a thread lost its slot to another thread while it was in a launch."""
MOST = 64 << 20  # bytes of a ring
