"""Makes small dumps, and what nobody would write into one: for the fuzzer of dumps."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import mutators
from dumps import Row, launch, value, write

_KERNELS = ("cpp_fused_add_0", "extern_kernels.addmm", "triton_poi_fused_relu_1", "aten.topk",
            "torch.ops._c10d_functional.all_reduce_.default", "cpp_fused_index_2")  # fmt: skip
_DEEP = 300
# As text, since Python has no way to write some of them.
_NUMBERS = (
    "0", "-1", "1", "0.5", "-0.0", "1e308", "1e999", "-1e999", "NaN", "Infinity", "2147483648",
    "9223372036854775807", "9223372036854775808", "18446744073709551616", "1" + "0" * 400,
    "1" * 5000, "1e-400", "true", "false", "null",
)  # fmt: skip
_STRINGS = (
    '"inf"', '"-inf"', '"nan"', '""', '"x"', '"1"', r'"\ud800"', r'"\u0000"', r'"\u001b[31m"',
    '"../../../etc/passwd"', '"/etc/passwd"', '"/dev/zero"', '"' + "a" * 5000 + '"', '"float32"',
    '"bfloat16"', '"float8_e4m3fn"', '"complex64"', '"int64"', '"uint8"', '"bool"', '"none"',
    '"before"', '"after"', '"inputs"', '"in"', '"out"', '"inout"', '"\U0001f4a9"', '"a\\nb"',
    '"<script>alert(1)</script>"', '"\u202e"',
)  # fmt: skip
_OTHERS = (
    "[]", "{}", "[[]]", "[0]", "[1]", "[-1]", "[4, 8]", "[8, 4]", "[4611686018427387904, 4]",
    "[1e3]", '["a"]', '{"a": 1}', '{"a": 1, "a": 2}', "[" * _DEEP + "]" * _DEEP,
    '{"a":' * _DEEP + "1" + "}" * _DEEP, "[" * 100_000, '[["in", "buf0"]]', '[["in"]]', "[[[]]]",
    "[null]", '{"out0": ["buf0"]}', '{"run": ["buf1", null]}',
)  # fmt: skip
_NAMES = (
    "time", "error", "unexpected", "captured", "file", "iteration", "launch", "value", "type", "of",
    "sha256", "x",
)  # fmt: skip
_DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float64,
           torch.uint8, torch.float8_e4m3fn)  # fmt: skip


def make(choices: random.Random, root: Path) -> Path:
    """A dump of some calls; some with tensors saved."""
    for rank in range(choices.choice((1, 1, 2, 3))):
        for run in range(choices.choice((1, 1, 2))):
            _make_run(choices, root, rank, run)
    return root


def _make_run(choices: random.Random, root: Path, rank: int, run: int) -> None:
    count = choices.randint(1, 5)
    save = choices.random() < 0.4
    launches = []
    place = root / f"rank{rank}" / f"run{run}"
    files: dict[str, torch.Tensor] = {}
    for index in range(count):
        rows: list[list[Row]] = [[], []]
        for role, found, names in (("in", rows[0], [index - 1]), ("out", rows[1], [index])):
            for number in names:
                fields: Row = {
                    "nan": choices.choice((0, 0, 0, 5)),
                    "inf": choices.choice((0, 0, 3)),
                }
                if choices.random() < 0.2:
                    fields |= {"sha256": choices.choice(("0", "1")) * 64}
                if choices.random() < 0.1:
                    fields |= {"min": "-inf", "max": "inf", "mean": "nan", "std": None}
                if save:
                    fields["file"] = f"{index:06d}/after_{role}_buf{number}.pt"
                    shape = choices.choice(((4, 8), (4, 8), (4, 8), (0,), (), (33,)))
                    tensor = torch.full(shape, float(index)).to(choices.choice(_DTYPES))
                    files[fields["file"]] = tensor
                found.append(value(f"buf{number}", role, float(index)) | fields)
        facts = {"line": 100 + index, "buffers": {}}
        kernel = choices.choice(_KERNELS)
        iteration = choices.choice((None, None, None, 0))
        launches.append(launch(index, kernel, *rows, iteration=iteration, **facts))
    inputs = [value("arg0_1", "in", 1.0)] if choices.random() < 0.5 else []
    write(
        root,
        launches,
        inputs=inputs,
        rank=rank,
        run=run,
        artifact=choices.choice(("a.py", "b.cpp")),
    )
    for name, tensor in files.items():
        (place / name).parent.mkdir(exist_ok=True)
        torch.save(tensor, place / name)


def mutate(choices: random.Random, root: Path) -> None:
    """Change a dump in one to four places."""
    for _ in range(choices.choice((1, 1, 1, 2, 4))):
        files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
        if not files:
            return
        path = choices.choice(files)
        change = choices.choices((_value, _text, _file, _tree), (8, 3, 1, 1))[0]
        change(choices, path, root)


def _value(choices: random.Random, path: Path, root: Path) -> None:
    """Exchange one value in the JSON of a file, or a key."""
    if path.suffix == ".pt":
        _saved(choices, path)
        return
    lines = path.read_text("utf-8", "surrogateescape").split("\n")
    number = choices.randrange(len(lines)) if path.suffix == ".jsonl" else 0
    try:
        content = json.loads(lines[number] if path.suffix == ".jsonl" else "\n".join(lines))
    except (ValueError, RecursionError):
        return
    nasty = choices.choice((*_NUMBERS, *_STRINGS, *_OTHERS))
    places = list(_places(content))
    if not places:
        text = nasty
    else:
        holder, key = choices.choice(places)
        act = choices.random()
        if act < 0.7:
            holder[key] = "@nasty@"
        elif act < 0.85:
            del holder[key]
        elif isinstance(holder, dict):
            holder[choices.choice(_NAMES)] = "@nasty@"
        text = json.dumps(content).replace('"@nasty@"', nasty)
    if path.suffix == ".jsonl":
        lines[number] = text
        text = "\n".join(lines)
    path.write_text(text, "utf-8", "surrogateescape")


def _places(content: Any) -> Any:
    """Every place in some JSON: what holds it, and under which key."""
    pairs = content.items() if isinstance(content, dict) else enumerate(content)
    for key, one in list(pairs) if isinstance(content, (dict, list)) else ():
        yield content, key
        if isinstance(one, (dict, list)):
            yield from _places(one)


def _saved(choices: random.Random, path: Path) -> None:
    """Another content of a saved tensor: damaged, or of another type or size."""
    act = choices.random()
    if act < 0.6 and not path.stat().st_size:
        return
    if act < 0.4:
        data = bytearray(path.read_bytes())
        for _ in range(choices.randint(1, 8)):
            data[choices.randrange(len(data))] = choices.randrange(256)
        path.write_bytes(data)
    elif act < 0.6:
        path.write_bytes(path.read_bytes()[: choices.randrange(path.stat().st_size)])
    else:
        others = (torch.zeros(4, 8), torch.full((4, 8), torch.nan), torch.zeros(0), torch.tensor(1),
                  torch.zeros(4, 8, dtype=torch.int8), torch.zeros(2, 3), [1],
                  {"a": torch.zeros(1)}, "text", torch.zeros(4, 8).to_sparse(),
                  torch.zeros(1).expand(1 << 20),
                  torch.full((4, 8), torch.inf), torch.empty(4, 8, device="meta"))  # fmt: skip
        torch.save(choices.choice(others), path)


def _text(choices: random.Random, path: Path, root: Path) -> None:
    path.write_bytes(mutators.mutate(choices, path.read_bytes()))


def _file(choices: random.Random, path: Path, root: Path) -> None:
    acts: tuple[Callable[[], Any], ...] = (
        path.unlink,
        lambda: path.write_bytes(b""),
        lambda: (path.unlink(), path.mkdir()),
        lambda: (path.unlink(), path.symlink_to("/nowhere")),
        lambda: (path.unlink(), path.symlink_to(path.name)),
        lambda: path.write_bytes(bytes(1000)),
        lambda: path.write_bytes(b"[" * 200_000),
        lambda: path.write_bytes(b'{"a": "' + b"\\" * 100_000),
        lambda: path.write_bytes(path.read_bytes() * 50),
        lambda: path.write_bytes(b"\n" * 10_000 + path.read_bytes()),
    )
    choices.choice(acts)()


def _tree(choices: random.Random, path: Path, root: Path) -> None:
    """Directories that are missing, that there are too many of, or under other names."""
    folder = choices.choice([x for x in sorted(root.rglob("*")) if x.is_dir()] or [root])
    names = ("rank0", "rank7", "rank-1", "rankx", "run9", "run", "run" + "9" * 100, "000001", "0",
             "rank00", "run0 ", "events.jsonl", "manifest.json")  # fmt: skip
    target = choices.choice((root, folder.parent, folder)) / choices.choice(names)
    act = choices.random()
    if act < 0.3 and folder != root:
        shutil.rmtree(folder)
    elif target.exists():
        return
    elif act < 0.6:
        target.mkdir()
    elif not target.is_relative_to(folder):
        shutil.copytree(folder, target, symlinks=True)
