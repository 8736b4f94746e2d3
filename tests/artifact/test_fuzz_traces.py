"""Mutated logs of `TORCH_TRACE` and pages of tlparse: refused, named as damaged, or right."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

import fuzzing
import mutators
from fuzzing import Case

pytestmark = pytest.mark.properties

TRACES = Path(__file__).parents[2] / "fixtures" / "traces"
_NUMBERS = ("0", "-1", "1" * 300, "1" * 5000, "null", "true", '"0"', '"../.."', "[0]", "{}",
            "1e999", '"' + "a" * 300 + '"', "0.5", '"\\u001b[31m"', '"\\ud800"')  # fmt: skip
_KEYS = ("frame_id", "frame_compile_id", "attempt", "rank", "compiled_autograd_id", "has_payload",
         "inductor_output_code", "graph_dump", "name", "filename")  # fmt: skip
_TAGS = (b"<" * 5000, b"<pre>", b"</pre>", b"<pre", b"<!--", b"<script>", b"&amp;",
         b"&#" + b"9" * 5000, b"&#x110000;", b"&#xd800;", b"&lt", b"&" * 5000, b"<a b='>'>",
         b"\xff", b"</pre></pre>")  # fmt: skip


def fuzz_trace(case: Case) -> None:
    """Mutate one of the files of a traced program, and hand it, or all of them, to the commands."""
    choices = case.random
    source = choices.choice(sorted(path for path in TRACES.iterdir() if path.is_dir()))
    folder = case.folder / "traced"
    shutil.copytree(source, folder)
    kinds = (".log", ".html", ".txt", ".py")
    files = [path for path in sorted(folder.rglob("*")) if path.suffix in kinds and path.is_file()]
    path = choices.choice(files)
    for _ in range(choices.choice((1, 1, 2, 4))):
        path.write_bytes(_mutated(choices, path))
    given = choices.choice((path, folder))
    case.run("list", given)
    if choices.random() < 0.5:
        done = case.run("list", given, "--json")
        if done.code < 2:
            json.loads(done.output)
    out = case.folder / "out"
    done = case.run("instrument", given, "-o", out, "--probe", "print")
    if done.code == 0 and out.exists():
        case.run("strip", out, "-o", case.folder / "plain")
        case.expect(case.outcomes[-1].code == 0, "strip refuses what instrument wrote")
    case.run("diff", given, source)


def _mutated(choices: random.Random, path: Path) -> bytes:
    data = path.read_bytes()
    act = choices.random()
    if path.suffix == ".log" and act < 0.6:
        return _entry(choices, data)
    if path.suffix in (".html", ".txt") and act < 0.6:
        at = choices.choice((0, len(data), choices.randrange(len(data) + 1)))
        return data[:at] + choices.choice(_TAGS) + data[at:]
    return mutators.mutate(choices, data)


def _entry(choices: random.Random, data: bytes) -> bytes:
    """A log with another value in the object of one entry."""
    lines = data.split(b"\n")
    entries = [number for number, line in enumerate(lines) if b"inductor_output_code" in line]
    if not entries:
        return mutators.mutate(choices, data)
    number = choices.choice(entries)
    head, brace, text = lines[number].partition(b"{")
    try:
        about = json.loads(brace + text)
    except ValueError:
        return mutators.mutate(choices, data)
    about[choices.choice(_KEYS)] = "@nasty@"
    written = json.dumps(about).replace('"@nasty@"', choices.choice(_NUMBERS))
    lines[number] = head + written.encode()
    if choices.random() < 0.2:
        lines.insert(number, lines[number])
    return b"\n".join(lines)


test_mutated_traces = fuzzing.seeded_test("traces", fuzz_trace, few=5, many=1_000)
