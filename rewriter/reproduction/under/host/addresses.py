"""Runs in a process of its own, with torch alone: a `repro.py` that says where its arguments lie.

`python addresses.py SCRIPT` runs the launch once, and prints `argument NAME ADDRESS BYTES ITEM`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def main(script: Path) -> None:
    names: dict[str, Any] = {"__name__": "repro", "__file__": str(script)}
    exec(compile(script.read_text(encoding="utf-8"), str(script), "exec"), names)
    tensors = names["arguments"]()
    for name, tensor in tensors.items():
        size = tensor.untyped_storage().nbytes()
        print(f"argument {name} {tensor.data_ptr():#x} {size} {tensor.element_size()}", flush=True)
    names["launch"](**tensors)
    names["wait"]()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
