"""Calls of invented graphs whose launches were recorded, as `verify` goes through them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from rewriter.core.types import Phase
from rewriter.diagnosis.verification import functional
from rewriter.diagnosis.verification.received import LaunchValues
from rewriter.diagnosis.verification.whole_graph import GraphOutcome, WholeGraph
from rewriter.dump.rows import TensorRow
from rewriter.locate.types import Argument, Launch

Tensors = Mapping[str, torch.Tensor]


def saved_row(
    folder: Path, name: str, tensor: torch.Tensor, phase: Phase = "after", **more: Any
) -> TensorRow:
    """The row of a tensor, which is saved in this folder."""
    facts = {
        "role": "out", "dtype": str(tensor.dtype).removeprefix("torch."), "device": "cpu",
        "shape": tuple(tensor.shape), "stride": tuple(tensor.stride()),
        "file": f"{phase}_{name}.pt", **more,
    }  # fmt: skip
    torch.save(tensor, folder / facts["file"])
    return TensorRow(phase=phase, arg=name, **facts)


class GraphCall:
    """A call of a graph, and the launches of it so far."""

    def __init__(
        self,
        path: Path,
        text: str,
        inputs: Tensors,
        *,
        sizes: Mapping[str, int] = {},
        schemas: Mapping[str, str] = {},
        claims: Mapping[tuple[str, int], str] = {},
    ) -> None:
        rows = (SimpleNamespace(kernel=f"torch.ops.{x}", schema=y) for x, y in schemas.items())
        self._run: Any = SimpleNamespace(path=path, table=dict(enumerate(rows)))
        graph = functional.read(text, schemas)
        assert graph is not None
        self.graph = graph
        self._launches: list[Launch] = []
        given = self._rows(inputs)
        self._whole = WholeGraph(graph, self._launches, claims, self._run, given, sizes)

    def launch(
        self,
        given: Tensors,
        written: Tensors,
        *,
        kernel: str = "cpp_fused_0",
        kind: str = "cpp",
        statement: str = "",
        buffers: Mapping[str, str] = {},
        twice: str = "",
        numbers: Sequence[str] = (),
    ) -> GraphOutcome:
        """Check a launch that is given and writes these tensors, in the memory of `buffers`, and is
        given one of them `twice`, and those in `numbers` as numbers."""
        launch = self.skip(given, written, kernel=kernel, kind=kind, buffers=buffers)
        args = (replace(x, type="scalar") if x.name in numbers else x for x in launch.args)
        launch = replace(launch, args=tuple(args))
        again = (x for x in launch.args if x.name == twice)
        launch = replace(launch, args=(*launch.args, *again))
        rows = map(self._rows, (given, written))
        return self._whole.check(LaunchValues(self._run, launch, *rows, {}, statement))

    def skip(
        self,
        given: Iterable[str],
        written: Iterable[str],
        *,
        kernel: str = "cpp_fused_0",
        kind: str = "cpp",
        buffers: Mapping[str, str] = {},
    ) -> Launch:
        """A launch that is not recorded."""
        roles = {**dict.fromkeys(given, "in"), **dict.fromkeys(written, "out")}
        roles |= dict.fromkeys({*given} & {*written}, "inout")
        args: Any = tuple(
            Argument(x, x, buffers.get(x, x), role, "tensor")  # type: ignore[arg-type]
            for x, role in roles.items()
        )
        index = len(self._launches)
        launch = Launch(index, "", kernel, kind, 1, args, (), (), None)  # type: ignore[arg-type]
        self._launches.append(launch)
        return launch

    def _rows(self, tensors: Tensors) -> dict[str, TensorRow]:
        folder = self._run.path
        places = {x: f"{len(list(folder.iterdir()))}_{x}.pt" for x in tensors}
        return {x: saved_row(folder, x, y, file=places[x]) for x, y in tensors.items()}
