"""Files of tensors that a recorder saves."""

from __future__ import annotations

from pathlib import Path

import torch

from rewriter.runtime import attach, extension
from tables import options


class Saved:
    """Has a recorder save tensors, each in a call of its own."""

    def __init__(self, dump: Path) -> None:
        self._calls = dump / "rank0"
        self._recorder = attach(options("save", directory=str(dump)), [], ["x"])

    def save(self, content: torch.Tensor, folder: Path | None = None) -> Path:
        """The path of its file, which is in this folder."""
        self._recorder.begin()
        call = self._calls / f"run{len(list(self._calls.iterdir())) - 1}"
        if folder:
            (call / "inputs").symlink_to(folder)
        self._recorder.inputs(content)
        self._recorder.end()
        if content.is_cuda:
            extension.finish_writing()
        return call / f"inputs/aoti_model_inputs_x_{content.device}.pt"


def content_of(path: Path) -> torch.Tensor:
    found = torch.load(path, weights_only=True)
    assert isinstance(found, torch.Tensor)
    return found
