"""The arguments of a launch with the roles that its kernel declares.

There is one resolver for each value of `roles` in the grammar.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import tree_sitter

from rewriter.core import json_text
from rewriter.core.types import Json
from rewriter.locate import kernels
from rewriter.locate import operators as schemas
from rewriter.locate.arguments import INPUT, UNKNOWN, DeclaredArgument
from rewriter.locate.cpp.launch_finder import CppLaunch, CppLaunchFinder
from rewriter.locate.cpp.name_tracker import ClassifiedCall
from rewriter.locate.kernels import Parameter
from rewriter.locate.names import shim

_IN_PLACE = re.compile(r"[a-zA-Z0-9_]*?[a-zA-Z0-9]_(?:$|_)")
# Calls that put one value into a box for the dispatcher or for Python.
_BOXES = (
    "torch::stable::detail::from",
    "from",
    "c10::IValue",
    "PyCapsule_New",
    "PyLong_FromLongLong",
    "PyFloat_FromDouble",
    "PyBool_FromLong",
)


# Starts the encoding of a Metal kernel's arguments.
_ENCODING = "aoti_torch_mps_start_encoding"
_LIBRARY = re.compile(r"get_(?P<name>\w+)_handle\b")
_ENCODED = "aoti_torch_mps_set_arg_"


@dataclass(frozen=True)
class ResolvedCall:
    """A kernel, its source if that is known, and its arguments with what it declares about each.

    `literals` are numbers that the launch does not pass explicitly.
    """

    kernel: str
    arguments: list[tuple[tree_sitter.Node, DeclaredArgument]]
    source: str = ""
    literals: tuple[str, ...] = ()


def by_signature(candidate: CppLaunch, finder: CppLaunchFinder) -> ResolvedCall:
    """From the parameters of the kernel, or of the function that launches it."""
    call = candidate.call
    nodes = _arguments(call)
    if "kernel" in call.captures:
        return _inline(call, nodes, finder)
    callee = finder.outline.read(call.captures["callee"][0])
    if not callee.startswith("call_"):
        return ResolvedCall(callee, _paired(nodes, finder.outline.cpp_kernels.get(callee, ())))
    kernel = callee.removeprefix("call_")
    source, parameters = finder.outline.triton(kernel)
    declared = {parameter.name: parameter for parameter in parameters}
    names = finder.outline.launchers.get(kernel, ())
    arguments = []
    for position, node in enumerate(nodes):
        name = names[position] if position < len(names) else ""
        if parameter := declared.get(name):
            arguments.append((node, DeclaredArgument(parameter.role, parameter.type)))
        elif name.endswith("_"):
            # `device_idx_`, `stream_`, `kernels_`, `cubin_dir_` are not arguments of the kernel.
            arguments.append((node, DeclaredArgument("in", "other")))
        else:
            arguments.append((node, DeclaredArgument(kernels.role_by_name(name), None)))
    return ResolvedCall(kernel, arguments, source)


def _inline(
    call: ClassifiedCall, nodes: list[tree_sitter.Node], finder: CppLaunchFinder
) -> ResolvedCall:
    """`launchKernel(kernels.k, …, kernel_args_var_0, stream0)`: pointers to the values."""
    kernel = finder.outline.read(call.captures["kernel"][0]).removeprefix("kernels.")
    source, parameters = finder.outline.triton(kernel)
    handed: tuple[tree_sitter.Node, ...] = ()
    for node in nodes:
        handed = handed or finder.names.lists.get(finder.outline.read(node), ())
    if len(parameters) != len(handed):
        # Arguments equal to 1 are compiled in, and the source does not say which these are.
        parameters = ()
    return ResolvedCall(kernel, _paired(list(handed), parameters), source)


def _paired(
    nodes: list[tree_sitter.Node], parameters: Sequence[Parameter]
) -> list[tuple[tree_sitter.Node, DeclaredArgument]]:
    declared = [DeclaredArgument(parameter.role, parameter.type) for parameter in parameters]
    declared += [UNKNOWN] * (len(nodes) - len(declared))
    return list(zip(nodes, declared, strict=False))


def by_shim(candidate: CppLaunch, finder: CppLaunchFinder) -> ResolvedCall:
    """From the C shim's conventions: `_out` writes its first argument, and `op_` mutates it.

    An operator with neither such a name nor a result still does something: data flow has to say to
    which argument.
    """
    call = candidate.call
    # Names of mkldnn's operators begin with an underscore: `mkldnn::_linear_pointwise`.
    operator = shim().sub("", call.callee).removeprefix("mkldnn_")
    nodes = _arguments(call)
    returns = any(node.type == "pointer_expression" for node in nodes)
    arguments = []
    for position, node in enumerate(nodes):
        declared = INPUT
        if operator.endswith("_out"):
            declared = DeclaredArgument("out", "tensor") if position == 0 else INPUT
        elif _IN_PLACE.match(operator):
            declared = DeclaredArgument("inout", None) if position == 0 else INPUT
        elif not returns:
            declared = UNKNOWN
        arguments.append((node, declared))
    return ResolvedCall(call.callee, arguments)


def by_proxy(candidate: CppLaunch, finder: CppLaunchFinder) -> ResolvedCall:
    """`aoti_torch_proxy_executor_call_function(executor, NUMBER, n, ints, m, tensors)`.

    The tensors are the operator's inputs and then its outputs, which have no values yet.
    """
    nodes = _arguments(candidate.call)
    number = finder.outline.read(nodes[1]).rstrip("Ll") if len(nodes) > 1 else ""
    node: Json = {}
    if re.fullmatch(r"[0-9]{1,9}", number) and int(number) < len(finder.outline.operators):
        node = finder.outline.operators[int(number)].get("node", {})
    target = str(node.get("target", ""))
    kernel = _operator(*_split(target)) if target else f"proxy_executor_call_{number}"
    tensors = list(finder.reader.elements(nodes[-1])) if nodes else []
    returns = bool(node.get("outputs")) if node else False
    literals = tuple(
        json_text.encode(value)  # as C++ writes it: `true`
        for given in node.get("inputs", ())
        for kind, value in given.get("arg", {}).items()
        if kind in ("as_int", "as_float", "as_bool") and _is_number(value)
    )
    positions = [
        position
        for position, given in enumerate(node.get("inputs", ()))
        for _ in range(_tensors_in(given.get("arg", {})))
    ]
    return ResolvedCall(
        kernel, _by_schema(kernel, tensors, positions, returns=returns), literals=literals
    )


def _is_number(value: object) -> bool:
    """Whether a value is a number that C++ writes as Python does."""
    if isinstance(value, int):
        return abs(value) < 1 << 64
    return isinstance(value, float) and math.isfinite(value)


def _tensors_in(given: Json) -> int:
    """How many tensors the executor gets for one input; absent ones are skipped."""
    (kind, value), *_ = [*given.items(), ("", None)]
    if kind in ("as_tensors", "as_optional_tensors"):
        return sum("as_none" not in element for element in value)
    if kind == "as_optional_tensor":
        return int("as_none" not in value)
    return int(kind == "as_tensor")


def by_block(candidate: CppLaunch, finder: CppLaunchFinder) -> ResolvedCall:
    """From the block that boxes the arguments one by one and passes all of them."""
    read, lists = finder.outline.read, finder.names.lists
    boxes: dict[str, list[tree_sitter.Node]] = {}
    for call in candidate.inside:
        arguments = _arguments(call)
        if not arguments:
            continue
        if call.callee.endswith(".emplace_back"):
            filled = call.callee.removesuffix(".emplace_back")
        elif call.callee in ("PyTuple_SetItem", "PyList_SetItem"):
            filled = read(arguments[0])
        else:
            continue
        boxes.setdefault(filled, []).append(_unboxed(arguments[-1], finder))
    lists.update((name, tuple(nodes)) for name, nodes in boxes.items())
    kernel = _named_in(candidate.call, read) or next(
        filter(None, (_named_in(call, read) for call in candidate.inside)), "custom_op"
    )
    # `dispatch_vars.data()`, `&dispatch_stack_0`, `py_args_0`
    given = _arguments(candidate.call)
    handed = read(given[-1]).strip("&").removesuffix(".data()") if given else ""
    boxed = [_unboxed(node, finder) for node in lists.get(handed, ())]
    if candidate.call.callee == "PyObject_CallObject":
        boxed = boxed[1:]  # the first is the operator's name
    return ResolvedCall(
        kernel, _by_schema(kernel, boxed, range(len(boxed)), returns=bool(candidate.assigned))
    )


def by_encoder(candidate: CppLaunch, finder: CppLaunchFinder) -> ResolvedCall:
    """From the lambda above `aoti_torch_mps_run_command_block(get_mps_lib_0_handle(), …)`.

    It encodes the arguments: `aoti_torch_mps_set_arg_tensor(handle, 0, buf3)`.
    """
    given = _arguments(candidate.call)
    library = _LIBRARY.match(finder.outline.read(given[0])) if given else None
    kernel = library["name"] if library else candidate.call.callee
    nodes = []
    for call in finder.calls_above(candidate.call):
        if call.callee == _ENCODING:
            break
        if call.callee.startswith(_ENCODED):
            nodes += _arguments(call)[-1:]
    source = finder.outline.metal_sources.get(kernel, "")
    return ResolvedCall(kernel, _paired(nodes[::-1], kernels.metal(source) or ()), source)


def _unboxed(node: tree_sitter.Node, finder: CppLaunchFinder) -> tree_sitter.Node:
    """The value in a box, or in a box inside a box."""
    function = node.child_by_field_name("function")
    arguments = node.child_by_field_name("arguments")
    if (
        function is not None
        and arguments is not None
        and arguments.named_children
        and finder.reader.callee(function) in _BOXES
    ):
        return _unboxed(arguments.named_children[0], finder)
    return node


def _named_in(call: ClassifiedCall, read: Callable[[tree_sitter.Node], str]) -> str:
    """The operator that strings in a call name: `"corp::scale", "out"` or `"torch.ops.…"`."""
    strings = [read(node).strip('"') for node in _arguments(call) if node.type == "string_literal"]
    if call.callee == "PyUnicode_FromString" and strings and strings[0].startswith("torch.ops."):
        return strings[0]
    if len(strings) == 2 and "::" in strings[0]:
        return _operator(*strings)
    return ""


def _split(target: str) -> tuple[str, str]:
    """`aten::median.dim` is the operator `aten::median` and its overload `dim`."""
    space, _, rest = target.partition("::")
    name, _, overload = rest.partition(".")
    return f"{space}::{name}", overload


def _operator(name: str, overload: str) -> str:
    """As Python wrappers write it: `torch.ops.aten.median.dim`."""
    return f"torch.ops.{name.replace('::', '.')}.{overload or 'default'}"


def _by_schema(
    kernel: str, nodes: list[tree_sitter.Node], positions: Iterable[int], *, returns: bool
) -> list[tuple[tree_sitter.Node, DeclaredArgument]]:
    """`positions` are those in the operator's schema; an argument without one is a result."""
    written = schemas.written(kernel.removeprefix("torch.ops."))
    result = []
    for node, position in itertools.zip_longest(nodes, positions):
        if node is None:
            break
        if written is not None:
            declared = DeclaredArgument("inout", None) if position in written else INPUT
        else:
            declared = INPUT if returns else UNKNOWN
        result.append((node, declared))
    return result


def _arguments(call: ClassifiedCall) -> list[tree_sitter.Node]:
    if call.arguments is None:
        return []
    return [node for node in call.arguments.named_children if node.type != "comment"]


CppResolver = Callable[[CppLaunch, CppLaunchFinder], ResolvedCall]

RESOLVERS: dict[str, CppResolver] = {
    "signature": by_signature,
    "shim": by_shim,
    "proxy": by_proxy,
    "block": by_block,
    "encoder": by_encoder,
}
