"""The containers under `fixtures/containers`, and forms that are made of them."""

from __future__ import annotations

import os
import pickle
import zlib
from pathlib import Path

CONTAINERS = Path(__file__).parents[2] / "fixtures" / "containers"

ONE = ["inference.py"]
TRAINED = ["forward.py", "backward.py"]
# Each with its form and the names of its wrappers.
FORMS = {
    "mega-cache.bin": ("mega-cache", TRAINED),
    "standalone.bin": ("standalone", ONE),
    "standalone-2.8.bin": ("standalone", ONE),
    "standalone-aot.bin": ("standalone-aot", ONE),
    "standalone-cpp.bin": ("standalone-aot", ONE),
    "aot-compile.bin": ("aot-compile", ONE),
    "aot-compile-2.15.bin": ("aot-compile", ONE),
    "vllm-model": ("vllm-model", ["submod_0/1-8192/inference.py"]),
    "fx-graph.entry": ("fx-graph-entry", ONE),
    "aot-autograd-bundled.entry": ("aot-autograd-entry", TRAINED),
    "dynamo.entry": ("dynamo-entry", ONE),
}
# Those whose bytes have a checksum.
CHECKED = [name for name in FORMS if name.startswith(("mega", "standalone"))]


def data_of(name: str) -> bytes:
    """The bytes of a container; what another torch writes differently is made from 2.13's."""
    if name == "standalone-2.8.bin":  # no header
        data = (CONTAINERS / "standalone.bin").read_bytes()[4:]
        return with_checksum(data[8 + int.from_bytes(data[:8], "big") :])
    if name == "aot-compile-2.15.bin":  # a prefix
        return b"PT2AOT\x01" + (CONTAINERS / "aot-compile.bin").read_bytes()
    return (CONTAINERS / name).read_bytes()


def with_checksum(body: bytes) -> bytes:
    """A list of items behind its checksum."""
    return zlib.crc32(body).to_bytes(4, "big") + body


class Hostile:
    """An object whose pickle runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (self.command,)


def hostile(command: str, name: str) -> bytes:
    """A container with a sound wrapper that runs a command when it is loaded."""
    inside = data_of("fx-graph.entry")
    data = pickle.dumps([Hostile(command), inside])
    if name == "standalone-aot.bin":
        header = b"AOTCompiledArtifact"
        return with_checksum(b"".join(map(_item, (header, bytes(32), data))))
    return data


def _item(data: bytes) -> bytes:
    return len(data).to_bytes(8, "big") + data
