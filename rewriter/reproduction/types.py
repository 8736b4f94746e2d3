"""The values of this room: one launch with its tensors, the Python that runs it, and the errors for
launches of which there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.artifact.types import Wrapper
from rewriter.core.errors import RewriterError
from rewriter.core.types import Role
from rewriter.dump.dataflow import FlowNode
from rewriter.dump.reading import RunDump
from rewriter.locate.types import Launch

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Tensor:
    """A recorded tensor: what the dump calls it, and the saved file that has its elements.

    `file` is `None` for a result of which only shape, stride (in elements) and device are needed.
    `least` and `most` are its extremes, if they were recorded.
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
    least: float | None = None
    most: float | None = None

    def drawn(self, seed: int) -> torch.Tensor:
        """Random values between the extremes, always the same for a seed: where its own are not in
        the dump, or not to be shown. Raises `RewriterError` if torch has no such dtype."""
        import torch

        dtype = getattr(torch, self.dtype, None)
        if not isinstance(dtype, torch.dtype):
            raise RewriterError(
                "corrupt-dump",
                f"this torch has no dtype {self.dtype}",
                hint="Use the torch that recorded the dump.",
            )
        generator = torch.Generator().manual_seed(seed)
        least, most = self.least, self.most
        if dtype.is_floating_point or dtype.is_complex:
            least, most = (0.0, 1.0) if least is None or most is None else (least, most)
            shares = torch.rand(self.shape, generator=generator, dtype=torch.float64)
            return (least + (most - least) * shares).to(dtype)
        first, last = (0, 1) if dtype == torch.bool else (int(least or 0), int(most or 0))
        values = torch.randint(first, max(first, last) + 1, self.shape, generator=generator)
        return values.to(dtype)


@dataclass(frozen=True)
class Recorded:
    """One launch of one call. `given` are tensors by name, what it only writes among them without
    a file; `written` what it left behind; `inputs` are those of the call; `numbers` are scalars of
    the launch and of the call, as Python literals; `sources` are further C++ files of a package."""

    run: RunDump
    wrapper: Wrapper
    launch: Launch
    node: FlowNode
    given: Mapping[str, Tensor]
    written: Mapping[str, Tensor]
    numbers: Mapping[str, str]
    inputs: Mapping[str, Tensor] = field(default_factory=dict)
    sources: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"#{self.launch.index} {self.launch.kernel}"

    @property
    def sharing(self) -> str:
        """A sentence about arguments that share memory that the launch writes, or an empty text."""
        names: dict[str, dict[str, None]] = {}  # by buffer
        for argument in self.launch.args:
            if argument.name in self.given:
                names.setdefault(argument.buffer, {})[argument.name] = None
        written = {argument.buffer for argument in self.launch.args if argument.role != "in"}
        shared = [", ".join(x) for buffer, x in names.items() if len(x) > 1 and buffer in written]
        if not shared:
            return ""
        return (
            "these arguments share memory in the wrapper, and have memory of their own in the "
            f"script: {'; '.join(shared)}. If the kernel reads through one what it writes through "
            "another, results differ for that reason alone."
        )


@dataclass(frozen=True)
class Cut:
    """The Python that runs one launch by itself.

    `header` are imports and short names, `kernels` the definitions of what is launched. `call` are
    the statements of the launch, in which a tensor has the variable that `variables` give it (by
    its name in the dump); `results` are expressions after the call, by the name of what was
    written. `is_random` says that it draws from torch's generator, whose state no dump has.
    `sizes` are numbers of the call that the launch uses by name, as Python literals.
    """

    header: str
    kernels: str
    call: str
    variables: Mapping[str, str]
    results: Mapping[str, str]
    is_random: bool = False
    sizes: Mapping[str, str] = field(default_factory=dict)

    @property
    def function(self) -> str:
        """The function `launch` in Python: see `source`."""
        results = "\n".join(f"        {name!r}: {text}," for name, text in self.results.items())
        call = "\n".join(f"    {line}" for line in self.call.splitlines())
        sizes = [f"{name}={value}" for name, value in self.sizes.items()]
        parameters = ", ".join(
            dict.fromkeys([*self.variables.values(), *(["*", *sizes] if sizes else [])])
        )
        return f"def launch({parameters}):\n{call}\n    return {{\n{results}\n    }}\n"

    @property
    def source(self) -> str:
        """Python with the function `launch`, which takes tensors by the names of `variables`, runs
        the kernel once, and returns what it wrote, by name. It takes `sizes`, too, by name."""
        return f"{self.header}\n\n{self.kernels}\n\n{self.function}"


def refusal(recorded: Recorded, why: str) -> RewriterError:
    """The error for a launch that cannot run by itself; its whole call can."""
    place = f"{recorded.wrapper.name}:{recorded.launch.line}"
    return RewriterError(
        "cannot-reproduce",
        f"{place}: {recorded.title} cannot be cut out: {why}",
        hint=f"`rewriter run {recorded.run.path}` runs the whole call once more.",
    )


def not_saved(problem: str, launch: int) -> RewriterError:
    """The error for a launch with values that the dump lacks: `problem`."""
    return RewriterError(
        "no-saved-arguments",
        problem,
        hint=f"Record it with `--probe save --launches {launch} --args all --when both`.",
    )
