"""The `m.cache` beside an `m.py` of `torch.compiler.precompile`.

The cache has kernels that were compiled for the code, and the SHA-256 of the code:
`torch.compiler.precompile.load` refuses the pair if the code has another (torch/_precompile.py of
2.15). It is a zip file of `torch.save`, whose `data.pkl` is read by its opcodes: nothing is
unpickled.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from rewriter.artifact.package import container
from rewriter.artifact.recognise import PACKAGE, PAIRED, read, read_head
from rewriter.artifact.types import NewFile, Wrapper
from rewriter.core import limits, pickle_strings
from rewriter.core.errors import RewriterError

_FORMAT = "torch.compiler.precompile"
_MEMBER = "data.pkl"
_HASH = re.compile(r"[0-9a-f]{64}")

_LOCAL, _LOCAL_CRC, _LOCAL_LENGTHS = 30, 14, struct.Struct("<HH")  # at 26: name, extra
_CENTRAL, _CENTRAL_CRC, _CENTRAL_LENGTHS = 46, 16, struct.Struct("<HHH")  # at 28: and comment
_DESCRIPTOR = b"PK\7\x08"
_HAS_DESCRIPTOR = 0x8
_CRC = struct.Struct("<L")


@dataclass(frozen=True)
class PrecompileCache:
    """A cache: the hash of the code that it belongs to, and the place of that hash.

    `pickle` is the offset of the pickle in the file, `at` that of the hash; `crcs` are the offsets
    of the pickle's checksum.
    """

    path: Path
    data: bytes = field(repr=False)
    code_hash: str
    at: int
    pickle: slice
    crcs: tuple[int, ...]

    def belongs_to(self, code: bytes) -> bool:
        """Whether torch loads the cache with this code."""
        return self.code_hash == hashlib.sha256(code).hexdigest()

    def for_code(self, code: bytes) -> bytes:
        """The cache for other code: the same bytes except for the hash and checksums."""
        data = bytearray(self.data)
        data[self.at : self.at + len(self.code_hash)] = hashlib.sha256(code).hexdigest().encode()
        crc = _CRC.pack(zlib.crc32(data[self.pickle]))
        for place in self.crcs:
            data[place : place + _CRC.size] = crc
        return bytes(data)


def cache_with(wrapper: Wrapper, source: bytes) -> tuple[tuple[NewFile, ...], str]:
    """The cache beside the file of a wrapper, for a new source; none if it belongs to another file,
    and then a warning."""
    path = wrapper.path.with_suffix(PAIRED)
    if wrapper.path.suffix != ".py" or (cache := read_cache(path)) is None:
        return (), ""
    if not cache.belongs_to(wrapper.source):
        return (), (
            f"warning: {path} does not belong to {wrapper.path}, and stays as it is: its code_hash "
            f"begins with {cache.code_hash[:12]}. torch.compiler.precompile.load refuses the two; "
            "one of them was exchanged or edited"
        )
    after, plain = cache.for_code(source), cache.for_code(wrapper.restored.source)
    return (NewFile(path, path.name, cache.data, after, plain, ()),), ""


def read_cache(path: Path) -> PrecompileCache | None:
    """Read a cache of `torch.compiler.precompile`; `None` if a file is something else.

    Raises `RewriterError` if it is damaged.
    """
    if not read_head(path).startswith(PACKAGE.magic):
        return None
    try:
        members = container.open_zip(path)
        name = next((name for name in members.names if Path(name).name == _MEMBER), None)
        if name is None:
            return None
        pickle = members.read(name, limits.PICKLE_BYTES)
        strings = pickle_strings.strings(pickle, ("format", "code_hash"))
    except RewriterError as error:
        raise _damaged(path, error.message.removeprefix(f"{path}: ")) from error
    known = {string.key: string for string in strings}
    if "format" not in known or known["format"].value != _FORMAT:
        return None
    code_hash = known.get("code_hash")
    if code_hash is None or not _HASH.fullmatch(code_hash.value):
        raise _damaged(path, "it does not say which code it belongs to")
    data = read(path, limits.PICKLE_BYTES)
    start, crcs = _places(path, data, name)
    if data[start : start + len(pickle)] != pickle:
        raise _damaged(path, f"{name} is compressed, which torch.save does not do")
    return PrecompileCache(
        path,
        data,
        code_hash.value,
        start + code_hash.start,
        slice(start, start + len(pickle)),
        crcs,
    )


def _places(path: Path, data: bytes, name: str) -> tuple[int, tuple[int, ...]]:
    """The offset of a member's bytes, and the offsets of its checksum."""
    with zipfile.ZipFile(path) as file:
        entry = file.getinfo(name)
        before = file.infolist()[: file.infolist().index(entry)]
        central = file.start_dir
    for _ in before:
        lengths = _CENTRAL_LENGTHS.unpack_from(data, central + 28)
        central += _CENTRAL + sum(lengths)
    local = entry.header_offset
    start = local + _LOCAL + sum(_LOCAL_LENGTHS.unpack_from(data, local + 26))
    expected = _CRC.pack(entry.CRC)
    crcs = [central + _CENTRAL_CRC]
    if entry.flag_bits & _HAS_DESCRIPTOR:
        # The checksum follows the bytes; the header may have it, too.
        behind = start + entry.compress_size
        crcs.append(behind + len(_DESCRIPTOR) * data.startswith(_DESCRIPTOR, behind))
    if not entry.flag_bits & _HAS_DESCRIPTOR or data.startswith(expected, local + _LOCAL_CRC):
        crcs.append(local + _LOCAL_CRC)
    if any(not data.startswith(expected, place) for place in crcs):
        raise _damaged(path, f"its checksums of {name} differ from each other")
    return start, tuple(crcs)


def _damaged(path: Path, problem: str) -> RewriterError:
    return RewriterError(
        "damaged-cache",
        f"{path}, a cache of torch.compiler.precompile, is damaged: {problem}",
        hint="Capture the two again; or move the cache away: torch compiles the kernels of the "
        "code without it.",
    )
