"""Compiles one model into a directory: its wrappers in a separate cache, and their inputs.

    python -m benchmarks.faults.compile MODEL FORM DEVICE FOLDER

Writes `FOLDER/programs.json`: a row for each graph, with the paths of its files and its inputs. It
is a program because a process can have only one cache directory of Inductor's.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any


def main(name: str, form: str, device: str, folder: Path) -> None:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "cache")
    if form == "aoti":  # a package does not hold its graph; the debug directory does
        os.environ["TORCH_COMPILE_DEBUG"] = "1"
        os.environ["TORCH_COMPILE_DEBUG_DIR"] = str(folder / "debug")
    from benchmarks.faults.models import build_of

    case = build_of(name)(device)
    make = _package if form == "aoti" else _wrappers
    (folder / "programs.json").write_text(json.dumps(make(case, form, folder), indent=1))


def _wrappers(case: Any, form: str, folder: Path) -> list[dict[str, Any]]:
    import torch
    import torch._inductor.config as config

    from capture import captured_calls, captured_sources

    sources: list[str] = []
    calls: list[list[Any]] = []
    settings = {**case.config, "cpp_wrapper": form == "cpp_wrapper"}
    with captured_sources(sources), captured_calls(calls), config.patch(settings):
        function = torch.compile(case.fn, dynamic=case.dynamic)
        with contextlib.nullcontext() if case.train else torch.no_grad():
            outputs = function(*case.inputs)
        if case.train:
            outputs.sum().backward()
    files = {path.read_text(): path for path in (folder / "cache").glob("??/c*.py")}
    rows = []
    for number, (source, args) in enumerate(zip(sources, calls, strict=True)):
        torch.save(args, folder / f"args{number}.pt")
        rows.append({"files": [str(files[source])], "args": str(folder / f"args{number}.pt")})
    return rows


def _package(case: Any, form: str, folder: Path) -> list[dict[str, Any]]:
    import torch

    from capture import export_case, package_exported

    exported = export_case(case, folder / "export")
    package_exported({"model": exported}, folder / "model.pt2")
    torch.save(exported.inputs, folder / "args.pt")
    return [
        {
            "files": [str(exported.wrapper), str(exported.kernel)],
            "args": str(folder / "args.pt"),
            "package": str(folder / "model.pt2"),
            "graph": str(folder / "debug"),
            "compile": [exported.compile_command, exported.kernel_compile_command],
            "link": exported.link_command,
        }
    ]


if __name__ == "__main__":
    sys.path += [str(Path(__file__).parents[2] / one) for one in ("fixtures", "tests/support")]
    main(*sys.argv[1:4], Path(sys.argv[4]))  # type: ignore[call-arg]
