"""The inputs that a wrapper was compiled for: their sizes, strides, types and devices.

Wrappers of both languages come with a harness in Python that makes example inputs. The assertions
of each language are read in its own folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rewriter.locate.types import EntryPoint, InputSpec, Launch

UNKNOWN = "?"  # of a dimension
# Inductor's names for sizes, by the table in torch/utils/_sympy/symbol.py.
SYMBOL = re.compile(r"(?:s|u|zu?f?)\d+$")
_ATTENTION = re.compile(r"_scaled_dot_product_\w+_backward")
_SEEDS = ("int64", "uint64")


@dataclass(frozen=True)
class Harness:
    """The example inputs that a wrapper's own harness makes, by name.

    `constants` are names that it binds to literals; those that are inputs are numbers.
    """

    examples: Mapping[str, InputSpec]
    constants: frozenset[str]

    @property
    def tensors(self) -> frozenset[str]:
        """The names of the tensors."""
        return frozenset(name for name, spec in self.examples.items() if spec.kind == "tensor")


NO_HARNESS = Harness({}, frozenset())


def combine(
    names: Sequence[str],
    example: Mapping[str, InputSpec],
    asserted: dict[str, InputSpec],
    symbols: dict[str, str],
) -> tuple[InputSpec, ...]:
    """The known facts about each input.

    Assertions take precedence over examples, whose sizes are only one possibility if the wrapper
    accepts several. `symbols` are the names of sizes, by the `input` or `input[dimension]` that
    gives them.
    """
    is_dynamic = bool(symbols) or any(
        known.kind in ("int", "float") for known in map(example.get, names) if known
    )
    return tuple(
        _one(name, example.get(name), asserted.get(name), symbols, is_dynamic) for name in names
    )


def _one(
    name: str,
    example: InputSpec | None,
    asserted: InputSpec | None,
    symbols: dict[str, str],
    is_dynamic: bool,
) -> InputSpec:
    spec = example or asserted or InputSpec(name)
    if name in symbols:
        return replace(spec, kind=spec.kind or "int", symbol=symbols[name])
    if example and is_dynamic and example.size is not None:
        size = tuple(symbols.get(f"{name}[{i}]", UNKNOWN) for i in range(len(example.size)))
        spec = replace(example, size=size, stride=(UNKNOWN,) * len(size))
    if not asserted:
        return spec
    if asserted.size is not None:
        # A dimension that is unknown or known only as a range may still have a name.
        size = tuple(
            symbols.get(f"{name}[{i}]", UNKNOWN) + known[1:] if known[0] == UNKNOWN else known
            for i, known in enumerate(asserted.size)
        )
        spec = replace(spec, size=size, open=asserted.open)
    return replace(
        spec,
        kind="tensor",
        dtype=asserted.dtype or spec.dtype,
        device=spec.device or asserted.device,
        stride=spec.stride if asserted.stride is None else asserted.stride,
        alignment=asserted.alignment,
    )


def without_seeds(entry: EntryPoint, launches: Sequence[Launch]) -> EntryPoint:
    """The entry without devices for the random seeds that attention saved.

    Outside of CUDA graphs eager keeps the seed and the offset on the CPU, whatever device Inductor
    assumes (`aten/src/ATen/native/transformers/cuda/attention.cu`).
    """
    seeds = {
        argument.name
        for launch in launches
        if _ATTENTION.search(launch.kernel)
        for argument in launch.args
    }
    specs = tuple(
        replace(input_spec, device="")
        if input_spec.name in seeds and input_spec.size == () and input_spec.dtype in _SEEDS
        else input_spec
        for input_spec in entry.input_specs
    )
    return entry if specs == entry.input_specs else replace(entry, input_specs=specs)


def row(known: InputSpec) -> str:
    """One input as a row of the wrapper's table: see `rewriter/runtime/cpp/expected.h`.

    >>> row(InputSpec("arg0_1", "tensor", "float32", "cpu", ("s0", "8"), ("8", "1")))
    'arg0_1 tensor float32 cpu [s0,8] [8,1]'
    """
    if known.kind != "tensor":
        return " ".join([known.name, known.kind or "-", known.symbol or "-"])
    fields = [known.name, "tensor", known.dtype or "-", known.device or "-"]
    for dimensions in (known.size, known.stride):
        more = ("...",) if known.open else ()
        fields.append("-" if dimensions is None else f"[{','.join((*dimensions, *more))}]")
    return " ".join([*fields, str(known.alignment)] if known.alignment else fields)
