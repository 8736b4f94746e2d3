"""The parameters of kernels that are functions of Python.

Triton: `triton_meta` has names and types; `mutated_arg_names` and Inductor's own names (`in_ptr0`,
`out_ptr0`, `in_out_ptr0`) say what is written; for kernels that people wrote, the stores in the
source do. See torch/_inductor/codegen/triton.py. Other languages that Python holds, such as Pallas,
CuTe DSL and FlyDSL: the parameters of the function that is called. Halide: what describes the
kernel. Any other function in a wrapper returns what it computes, and may also write arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import libcst as cst

from rewriter.core.types import Role
from rewriter.locate import kernels
from rewriter.locate.kernels import Parameter, role_by_name
from rewriter.locate.python.module import Block, Module, read
from rewriter.locate.python.statements import Statement, calls, path, positional, template, walk
from rewriter.locate.python.syntax import PythonError, TooDeepError

# What Inductor puts before a backslash, and the quotation marks of a docstring, where it quotes the
# source of a kernel (torch/_inductor/codegen/wrapper.py).
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
# The name of the function that is called: `def pallas_fused_add_1a2b3c4d_main(…, stream=None):`.
_MAIN = "_main"
# The argument of a decorator that describes a Triton kernel; in torch 2.0 it was `meta`.
_META = frozenset({"triton_meta", "meta"})
# Inputs that templates write: torch/_inductor/kernel/flex/flex_flash_attention.py.
_WRITTEN_INPUTS = frozenset({"arg_LOGSUMEXP", "arg_DK", "arg_DV"})


Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class _Value:
    """An expression in a decorator of a function."""

    statement: Statement
    node: cst.BaseExpression

    def get(self, key: str) -> _Value | None:
        """The value of a dictionary for a key."""
        return next((value for name, value in self.items if name == key), None)

    @property
    def items(self) -> Iterator[tuple[str, _Value]]:
        """The items of a dictionary; a key that is neither string nor number is empty."""
        for element in self.node.elements if isinstance(self.node, cst.Dict) else ():
            if isinstance(element, cst.DictElement):
                number = self.statement.integer(element.key)
                key = self.statement.string(element.key) if number is None else str(number)
                yield key or "", _Value(self.statement, element.value)

    @property
    def text(self) -> str:
        return self.statement.string(self.node) or ""


def triton(text: str) -> tuple[Parameter, ...] | None:
    """The parameters of the Triton kernel that `text` defines; `None` if it defines none."""
    return _of_kernel(text, lambda module, function: tuple(_triton_parameters(module, function)))


def triton_name(text: str) -> str | None:
    """The name of the function that is launched: helpers, which it calls, may stand before it."""
    return _of_kernel(text, lambda module, function: function.name)


def _of_kernel(text: str, read_kernel: Callable[[Module, Block], Found]) -> Found | None:
    """Read the function of a Triton kernel, if `text` defines one."""
    for source in (text, _ESCAPED.sub(r"\1", text)) if "def " in text else ():
        try:
            module = _read(source)
            for function in _functions(module):
                if _META & _keywords(function).keys():
                    return read_kernel(module, function)
            return None
        except TooDeepError:
            return None
        except PythonError:
            continue
    return None


def _read(text: str) -> Module:
    return read(text.encode("utf-8", "replace").decode("latin-1"), checks=False)


def _functions(module: Module) -> Iterator[Block]:
    for part in module.body:
        if isinstance(part, Block) and isinstance(part.node, cst.FunctionDef):
            yield part


def _keywords(function: Block) -> dict[str, _Value]:
    """The keyword arguments of a function's decorators."""
    found = {}
    for decorator in function.decorators:
        match decorator.node:
            case cst.Decorator(decorator=cst.Call(args=args)):
                for arg in args:
                    if arg.keyword is not None:
                        found[arg.keyword.value] = _Value(decorator, arg.value)
    return found


def _triton_parameters(module: Module, function: Block) -> Iterator[Parameter]:
    given = _keywords(function)
    own = given.get("triton_meta") or given["meta"]
    mutated = given.get("inductor_meta", own).get("mutated_arg_names")
    names = set(_strings(mutated)) if mutated else set()
    signature = own.get("signature")
    parameters = function.parameters
    accesses: tuple[set[str], set[str]] | None = None
    for key, value in signature.items if signature else ():
        # Up to torch 2.5 the keys are positions.
        name = parameters[int(key)] if key.isdigit() and int(key) < len(parameters) else key
        kind = value.text
        if kind == "constexpr":
            continue
        if not kind.startswith(("*", "tensordesc")):
            yield Parameter(name, "in", "scalar")
            continue
        role = "inout" if name in names else role_by_name(name)
        if role is None:
            # A template, or a kernel that somebody wrote: only its body says what it writes.
            loaded, written = accesses = accesses or _accesses(module, function)
            role = ("inout" if name in loaded else "out") if name in written else "in"
        yield Parameter(name, role, "tensor")


def is_jit(function: Block) -> bool:
    """Whether a function of the file itself is a Triton kernel, or a part of one."""
    found = (x.node.decorator for x in function.decorators if isinstance(x.node, cst.Decorator))
    named = (path(x.func if isinstance(x, cst.Call) else x).text for x in found)
    return any(name in ("triton.jit", "jit") for name in named)


def jit(module: Module, function: Block) -> tuple[Parameter, ...]:
    """The parameters of a Triton kernel of the file itself; those at the end that the compiler is
    given, such as `XBLOCK: tl.constexpr`, may be passed by name."""
    if _META & _keywords(function).keys():
        return tuple(_triton_parameters(module, function))
    assert isinstance(function.node, cst.FunctionDef)
    runtime = [
        function.head.name(x.name)
        for x in function.node.params.params
        if x.annotation is None or "constexpr" not in template(x.annotation.annotation).text
    ]
    loaded, written = _accesses(module, function, runtime)
    parameters: list[Parameter] = []
    for name in function.parameters:
        role: Role = "in" if name not in written else "inout" if name in loaded else "out"
        is_tensor = name in loaded | written
        parameters.append(Parameter(name, role, "tensor" if is_tensor else "scalar"))
    while parameters and parameters[-1].type == "scalar":
        parameters.pop()
    return tuple(parameters)


def parameters_of(text: str) -> tuple[Parameter, ...] | None:
    """The parameters of a kernel in Triton or C++, wherever its text is from."""
    if known := triton(text) or kernels.cpp(text):
        return known
    try:
        module = _read(text)
    except PythonError:
        return None
    return next((jit(module, x) for x in _functions(module) if is_jit(x)), None)


def _strings(value: _Value) -> Iterator[str]:
    for node in walk(value.node):
        if (text := value.statement.string(node)) is not None:
            yield text


def _accesses(
    module: Module, function: Block, pointers: Collection[str] = ()
) -> tuple[set[str], set[str]]:
    """The parameters that occur in addresses of loads, and of stores or atomics.

    A name stands for the parameters in what it was assigned from. Takes two passes, because a loop
    may advance an address at its end. If the types of parameters are not known, only the first of
    those that may be `pointers` counts in an address: others are strides.
    """
    carried = {name: {name} for name in pointers or function.parameters}

    def of(statement: Statement, node: cst.CSTNode) -> set[str]:
        found = (carried.get(name, set()) for name in statement.names(node))
        return next(filter(None, found), set()) if pointers else set().union(*found)

    loaded: set[str] = set()
    written: set[str] = set()
    for _ in range(2):
        for statement in module.every(function.body):
            for node in walk(statement.node):
                match node:
                    case cst.Call(func=cst.Attribute(value=receiver), args=[first, *_]):
                        operation = statement.callee(node).rpartition(".")[2]
                        address = of(statement, first.value)
                        if operation == "load" or operation.startswith("atomic_"):
                            loaded |= address
                        if operation.startswith(("atomic_", "store")):
                            written |= address
                        if operation.startswith("store"):
                            # The method of a tensor descriptor: `o.store([...], value)`.
                            written |= of(statement, receiver)
            for target, value in _assignments(statement):
                if not any(_is_load(statement, inner) for inner in walk(value)):
                    carried.setdefault(target, set()).update(of(statement, value))
    return loaded, written


def _is_load(statement: Statement, node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Call) and statement.callee(node).endswith((".load", ".dot"))


def _assignments(statement: Statement) -> Iterator[tuple[str, cst.BaseExpression]]:
    match statement.node:
        case cst.Assign(targets=targets, value=value):
            for target in targets:
                for name in statement.names(target):
                    yield name, value
        case cst.AugAssign(target=cst.Name() as name, value=value):
            yield statement.name(name), value
        case cst.AnnAssign(target=cst.Name() as name, value=cst.BaseExpression() as value):
            yield statement.name(name), value


def python(text: str) -> tuple[Parameter, ...] | None:
    """The parameters of a kernel that is a function of Python; `None` if `text` has none.

    It is the one that ends in `_main`, or the last one with parameters of Inductor's names: helpers
    have others. Inputs of a template are `arg_A`; `out_ptr0_alias` of Pallas is `out_ptr0`, which
    follows it.
    """
    try:
        functions = [*_functions(_read(text))]
    except PythonError:
        return None
    main = [function for function in functions if function.name.endswith(_MAIN)]
    for function in [*main, *reversed(functions)]:
        found = tuple(_python_parameter(name) for name in function.parameters if name != "stream")
        if function in main or any(parameter.type == "tensor" for parameter in found):
            return found
    return None


def _python_parameter(name: str) -> Parameter:
    if name in _WRITTEN_INPUTS:
        return Parameter(name, "out", "tensor")
    if name.startswith("workspace"):
        return Parameter(name, "inout", "tensor")
    if name.startswith("arg_"):
        return Parameter(name, "in", "tensor")
    role: Role | None = role_by_name(name)
    # Sizes have their own names. In NVIDIA's GEMM, inputs are named as buffers are.
    return Parameter(name, role or "in", "tensor" if role else None)


def halide(statement: Statement, call: cst.Call) -> Iterator[Parameter]:
    """`HalideMeta(argtypes=[HalideInputSpec(ctype='float*', name='in_ptr0', …), …], …)`.

    An alias of another argument is not passed.
    """
    for node in walk(call.args[0].value) if call.args else ():
        if isinstance(node, cst.Call) and statement.callee(node) == "HalideInputSpec":
            fields = {arg.keyword.value: arg.value for arg in node.args if arg.keyword}
            name, kind = (statement.string(fields.get(key)) or "" for key in ("name", "ctype"))
            if statement.string(fields.get("alias_of")) is None:
                is_tensor = kind.endswith("*")
                role = role_by_name(name) if is_tensor else "in"
                yield Parameter(name, role, "tensor" if is_tensor else "scalar")


def function(name: str, functions: Mapping[str, Block], module: Module) -> Iterator[Parameter]:
    """The parameters of a function in the wrapper, which has these functions."""
    written: set[str] = set()
    for statement in module.every(functions[name].body):
        written.update(_written(statement, functions, module))
    for parameter in functions[name].parameters:
        yield Parameter(parameter, "inout" if parameter in written else "in", None)


def _written(statement: Statement, functions: Mapping[str, Block], module: Module) -> Iterator[str]:
    """Variables that are written by element, by methods such as `copy_`, by `out=`, or by a
    kernel."""
    targets: list[cst.BaseExpression] = []
    match statement.node:
        case cst.Assign(targets=given):
            targets = [target.target for target in given]
        case cst.AugAssign(target=target) | cst.AnnAssign(target=target):
            targets = [target]
    for expression in targets:
        for node in walk(expression):
            if isinstance(node, cst.Subscript):
                yield from statement.names(node.value)
    for node in calls(statement.node):
        if isinstance(node.func, cst.Attribute) and node.func.attr.value.endswith("_"):
            yield from statement.names(node.func.value)
        for arg in node.args:
            if arg.keyword and arg.keyword.value == "out":
                yield from statement.names(arg.value)
        # `kernel[grid](x, …)`, and Helion's `_launcher(kernel, grid, x, …)`.
        values = positional(node)
        kernel = statement.name(values[0]) if values else ""
        if isinstance(node.func, cst.Subscript):
            kernel = statement.name(node.func.value)
        elif kernel in functions:
            values = values[2:]
        if kernel in functions:
            stored = _accesses(module, functions[kernel])[1]
            for parameter, value in zip(functions[kernel].parameters, values, strict=False):
                if parameter in stored:
                    yield from statement.names(value)
