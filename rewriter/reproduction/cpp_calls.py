"""Translates the operator calls of a C++ wrapper to Python statements that call the same operators.

There are four ways to call an operator: a function of the C shim, the dispatcher with a stack of
boxed values, Python with a tuple, and the proxy executor of a package, by its number in the
`.wrapper.json`. See torch/_inductor/codegen/cpp_wrapper_cpu.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rewriter.core import json_text
from rewriter.core.types import Json
from rewriter.locate.types import Argument
from rewriter.reproduction import cpp_text, schemas
from rewriter.reproduction.cpp_text import CppNames, UnreadError, arguments, unwrapped
from rewriter.reproduction.types import Recorded

_ASSIGNED = (
    re.compile(r"(\w+) = torch::stable::detail::to<AtenTensorHandle>\(\w+\[(\d+)\]\)"),
    re.compile(r"(\w+) = torch::aot_inductor::new_tensor_handle\(std::move\(\w+\[(\d+)\]\)"),
    re.compile(
        r"(\w+) = reinterpret_cast<AtenTensorHandle>\(PyCapsule_GetPointer\("
        r"(?:PyList_GET_ITEM\([\w.()]+, (\d+)\))?"
    ),
)  # fmt: skip
_DISPATCHED = re.compile(r'(?:aoti_)?torch_call_dispatcher\("([^"]+)", "([^"]*)", (\w+)')
_BOXED = re.compile(r'findSchemaOrThrow\("([^"]+)", "([^"]*)"\);.*?callBoxed\(&(\w+)\)', re.DOTALL)
_PYTHON = re.compile(r"PyObject_CallObject\(custom_op_wrapper, (\w+)")
_PROXY = re.compile(r"aoti_torch_proxy_executor_call_function\(")
# Calls that put one value into a box; the first argument is the value.
_BOXES = (
    "torch::stable::detail::from", "c10::IValue", "c10::SymInt", "c10::SymBool", "c10::SymFloat",
    "std::string", "PyLong_FromLongLong", "PyFloat_FromDouble", "PyUnicode_FromString",
    "PyCapsule_New", "reinterpret_cast<void*>", "torch_python_get_thp_dtype",
    "torch_python_get_thp_layout", "torch_python_get_thp_memory_format",
    "*torch::aot_inductor::tensor_handle_to_tensor_pointer", "static_cast<int64_t>",
    "static_cast<double>",
)  # fmt: skip
_TRUTH = ("static_cast<bool>", "PyBool_FromLong")
_NOTHING = ("std::nullopt", "torch::stable::detail::from(std::nullopt)", "c10::IValue()", "Py_None")
_DEVICES = ("torch_python_thp_device_new", "c10::Device")
# torch/_export/serde/schema.py numbers them; 0 is unknown.
_NUMBERED = {
    "as_scalar_type": (
        "", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
        "complex32", "complex64", "complex128", "bool", "bfloat16",
    ),
    "as_layout": (
        "", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "_mkldnn",
        "strided",
    ),
    "as_memory_format": (
        "", "contiguous_format", "channels_last", "channels_last_3d", "preserve_format",
    ),
}  # fmt: skip


@dataclass
class OperatorCall:
    """One call: the Python statements, the variable of each tensor that it is passed, and the
    expressions of its results, both by the names of the launch's arguments."""

    statements: list[str]
    variables: dict[str, str]
    results: dict[str, str]
    is_random: bool = False


def call_of(recorded: Recorded, names: CppNames) -> OperatorCall:
    """The call of a launch. Raises `UnreadError` if it is not a known one."""
    point = recorded.launch.insertion_point
    text = recorded.wrapper.plain.data[point.start : point.end].decode("utf-8", "replace")
    return _Call(recorded, names, text).read()


class Handed:
    """What Python hands over for the tensors of a launch. `variables` are those in use so far."""

    def __init__(self, recorded: Recorded, names: CppNames) -> None:
        self._recorded = recorded
        self._names = names
        self.variables: dict[str, str] = {}

    def handed(self, argument: Argument) -> str:
        """A variable, or a view of it where the dump only has what it is a view of."""
        tensor = self._recorded.given[argument.name]
        known = self.variables.setdefault(argument.name, f"given_{len(self.variables)}")
        shown = cpp_text.view(argument.expr) if tensor.carried else None
        if shown is None:
            return known
        _, (count, sizes, strides, offset) = shown
        lists = [
            ", ".join(
                self._names.number(x)
                for x in cpp_text.elements(self._names.definition(y) or y) or ()
            )
            for y in (sizes, strides)
        ]
        if int(self._names.number(count)) == 0:
            lists = ["", ""]
        first, second = (f"({x},)" if x else "()" for x in lists)
        return f"reinterpret_tensor({known}, {first}, {second}, {self._names.number(offset)})"


class _Call:
    """One call, parsed from the text of its statement."""

    def __init__(self, recorded: Recorded, names: CppNames, text: str) -> None:
        self.recorded = recorded
        self.names = names
        self.text = text
        self._views = Handed(recorded, names)
        self.variables = self._views.variables

    def read(self) -> OperatorCall:
        if match := _DISPATCHED.search(self.text):
            given = self.names.definition(match[3], self.text) or ""
            return self._boxed(_full(match[1], match[2]), cpp_text.elements(given) or [])
        if match := _BOXED.search(self.text):
            return self._boxed(_full(match[1], match[2]), self._filled(match[3]))
        if match := _PYTHON.search(self.text):
            _, *boxes = self._filled(match[1])
            return self._boxed(_of_path(self.recorded.launch.kernel), boxes)
        if match := _PROXY.search(self.text):
            return self._proxy(arguments(self.text, match.end() - 1))
        return self._shim()

    def _shim(self) -> OperatorCall:
        function = self.recorded.launch.kernel
        start = re.search(rf"\b{re.escape(function)}\s*\(", self.text)
        operator = schemas.of_shim(function)
        if start is None or operator is None:
            raise UnreadError(f"torch has no operator for {function}")
        stream = iter(arguments(self.text, start.end() - 1))
        ordered = sorted(operator.parameters, key=lambda x: not x.is_out)
        try:
            values = {parameter.name: self._typed(parameter.type, stream) for parameter in ordered}
        except StopIteration:
            raise UnreadError(f"{function} takes other arguments than {operator.path}") from None
        results = [unwrapped(text).removesuffix("_handle") for text in stream]
        return self._called(
            operator, [values[parameter.name] for parameter in operator.parameters], results
        )

    def _typed(self, kind: Any, stream: Iterator[str]) -> str:
        """The next value of a C call, by its type: a list is passed as a pointer and a length."""
        match kind.kind():
            case "OptionalType":
                element = kind.getElementType()
                first = next(stream)
                pair = element.kind() in ("ListType", "DeviceObjType")
                more = [next(stream)] if pair else []
                if first == "nullptr":
                    return "None"
                if element.kind() != "TensorType" and not pair:
                    name = unwrapped(first)
                    first = self.names.definition(name) or name
                return self._typed(element, iter([unwrapped(first), *more]))
            case "ListType":
                first, _ = next(stream), next(stream)
                members = cpp_text.elements(first)
                if members is None:
                    members = cpp_text.elements(self.names.definition(first) or "")
                if members is None:
                    raise UnreadError(f"{first} is not known")
                element = kind.getElementType()
                return f"[{', '.join(self._typed(element, iter([x])) for x in members)}]"
            case "DeviceObjType":
                first = next(stream)
                first = self.names.definition(first) or first
                return cpp_text.device(first, next(stream))
            case "TensorType":
                return self._tensor(next(stream))
            case "GeneratorType":
                return next(stream).replace("nullptr", "None")
            case "StringType":
                return _string(next(stream))
        text = next(stream)
        if known := cpp_text.named(text):
            return known
        value = self.names.number(text)
        if kind.kind() == "BoolType":
            return str(value not in ("0", "False"))
        if kind.kind() in ("NumberType", "FloatType") and re.fullmatch(r"-?\d+", value):
            return f"{value}.0"  # the C shim takes it as a double
        return value

    def _tensor(self, text: str) -> str:
        """The variable of a tensor, or the view of it, as Python."""
        text = unwrapped(text)
        argument = self._argument(text)
        if argument is not None:
            return self._views.handed(argument)
        given = self.names.definition(text, self.text)
        if given is None:
            if handle := re.search(
                rf"aoti_torch_new_tensor_handle\(([^;]+), &{text}\);", self.text
            ):
                return self._tensor(handle[1])
            raise UnreadError(f"{text} is not in the dump")
        if match := re.match(r"scalar_to_tensor_handle\((.*)\)$", given):
            return _scalar_tensor(match[1], self.names)
        if given == f"{text}_handle":
            return "None"  # `aoti_torch_new_uninitialized_tensor`: what Python calls None
        return self._tensor(given)

    def _argument(self, text: str) -> Argument | None:
        candidates = [x for x in self.recorded.launch.args if x.name in self.recorded.given]
        exact = (x for x in candidates if unwrapped(x.expr) == text)
        return next(exact, next((x for x in candidates if x.name == text), None))

    def _filled(self, name: str) -> list[str]:
        """The values in a list of boxes, in order."""
        put = re.compile(rf"(?:\b{name}\.emplace_back\(|\bPy(?:Tuple|List)_SetItem\({name}, \d+, )")
        found = []
        for match in put.finditer(self.text):
            opening = self.text.index("(", match.start())
            *_, last = arguments(self.text, opening)
            found.append(last)
        return found

    def _boxed(self, name: str, boxes: Sequence[str]) -> OperatorCall:
        operator = schemas.of_name(name)
        values = [self._box(box) for box in boxes]
        if operator is not None:
            values = values[: len(operator.parameters)]
        found = [x for pattern in _ASSIGNED for x in pattern.findall(self.text)]
        count = max((int(index or 0) for _, index in found), default=-1) + 1
        results = [next((x for x, at in found if int(at or 0) == i), "") for i in range(count)]
        is_list = any(index for _, index in found) and "PyList_GET_ITEM" in self.text
        return self._called(operator, values, results, name=name, is_list=is_list)

    def _box(self, text: str) -> str:
        text = text.strip()
        if text in _NOTHING:
            return "None"
        for function in (*_BOXES, *_TRUTH, *_DEVICES, "std::move"):
            if text.startswith(f"{function}(") and text.endswith(")"):
                first, *rest = arguments(text, len(function))
                if function in _DEVICES:
                    return cpp_text.device(first, *rest)
                value = self._box(first)
                return str(value not in ("0", "False")) if function in _TRUTH else value
        if text.startswith('"'):
            return _string(text)
        if known := cpp_text.named(text):
            return known
        if self._argument(unwrapped(text)) is not None:
            return self._tensor(text)
        if re.fullmatch(r"\w+", text) and (members := self._filled(text)):
            return f"[{', '.join(map(self._box, members))}]"
        if re.search(rf"\b(?:GenericList {text}\(|{text} = PyList_New\(0\))", self.text):
            return "[]"
        given = self.names.definition(text, self.text)
        if given is not None and given.startswith("{"):
            return self._box(given[1:-1])  # `std::optional tmp_var_1{...}`
        try:
            return self._tensor(text)
        except UnreadError:
            return self.names.number(text)

    def _proxy(self, given: Sequence[str]) -> OperatorCall:
        number = int(self.names.number(given[1]))
        nodes = self.recorded.wrapper.operators
        if number >= len(nodes):
            raise UnreadError(
                "the file that says which operator it is, the .wrapper.json of its package, is not "
                "in the dump"
            )
        node = nodes[number].get("node", {})
        ints, tensors = (iter(cpp_text.elements(given[i]) or ()) for i in (3, 5))
        target = node.get("target", "")
        operator = schemas.of_name(target)
        values: dict[str, str] = {}
        for position, entry in enumerate(node.get("inputs", ())):
            name = entry.get("name") or str(position)
            values[name] = self._serialised(entry["arg"], ints, tensors)
        results = [unwrapped(text) for text in tensors]
        outputs = node.get("outputs", ())
        is_list = len(outputs) == 1 and "as_tensors" in outputs[0]
        if operator is not None and set(values) <= {x.name for x in operator.parameters}:
            given_names = [x for x in operator.parameters if x.name in values]
            return self._called(
                operator, [values[x.name] for x in given_names], results, is_list=is_list,
                parameters=given_names,
            )  # fmt: skip
        return self._called(None, list(values.values()), results, name=target, is_list=is_list)

    def _serialised(self, given: Json, ints: Iterator[str], tensors: Iterator[str]) -> str:
        """One input as torch.export writes it; tensors and integers are handed over by the call."""
        (kind, value), *_ = given.items()
        match kind:
            case "as_tensor":
                return self._tensor(next(tensors))
            case "as_tensors":
                return f"[{', '.join(self._tensor(next(tensors)) for _ in value)}]"
            case "as_optional_tensor":
                return "None" if "as_none" in value else self._tensor(next(tensors))
            case "as_optional_tensors":
                members = ("None" if "as_none" in x else self._tensor(next(tensors)) for x in value)
                return f"[{', '.join(members)}]"
            case "as_int" | "as_sym_int":
                return self.names.number(next(ints))
            case "as_ints" | "as_sym_ints":
                return f"[{', '.join(self.names.number(next(ints)) for _ in value)}]"
            case "as_none":
                return "None"
            case "as_scalar_type" | "as_layout" | "as_memory_format" if (
                0 < value < len(_NUMBERED[kind])
            ):
                return f"torch.{_NUMBERED[kind][value]}"
            case "as_device":
                place = f":{value['index']}" if value.get("index") is not None else ""
                return f"torch.device({value['type'] + place!r})"
            case "as_float" | "as_bool" | "as_string" | "as_floats" | "as_bools" | "as_strings":
                return _literal(value)
        raise UnreadError(f"an argument of type {kind} is not read")

    def _called(
        self,
        operator: schemas.Operator | None,
        values: Sequence[str],
        results: Sequence[str],
        *,
        name: str = "",
        is_list: bool = False,
        parameters: Sequence[schemas.Parameter] = (),
    ) -> OperatorCall:
        """The statement, and where each result is found after it."""
        if operator is None:
            # It is registered by a module that only the script imports.
            path = f"torch.ops.{name.replace('::', '.')}"
            path = path if "." in name.partition("::")[2] else f"{path}.default"
            statement = f"called({', '.join([path, *values])})"
            several = is_list or len(results) > 1
        else:
            words = [
                f"{parameter.name}={value}" if parameter.by_name else value
                for parameter, value in zip(parameters or operator.parameters, values, strict=False)
            ]
            statement = f"{operator.path}({', '.join(words)})"
            several = operator.results is None or operator.results > 1
        found: dict[str, str] = {}
        for position, result in enumerate(results):
            if argument := next((x for x in self.recorded.launch.args if x.name == result), None):
                found[argument.name] = f"result[{position}]" if several else "result"
        for written in self.recorded.written:
            if written in self.variables and written not in found:
                found[written] = self.variables[written]
        lost = [x for x in self.recorded.written if x not in found]
        if lost:
            raise UnreadError(f"it is not known where {', '.join(lost)} is written")
        wanted = {x: found[x] for x in self.recorded.written}
        is_used = any(text.startswith("result") for text in wanted.values())
        text = f"result = {statement}" if is_used else statement
        is_random = operator is not None and operator.is_random
        return OperatorCall([text], self.variables, wanted, is_random)


def _full(name: str, overload: str) -> str:
    return f"{name}.{overload}" if overload else name


def _of_path(path: str) -> str:
    """`torch.ops.aten.median.dim` is `aten::median.dim`."""
    space, _, rest = path.removeprefix("torch.ops.").partition(".")
    return f"{space}::{rest}"


def _string(text: str) -> str:
    try:
        value = json_text.parse(text.encode())
    except json_text.JsonError as error:
        raise UnreadError(f"{text} is no text") from error
    return repr(str(value))


def _literal(value: object) -> str:
    values: Mapping[str, float] = {"Infinity": float("inf"), "-Infinity": -float("inf")}
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, float) and value in values.values():
        return f'float("{value}")'
    return repr(value)


def _scalar_tensor(text: str, names: CppNames) -> str:
    value = names.number(text)
    if value.startswith("complex"):
        width = "complex128" if "double" in text else "complex64"
    else:
        width = "int64" if re.fullmatch(r"-?\d+", value) else "float64"
    width = "bool" if value in ("True", "False") else width
    return f"torch.tensor({value}, dtype=torch.{width})"
