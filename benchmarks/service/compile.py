"""Compiles the model of the service to a wrapper or a package.

python -m benchmarks.service.compile PLAIN.py|PLAIN.pt2 DEVICE
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import torch

from benchmarks.service.model import build


def main() -> None:
    path, device = Path(sys.argv[1]), sys.argv[2]
    model, x = build(device)
    with torch.no_grad():
        if path.suffix == ".pt2":
            exported = torch.export.export(model, (x,))
            torch._inductor.aoti_compile_and_package(exported, package_path=str(path))
            return
        torch.compile(model)(x)
    from torch._inductor.codecache import PyCodeCache

    modules = [module for module in PyCodeCache.modules if hasattr(module, "call")]
    shutil.copy(str(modules[-1].__file__), path)


if __name__ == "__main__":
    main()
