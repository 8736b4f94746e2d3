"""How fast tensors get into files: against `cp` of the same files, and against `torch.save`.

Times are from the first tensor until all are in their files. On a shared machine the CPU seconds,
of all threads, say more than wall time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import rows
from benchmarks.recorders import recorder_of
from benchmarks.rows import Row

MEMORY = Path("/dev/shm")
SMALL = 4201
"""Small tensors: one for each launch of the largest wrapper that was seen in the wild."""


@dataclass(frozen=True)
class Spent:
    wall: float  # seconds
    cpu: float  # of this process and its children


def main(argv: Sequence[str] | None = None) -> int:
    parser = rows.options(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda if there is one")
    parser.add_argument("--folder", type=Path, default=MEMORY, help="where files are written")
    parser.add_argument("--tensors", type=int, default=168)
    parser.add_argument("--bytes", type=float, help="of all tensors; default: 3.75e9, on a CPU 1e9")
    args = parser.parse_args(argv)
    import torch

    args.device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    args.bytes = args.bytes or (3.75e9 if args.device == "cuda" else 1e9)
    facts: dict[str, Any] = {"device": args.device, "bytes": args.bytes}
    made = [*large(args, facts), *small(args.folder, facts)]
    return rows.report(made, args, **facts)


def large(args: argparse.Namespace, facts: dict[str, Any]) -> list[Row]:
    """Save as many tensors of the same total size as a forward pass of a GPT has results."""
    import torch

    count = int(args.bytes) // args.tensors // 2
    tensors = [
        torch.randn(count, device=args.device, dtype=torch.bfloat16) for _ in range(args.tensors)
    ]
    total = sum(tensor.nbytes for tensor in tensors)
    with _folder(args.folder) as folder:

        def save(name: str) -> None:
            recorder = recorder_of("save", directory=str(folder / name))
            recorder.begin()
            for number, tensor in enumerate(tensors):
                tensor[:1] = number
                recorder.after(0, tensor)
            facts.setdefault("handed_over_s", time.perf_counter() - begun)
            recorder.close()

        spent = []
        for repeat in range(3):
            for tensor in tensors:
                tensor += 1  # equal bytes would only be linked to the earlier file
            _wait(args.device)
            facts.pop("handed_over_s", None)
            begun = time.perf_counter()
            spent.append(_spent(lambda name=str(repeat): save(name)))  # type: ignore[misc]
            if repeat:
                shutil.rmtree(folder / str(repeat))
        best = min(spent[1:], key=lambda one: one.wall)
        copied = [_copy(folder / "0", folder / "copy") for _ in range(2)]
        copy = min(copied, key=lambda one: one.wall)
        by_torch = _spent(lambda: _save_by_torch(tensors, folder))
        facts["gigabytes_per_second"] = total / best.wall / 1e9
        made = [
            Row("save, until all is in files, against cp", best.wall, copy.wall, 1.5, "s"),
            Row("the same, CPU", best.cpu, copy.cpu, 2.5, "s"),
            Row("against torch.save of as many bytes", best.wall, by_torch.wall, 0.5, "s"),
        ]
        if args.device == "cuda":
            link = _spent(lambda: _fetch(tensors))
            made.append(
                Row("against copies to pinned memory alone", best.wall, link.wall, None, "s")
            )
        return made


def small(folder: Path, facts: dict[str, Any]) -> list[Row]:
    """Save many small tensors to a file each, compared with one file for all with an index."""
    import torch

    tensors = [torch.full((256,), float(number)) for number in range(SMALL)]
    with _folder(folder) as place:
        recorder = recorder_of("save", directory=str(place))
        recorder.begin()
        recorder.after(0, torch.zeros(1))  # starts threads
        recorder.end()

        def each() -> None:
            recorder.begin()
            for tensor in tensors:
                recorder.after(0, tensor)
            facts["small_cpu_of_the_model_s"] = time.thread_time() - begun
            recorder.close()

        begun = time.thread_time()
        files = _spent(each)
        facts["small_inodes"] = sum(len(found) + len(below) for _, below, found in os.walk(place))
        one = _spent(lambda: _one_file(tensors, place / "all"))
        by_torch = _spent(lambda: _save_by_torch(tensors, place))
    return [
        Row(
            f"{SMALL:,} small tensors, a file each, against one file",
            files.wall,
            one.wall,
            None,
            "s",
        ),
        Row("the same, CPU", files.cpu, one.cpu, None, "s"),
        Row("against torch.save", files.wall, by_torch.wall, 0.5, "s"),
    ]


def _one_file(tensors: Sequence[Any], path: Path) -> None:
    """Write all tensors to one file with an index: two writes for each tensor."""
    with path.open("wb", buffering=0) as data, path.with_suffix(".index").open("wb", 0) as index:
        for number, tensor in enumerate(tensors):
            data.write(memoryview(tensor.numpy()).cast("B"))
            index.write(b'{"file": "%06d/after_launch_kernel_buf_cpu.pt"}\n' % number)


def _save_by_torch(tensors: Sequence[Any], folder: Path) -> None:
    import torch

    (folder / "torch").mkdir()
    for number, tensor in enumerate(tensors):
        torch.save(tensor.cpu(), folder / "torch" / f"{number}.pt")


def _fetch(tensors: Sequence[Any]) -> None:
    import torch

    room = torch.empty_like(tensors[0], device="cpu", pin_memory=True)
    _wait("cuda")
    for tensor in tensors:
        room.copy_(tensor, non_blocking=True)
    _wait("cuda")


def _copy(source: Path, target: Path) -> Spent:
    spent = _spent(lambda: subprocess.run(["cp", "-r", str(source), str(target)], check=True))
    shutil.rmtree(target)
    return spent


def _wait(device: str) -> None:
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def _spent(act: Callable[[], object]) -> Spent:
    before, begun = os.times(), time.perf_counter()
    act()
    wall, after = time.perf_counter() - begun, os.times()
    return Spent(wall, sum(after[:4]) - sum(before[:4]))


@contextmanager
def _folder(parent: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rewriter-saving-", dir=parent) as folder:
        yield Path(folder)


if __name__ == "__main__":
    sys.exit(main())
