"""The time to an answer: `run` and `diagnose` of whole programs, against the program by itself.

    python -m benchmarks.answers [--device cpu|cuda] [--rounds N] [--check]

A small GPT that is trained: as it should be, with a NaN that one step makes, and with an operator
that crashes. Each is timed with an empty cache and with one that is filled, in turns, with caches
of its own; the starts of the program are counted by a file that it writes.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import rows
from benchmarks.faults.programs import environment_with
from benchmarks.rows import Row

TARGET = 3.0  # times the program by itself
_COMMANDS = {"run": ("run", "--"), "diagnose": ("diagnose", "--")}
_PROGRAM = """
import ctypes, os, sys
import torch
from torch import library, nn

what, device = sys.argv[1:]
with open(os.environ["STARTS"], "a") as stream:
    stream.write("start\\n")


@library.custom_op("answers::scale", mutates_args=())
def scale(x: torch.Tensor) -> torch.Tensor:
    if what == "crash":
        ctypes.string_at(0)
    return x * 0.5


@scale.register_fake
def _(x):
    return torch.empty_like(x)


scale.register_autograd(lambda ctx, grad: grad * 0.5)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        wide = 4 * width
        self.mlp = nn.Sequential(nn.Linear(width, wide), nn.GELU(), nn.Linear(wide, width))

    def forward(self, x):
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(1000, 128)
        self.blocks = nn.Sequential(*(Block(128) for _ in range(4)))
        self.head = nn.Linear(128, 1000)

    def forward(self, ids, lengths):
        x = scale(self.blocks(self.embed(ids)))
        pooled = x.sum(1) / lengths[:, None]
        return self.head(pooled * (lengths.log() + 1)[:, None])


torch.manual_seed(0)
model = torch.compile(Model().to(device))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(20):
    ids = torch.randint(1000, (8, 64), device=device)
    lengths = torch.full((8,), 64.0, device=device)
    if what == "nan" and step == 7:
        lengths[3] = -1
    loss = model(ids, lengths).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(float(loss))
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = rows.options(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=["clean", "nan", "crash"], metavar="PROGRAM")
    args = parser.parse_args(argv)
    facts: dict[str, object] = {"device": args.device, "rounds": args.rounds}
    with tempfile.TemporaryDirectory() as folder:
        made = [row for what in args.only for row in _rows(args, what, Path(folder), facts)]
    return rows.report(made, args, **facts)


def _rows(
    args: argparse.Namespace, what: str, folder: Path, facts: dict[str, object]
) -> Iterator[Row]:
    (folder / "train.py").write_text(_PROGRAM)
    program = [sys.executable, str(folder / "train.py"), what, args.device]
    ways = {"plain": program} | {
        name: [sys.executable, "-m", "rewriter", *words, *program]
        for name, words in _COMMANDS.items()
    }
    seconds: dict[tuple[str, str], list[float]] = {}
    for number in range(args.rounds):
        for way, command in ways.items():
            for cache in ("cold", "warm"):  # the second time with what the first one left
                spent, starts = _timed(command, folder / what / way / str(number))
                seconds.setdefault((cache, way), []).append(spent)
                facts[f"{what}, {way}: starts"] = starts
                sys.stderr.write(f"{what}, {cache}: {way} {spent:.1f} s, {starts} starts\n")
    for cache in ("cold", "warm"):
        plain = statistics.median(seconds[cache, "plain"])
        for way in _COMMANDS:
            spent = statistics.median(seconds[cache, way])
            name = f"{what}, {cache}: {way}, {facts[f'{what}, {way}: starts']} starts"
            yield Row(name, spent, plain, TARGET, "s")


def _timed(command: Sequence[str], folder: Path) -> tuple[float, int]:
    """The seconds of a command, and how often it started the program."""
    folder.mkdir(parents=True, exist_ok=True)
    starts = folder / "starts"
    starts.write_text("")
    shutil.rmtree(folder / "work", ignore_errors=True)
    (folder / "work").mkdir()
    environment = environment_with(folder / "cache") | {"STARTS": str(starts)}
    begun = time.perf_counter()
    with (folder / "output").open("w") as output:
        # A program that crashes, and a finding, are no failures here.
        subprocess.run(
            command, cwd=folder / "work", env=environment, stdout=output, stderr=output, check=False
        )
    return time.perf_counter() - begun, len(starts.read_text().splitlines())


if __name__ == "__main__":
    sys.exit(main())
