"""The parameters of the kernels that a Python wrapper defines."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping

from rewriter.locate import kernels
from rewriter.locate.kernels import Parameter
from rewriter.locate.python.nodes import names
from rewriter.locate.python.outline import KernelDefinition

_Reader = Callable[[str], tuple[Parameter, ...] | None]

# How to read the source of a kernel, by the function that defines it; the default is C++.
_READERS: Mapping[str, _Reader] = {
    "async_compile.triton": kernels.triton,
    "async_compile.pallas": kernels.python_main,
    "async_compile.cutedsl": kernels.python_main,
    "async_compile.nv_universal_gemm": kernels.python_main,
    "async_compile.flydsl": kernels.python_main,
    "async_compile.metal": kernels.metal,
    "compile_mps_shader": kernels.metal,
}
_HALIDE = "async_compile.halide"


class Signatures:
    """The parameters of the kernels that one wrapper defines; each source is read once."""

    def __init__(
        self, definitions: dict[str, KernelDefinition], functions: dict[str, ast.FunctionDef]
    ) -> None:
        self._definitions = definitions
        self._functions = functions
        self._read: dict[str, tuple[Parameter, ...] | None] = {}

    def of(self, name: str) -> tuple[Parameter, ...] | None:
        """The parameters of the kernel bound to `name`; `None` if its source does not say."""
        if name not in self._read:
            definition, function = self._definitions.get(name), self._functions.get(name)
            if definition is not None:
                self._read[name] = self._parameters(definition)
            elif function is not None:
                self._read[name] = tuple(self._of_function(function))
            else:
                self._read[name] = None
        return self._read[name]

    def _parameters(self, definition: KernelDefinition) -> tuple[Parameter, ...] | None:
        if definition.factory.endswith("multi_kernel") or definition.factory == "MultiKernelCall":
            # All candidates take the same arguments.
            choices = (node.id for node in ast.walk(definition.call) if isinstance(node, ast.Name))
            return next(filter(None, map(self.of, choices)), None)
        if definition.factory == _HALIDE:
            return tuple(_halide(definition.call)) or None
        parse = _READERS.get(definition.factory, kernels.cpp)
        return next(filter(None, map(parse, definition.texts)), None)

    def _of_function(self, function: ast.FunctionDef) -> Iterator[Parameter]:
        """A function in the wrapper returns what it computes; it may also write arguments."""
        written = self._written(function)
        for parameter in function.args.args:
            yield Parameter(parameter.arg, "inout" if parameter.arg in written else "in", None)

    def _written(self, function: ast.FunctionDef) -> set[str]:
        """Parameters that are written by element, by methods such as `copy_`, by `out=`, or by a
        kernel."""
        written: set[str] = set()
        for node in ast.walk(function):
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                written.update(names(node.value))
            elif isinstance(node, ast.Call):
                if isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_"):
                    written.update(names(node.func.value))
                for keyword in node.keywords:
                    if keyword.arg == "out":
                        written.update(names(keyword.value))
                written.update(self._written_by_kernel(node))
        return written

    def _written_by_kernel(self, call: ast.Call) -> Iterator[str]:
        """`kernel[grid](x, …)`, and Helion's `_launcher(kernel, grid, x, …)`."""
        given = call.args
        if isinstance(call.func, ast.Subscript) and isinstance(call.func.value, ast.Name):
            kernel = call.func.value.id
        elif given and isinstance(given[0], ast.Name) and given[0].id in self._functions:
            kernel, given = given[0].id, given[2:]
        else:
            return
        if kernel in self._functions:
            function = self._functions[kernel]
            stored = kernels.stored(function)
            for parameter, argument in zip(function.args.args, given, strict=False):
                if parameter.arg in stored:
                    yield from names(argument)


def _halide(call: ast.Call) -> Iterator[Parameter]:
    """`HalideMeta(argtypes=[HalideInputSpec(ctype='float*', name='in_ptr0', …), …], …)`.

    An alias of another argument is not passed.
    """
    for node in ast.walk(call.args[0]) if call.args else ():
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "HalideInputSpec":
            fields = {
                keyword.arg: keyword.value.value
                for keyword in node.keywords
                if isinstance(keyword.value, ast.Constant)
            }
            name, kind = str(fields.get("name")), str(fields.get("ctype"))
            if fields.get("alias_of") is None:
                is_tensor = kind.endswith("*")
                role = kernels.role_by_name(name) if is_tensor else "in"
                yield Parameter(name, role, "tensor" if is_tensor else "scalar")
