"""A program of several ranks: each calls its own wrappers, one after the other.

    python -m torch.distributed.run … replicas.py FOLDER CASE…

FOLDER/CASE holds `rank0.py` with its inputs in `rank0.pt`, and so on; `dump` will be there, too.
Every rank has also a group of its own, whose name is its number and one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from harness import call


def main(folder: Path, *cases: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    alone = [dist.new_group([member]) for member in range(dist.get_world_size())]
    assert alone[rank].group_name == str(rank + 1)
    for case in cases:
        os.environ["REWRITER_DUMP"] = str(folder / case / "dump")
        wrapper = folder / case / f"rank{rank}.py"
        imported = wrapper.with_suffix("")
        imported.mkdir()
        call(wrapper.read_bytes(), torch.load(wrapper.with_suffix(".pt")), imported)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
