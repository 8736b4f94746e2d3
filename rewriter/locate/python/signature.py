"""The parameters of the kernels that a Python wrapper defines."""

from __future__ import annotations

import ast

from rewriter.locate import kernels
from rewriter.locate.kernels import Parameter
from rewriter.locate.python.outline import KernelDefinition


class Signatures:
    """The parameters of the kernels that one wrapper defines; each source is read once."""

    def __init__(self, definitions: dict[str, KernelDefinition]) -> None:
        self._definitions = definitions
        self._read: dict[str, tuple[Parameter, ...] | None] = {}

    def of(self, name: str) -> tuple[Parameter, ...] | None:
        """The parameters of the kernel bound to `name`; `None` where its source does not tell."""
        if name not in self._read:
            definition = self._definitions.get(name)
            self._read[name] = None if definition is None else self._parameters(definition)
        return self._read[name]

    def _parameters(self, definition: KernelDefinition) -> tuple[Parameter, ...] | None:
        if definition.factory.endswith("multi_kernel") or definition.factory == "MultiKernelCall":
            # All choices take the same arguments.
            choices = (node.id for node in ast.walk(definition.call) if isinstance(node, ast.Name))
            return next(filter(None, map(self.of, choices)), None)
        parse = kernels.triton if definition.factory == "async_compile.triton" else kernels.cpp
        return next(filter(None, map(parse, definition.texts)), None)
