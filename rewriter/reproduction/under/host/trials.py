"""Runs in a process of its own, with torch alone: one launch again and again, on other values.

`python trials.py SCRIPT FOLDER MODE` executes a `repro.py`, leaves its arguments in `base.pt`, and
answers each line of JSON on its input by one on its output. Mode `run` launches the kernel and
leaves what it wrote in `results.pt`; `capture` leaves what a C++ kernel is handed.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch


def main(script: Path, folder: Path, mode: str) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the script prints is no answer
    cpu_kernel: Any = importlib.import_module("cpu_kernel")  # beside this file
    calls = cpu_kernel.captured(folder) if mode == "capture" else None
    names: dict[str, Any] = {"__name__": "repro", "__file__": str(script)}
    exec(compile(script.read_text(encoding="utf-8"), str(script), "exec"), names)
    torch.save(names["arguments"](), folder / "base.pt")
    print(json.dumps({"ready": True}), file=answers)
    for line in sys.stdin:
        wanted = json.loads(line)
        tensors = torch.load(wanted["given"], weights_only=True)
        try:
            results = names["launch"](**tensors, **wanted["sizes"])
            if calls is None:
                kept = {name: value.detach().cpu().clone() for name, value in results.items()}
                torch.save(kept, folder / "results.pt")
            else:
                cpu_kernel.leave(calls, tensors)
            answer: dict[str, Any] = {"ok": True}
        except Exception as error:
            answer = {"ok": False, "error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
