"""Cuts a kernel for the CPU out of a C++ wrapper, to be called from Python.

Its arguments are tensors and numbers in the order of its parameters, as in a Python wrapper, whose
way of compiling such kernels the script takes.
"""

from __future__ import annotations

import re

from rewriter.artifact.kernel_sources import find_kernels
from rewriter.reproduction.refusal import refusal
from rewriter.reproduction.types import Cut, Recorded

_SIGNATURE = re.compile(r'extern "C"\s+(?:[A-Z_]+\s+)?void\s+(\w+)\s*\(([^)]*)\)')
_PREFIX = re.compile(r"^#include [<\"][^>\"\n]*cpp_prefix\.h[>\"]", re.MULTILINE)
_DEFAULT_PREFIX = "#include <torch/csrc/inductor/cpp_prefix.h>"
_NUMBER = re.compile(r"(-?[\d.]+(?:e[-+]?\d+)?)(?:LL|L|f)?", re.IGNORECASE)
_HEADER = """import torch
from torch._inductor.async_compile import AsyncCompile
"""


def cut(recorded: Recorded) -> Cut:
    """Cut out a launch. Raises `RewriterError` for what is no kernel in C++ with its source."""
    launch = recorded.launch
    if launch.kind != "cpp":
        raise refusal(
            recorded, f"of C++ wrappers it does so with kernels in C++, not with {launch.kind}"
        )
    kernel = next((x for x in find_kernels(recorded.wrapper) if x.name == launch.kernel), None)
    signature = None if kernel is None else _SIGNATURE.search(kernel.text)
    if kernel is None or signature is None:
        raise refusal(recorded, "the source of its kernel is not in the dump")
    variables: dict[str, str] = {}
    handed: list[str] = []
    for argument in launch.args:
        if argument.name in recorded.given:
            variables.setdefault(argument.name, f"given_{len(variables)}")
            handed.append(variables[argument.name])
        elif number := _NUMBER.fullmatch(argument.expr):
            handed.append(number[1])
        elif argument.expr in recorded.numbers:
            handed.append(recorded.numbers[argument.expr])
        else:
            raise refusal(recorded, f"the value of {argument.expr} is not in the dump")
    types = [parameter.rpartition(" ")[0].strip() for parameter in signature[2].split(",")]
    renamed = kernel.text.replace(signature[0], f'extern "C"  void  kernel({signature[2]})', 1)
    source = recorded.wrapper.plain.data.decode()
    prefix = _PREFIX.search(source)
    text = f"{prefix[0] if prefix else _DEFAULT_PREFIX}\n{renamed}"
    if "'''" in text:
        raise refusal(recorded, "its source has ''' in it")
    kernels = (
        "async_compile = AsyncCompile()\n"
        f"{launch.kernel} = async_compile.cpp_pybinding({types!r}, r'''\n{text}\n''')\n\n"
        "async_compile.wait(globals())\ndel async_compile\n"
    )
    results = {name: variables[name] for name in recorded.written if name in variables}
    call = f"{launch.kernel}({', '.join(handed)})"
    return Cut(_HEADER, kernels, call, variables, results)
