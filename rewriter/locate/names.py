"""Derives what a kernel computes from its name, the same for all kinds of wrappers."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from functools import cache

from rewriter.core.align import Keys
from rewriter.locate.vocabulary import DEVICES, LIBRARIES, expand, vocabulary

_SUFFIX = re.compile(r"_\d+$")
_NUMBER = re.compile(r"(?:^|_)\d+$")
_CONVERSION = re.compile(r"(?:^|_)_to_copy(?=_|$)|(?:^|_)convert_element_type(?=_|$)")
_OPERATOR = re.compile(r"^(?:torch\.ops\.|aten\.|extern_kernels\.)+(?:aten\.)?")


@cache
def _generated() -> re.Pattern[str]:
    makers = expand(f"{LIBRARIES}|{DEVICES}")
    return re.compile(rf"^(?:triton_\w+?|cpp|combo|{makers})_fused_")


@cache
def shim() -> re.Pattern[str]:
    """The prefixes of functions of the C shim, before the name of the operator."""
    return re.compile(rf"^aoti_torch_(?:(?:{vocabulary().any_device})_)?")


def canonical(kernel: str) -> str:
    """What a kernel computes, as far as its name tells, the same in all kinds of wrappers.

    >>> canonical("extern_kernels.addmm"), canonical("aoti_torch_cpu_addmm_out")
    ('addmm', 'addmm')
    >>> canonical("triton_poi_fused_gelu_3"), canonical("cpp_fused_gelu_0")
    ('fused gelu', 'fused gelu')
    >>> canonical("cpp_fused__to_copy_gelu_0"), canonical("cpp_fused__to_copy_1")
    ('fused gelu', 'fused _to_copy')
    >>> canonical("aten.scatter_reduce_.two"), canonical("aoti_torch_cpu_scatter_reduce_two_out")
    ('scatter_reduce_two', 'scatter_reduce_two')
    """
    if _generated().match(kernel):
        # Without descriptive names (torch 2.6 and before) nothing but the number is left.
        fused = _NUMBER.sub("", _generated().sub("", kernel))
        # In another precision a kernel converts its inputs or outputs, and computes the same.
        return f"fused {_CONVERSION.sub('', fused).strip('_') or fused}".strip()
    if shim().match(kernel):
        return shim().sub("", kernel).removesuffix("_out")
    if _OPERATOR.match(kernel):
        # `scatter_reduce_.two` is `scatter_reduce_two` in the C shim.
        name = _OPERATOR.sub("", kernel).removesuffix(".default").removesuffix(".out")
        operator, _, overload = name.partition(".")
        return "_".join(filter(None, (operator.rstrip("_") or operator, overload)))
    return _SUFFIX.sub("", kernel)


def launch_keys(
    kernel: str,
    kind: str,
    shapes: Hashable,
    source_nodes: Iterable[str],
    origins: Iterable[str],
    source: Hashable = None,
) -> Keys:
    """The keys of a launch, strictest first.

    `shapes` are the known shapes of its arguments, in order, without what differs between two
    configurations of one model (dtypes, devices). `source` identifies the kernel's source if that
    is known; its name is then only a number.
    """
    nodes, operators = tuple(source_nodes), tuple(origins)
    name = canonical(kernel)
    generated = bool(_generated().match(kernel))
    return (
        (kernel if source is None else source, kind, shapes, nodes, operators),
        (name, shapes, nodes, operators),
        (name, nodes or shapes),
        # The name of a fused kernel follows from what it fuses; that of another says what it does.
        (nodes, operators, shapes) if generated and nodes else (name, shapes),
        (nodes[-1:], generated) if nodes else (name,),
        (name,),
    )


def is_partition(function: str) -> bool:
    """Whether a function of a wrapper is a partition of the graph, by its name. Inductor may
    capture a partition into a CUDA graph, and runs it once in a call."""
    return function.startswith("partition_")
