"""The parameters of the kernels that a Python wrapper defines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import libcst as cst

from rewriter.locate import kernels
from rewriter.locate.kernels import Parameter
from rewriter.locate import kernel_functions
from rewriter.locate.python.module import Block, Module
from rewriter.locate.python.outline import KernelDefinition
from rewriter.locate.python.statements import Statement, walk

_Reader = Callable[[str], tuple[Parameter, ...] | None]

# How to read the source of a kernel, by the function that defines it; the default is C++.
_READERS: Mapping[str, _Reader] = {
    "async_compile.triton": kernel_functions.triton,
    "async_compile.pallas": kernel_functions.python_main,
    "async_compile.cutedsl": kernel_functions.python_main,
    "async_compile.nv_universal_gemm": kernel_functions.python_main,
    "async_compile.flydsl": kernel_functions.python_main,
    "async_compile.metal": kernels.metal,
    "compile_mps_shader": kernels.metal,
}
_HALIDE = "async_compile.halide"


class Signatures:
    """The parameters of the kernels that one wrapper defines; each source is read once."""

    def __init__(
        self,
        definitions: dict[str, KernelDefinition],
        functions: dict[str, Block],
        module: Module,
    ) -> None:
        self._definitions = definitions
        self._functions = functions
        self._module = module
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
        statement, call = definition.statement, definition.call
        if definition.factory.endswith("multi_kernel") or definition.factory == "MultiKernelCall":
            # All candidates take the same arguments.
            return next(filter(None, map(self.of, statement.names(call))), None)
        if definition.factory == _HALIDE:
            return tuple(_halide(statement, call)) or None
        parse = _READERS.get(definition.factory, kernels.cpp)
        return next(filter(None, map(parse, definition.texts)), None)

    def _of_function(self, function: Block) -> Iterator[Parameter]:
        """A function in the wrapper returns what it computes; it may also write arguments."""
        written: set[str] = set()
        for part in self._module.every(function.body):
            statement = part.head if isinstance(part, Block) else part
            written.update(self._written(statement))
        for name in function.parameters:
            yield Parameter(name, "inout" if name in written else "in", None)

    def _written(self, statement: Statement) -> Iterator[str]:
        """Variables that are written by element, by methods such as `copy_`, by `out=`, or by a
        kernel."""
        targets: list[cst.BaseExpression] = []
        match statement.node:
            case cst.Assign(targets=given):
                targets = [one.target for one in given]
            case cst.AugAssign(target=target) | cst.AnnAssign(target=target):
                targets = [target]
        for one in targets:
            for node in walk(one):
                if isinstance(node, cst.Subscript):
                    yield from statement.names(node.value)
        for node in walk(statement.node):
            if isinstance(node, cst.Call):
                if isinstance(node.func, cst.Attribute) and node.func.attr.value.endswith("_"):
                    yield from statement.names(node.func.value)
                for arg in node.args:
                    if arg.keyword and arg.keyword.value == "out":
                        yield from statement.names(arg.value)
                yield from self._written_by_kernel(statement, node)

    def _written_by_kernel(self, statement: Statement, call: cst.Call) -> Iterator[str]:
        """`kernel[grid](x, …)`, and Helion's `_launcher(kernel, grid, x, …)`."""
        given = [arg.value for arg in call.args if not arg.keyword]
        first = statement.name(given[0]) if given else ""
        if isinstance(call.func, cst.Subscript):
            first = statement.name(call.func.value)
        elif first in self._functions:
            given = given[2:]
        if first in self._functions:
            function = self._functions[first]
            stored = kernel_functions.stored(self._module, function)
            for name, argument in zip(function.parameters, given, strict=False):
                if name in stored:
                    yield from statement.names(argument)


def _halide(statement: Statement, call: cst.Call) -> Iterator[Parameter]:
    """`HalideMeta(argtypes=[HalideInputSpec(ctype='float*', name='in_ptr0', …), …], …)`.

    An alias of another argument is not passed.
    """
    for node in walk(call.args[0].value) if call.args else ():
        if isinstance(node, cst.Call) and statement.callee(node) == "HalideInputSpec":
            fields = {one.keyword.value: one.value for one in node.args if one.keyword}
            name, kind = (statement.string(fields.get(key)) or "" for key in ("name", "ctype"))
            if statement.string(fields.get("alias_of")) is None:
                is_tensor = kind.endswith("*")
                role = kernels.role_by_name(name) if is_tensor else "in"
                yield Parameter(name, role, "tensor" if is_tensor else "scalar")
