"""The values of this room: one launch with its tensors, and the Python that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rewriter.artifact.types import OpenWrapper
from rewriter.core.types import Role
from rewriter.dump.dataflow import FlowNode
from rewriter.dump.reading import RunDump
from rewriter.locate.types import Launch


@dataclass(frozen=True)
class Tensor:
    """A recorded tensor: what the dump calls it, and the saved file that has its elements.

    `file` is `None` for a result of which only shape, stride (in elements) and device are needed.
    `carried` is true where the launch's own value was not saved, and this is the buffer as its
    maker left it: then the launch's expression has to be applied to it.
    """

    name: str
    role: Role
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str
    file: Path | None
    carried: bool = False


@dataclass(frozen=True)
class Recorded:
    """One launch of one call. `given` are tensors by name, what it only writes among them without
    a file; `written` what it left behind; `numbers` are scalars of the call, as Python literals."""

    run: RunDump
    wrapper: OpenWrapper
    launch: Launch
    node: FlowNode
    given: Mapping[str, Tensor]
    written: Mapping[str, Tensor]
    numbers: Mapping[str, str]

    @property
    def title(self) -> str:
        return f"#{self.launch.index} {self.launch.kernel}"


@dataclass(frozen=True)
class Cut:
    """The Python that runs one launch by itself.

    `header` are imports and short names, `kernels` the definitions of what is launched. `call` are
    the statements of the launch, in which a tensor has the variable that `variables` give it (by
    its name in the dump); `results` are expressions after the call, by the name of what was
    written.
    """

    header: str
    kernels: str
    call: str
    variables: Mapping[str, str]
    results: Mapping[str, str]
