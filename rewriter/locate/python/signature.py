"""The parameters of the kernels that a Python wrapper defines."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from rewriter.locate import kernels
from rewriter.locate.kernels import Parameter
from rewriter.locate.python import kernel_functions
from rewriter.locate.python.outline import KernelDefinition, PythonOutline

_Reader = Callable[[str], tuple[Parameter, ...] | None]

# How to read the source of a kernel, by the function that defines it. The others are functions of
# Python, or C++.
_READERS: Mapping[str, _Reader] = {
    "async_compile.triton": kernel_functions.triton,
    "async_compile.metal": kernels.metal,
    "compile_mps_shader": kernels.metal,
}
_FUNCTION = re.compile(r"^def ", re.MULTILINE)


def _python_or_cpp(text: str) -> tuple[Parameter, ...] | None:
    return kernel_functions.python(text) if _FUNCTION.search(text) else kernels.cpp(text)


class Signatures:
    """The parameters of the kernels that one wrapper defines; each source is read once."""

    def __init__(self, outline: PythonOutline) -> None:
        self._outline = outline
        self._read: dict[str, tuple[Parameter, ...] | None] = {}

    def of(self, name: str) -> tuple[Parameter, ...] | None:
        """The parameters of the kernel bound to `name`; `None` if its source does not say."""
        if name not in self._read:
            outline = self._outline
            self._read[name] = None  # also for a multi-kernel that names itself
            if name in outline.definitions:
                self._read[name] = self._parameters(outline.definitions[name])
            elif (function := outline.functions.get(name)) is not None:
                if kernel_functions.is_jit(function):
                    self._read[name] = kernel_functions.jit(outline.module, function)
                else:
                    found = kernel_functions.function(name, outline.functions, outline.module)
                    self._read[name] = tuple(found)
        return self._read[name]

    def _parameters(self, definition: KernelDefinition) -> tuple[Parameter, ...] | None:
        statement, call = definition.statement, definition.call
        if definition.factory.endswith("multi_kernel") or definition.factory == "MultiKernelCall":
            # All candidates take the same arguments.
            return next(filter(None, map(self.of, statement.names(call))), None)
        if definition.factory == "async_compile.halide":
            return tuple(kernel_functions.halide(statement, call)) or None
        parse = _READERS.get(definition.factory, _python_or_cpp)
        return next(filter(None, map(parse, definition.texts)), None)
