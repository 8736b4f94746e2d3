"""Mutated containers through every command that reads them: refused, or right."""

from __future__ import annotations

import json
import random

import pytest

import fuzzing
from container_files import CHECKED, FORMS, data_of, with_checksum
from fuzzing import Case

pytestmark = pytest.mark.properties

# Opcodes of pickles, of which each means something else to the stack, and lengths.
_BYTES = b"\x80\x04.()}]uesbtR0120q\x94h\x93cXBC\x8c\x95\x96\x8e\x00\xff"


def fuzz_container(case: Case) -> None:
    """Mutate a container, and hand it to every command."""
    choices = case.random
    name = choices.choice(sorted(FORMS))
    data = data_of(name)
    # Behind a checksum that is right again, so that what comes after it is read.
    body = data[4:] if name in CHECKED else data
    for _ in range(choices.choice((1, 1, 2, 5))):
        body = _mutated(choices, body)
    path = case.write(name, with_checksum(body) if name in CHECKED else body)
    done = case.run("list", path, "--json")
    if done.code < 2:
        json.loads(done.output)
    probed, plain = case.folder / "probed", case.folder / "plain"
    done = case.run("instrument", path, "-o", probed, "--probe", "print")
    if done.code == 0:
        case.run("strip", probed, "-o", plain)
        case.expect(plain.read_bytes() == path.read_bytes(), "strip gives back other bytes")
    case.run("diff", path, case.write("whole", data))


def _mutated(choices: random.Random, data: bytes) -> bytes:
    at = choices.randrange(len(data) + 1)
    act = choices.random()
    if act < 0.4:
        return data[:at] + bytes([choices.randrange(256)]) + data[at + 1 :]
    if act < 0.6:
        return data[:at] + bytes([choices.choice(_BYTES)]) + data[at + 1 :]
    if act < 0.7:
        return data[:at] + data[at + choices.randrange(1, 50) :]
    if act < 0.8:
        return data[:at] + choices.randbytes(choices.randrange(1, 20)) + data[at:]
    if act < 0.9:
        other = data_of(choices.choice(sorted(FORMS)))
        return data[:at] + other[choices.randrange(len(other)) :]
    return data[:at] + data[: choices.randrange(len(data) + 1)]


test_mutated_containers = fuzzing.seeded_test("containers", fuzz_container, few=5, many=5_000)
