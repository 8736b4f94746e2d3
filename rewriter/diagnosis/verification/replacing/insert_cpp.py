"""Puts what torch's operators compute in the place of launches of a C++ wrapper.

Lines in front of a launch end in `if (false)`: the statement below them stays, and is not run. In a
Python file they call a function in Python, around the C++, with tensors and sizes. In a package
they call the proxy executor.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rewriter.artifact.types import Wrapper
from rewriter.core import markers
from rewriter.core.edit import Insertion
from rewriter.core.types import Json
from rewriter.diagnosis.verification.replacing.body import NoBodyError
from rewriter.diagnosis.verification.replacing.layouts import view_in
from rewriter.diagnosis.verification.replacing.proxy_calls import ProxyCalls
from rewriter.diagnosis.verification.replacing.substitutes import Substitute
from rewriter.locate.cpp import embedded
from rewriter.locate.types import Launch

_VIEW = "reinterpret_tensor"
CALL = """\
static std::vector<AtenTensorHandle> NAME(int launch,
    std::initializer_list<AtenTensorHandle> given, std::initializer_list<int64_t> sizes) {
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject* tensors = PyList_New(0);
    for (AtenTensorHandle one : given) {
        AtenTensorHandle own = nullptr;
        AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_new_tensor_handle(one, &own));
        PyObject* capsule = PyCapsule_New(own, nullptr, nullptr);
        PyList_Append(tensors, capsule);
        Py_DECREF(capsule);
    }
    PyObject* numbers = PyList_New(0);
    for (int64_t one : sizes) {
        PyObject* number = PyLong_FromLongLong(one);
        PyList_Append(numbers, number);
        Py_DECREF(number);
    }
    PyObject* returned =
        PyObject_CallFunction(PySys_GetObject("NAME"), "iNN", launch, tensors, numbers);
    if (!returned) PyErr_Print();
    std::vector<AtenTensorHandle> made(returned ? PyList_Size(returned) : 0);
    for (size_t place = 0; place < made.size(); ++place) {
        made[place] = static_cast<AtenTensorHandle>(
            PyCapsule_GetPointer(PyList_GetItem(returned, place), nullptr));
    }
    Py_XDECREF(returned);
    PyGILState_Release(state);
    if (!returned) throw std::runtime_error(
        "what stands in the place of launch #" + std::to_string(launch) + " failed");
    return made;
}
"""
_FUNCTION = """\
def NAME(launch, handles, sizes):
    tensors = torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs(handles)
    made = globals()[f"NAME_{launch}"](*tensors, *sizes)
    return torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors(made)
import sys; sys.NAME = NAME
"""


@dataclass(frozen=True)
class Given:
    """The variables that the expressions of a substitute need: of tensors, each with the C++ that
    gives its handle, and of sizes."""

    handles: dict[str, str]
    sizes: tuple[str, ...]


def given_to(wrapper: Wrapper, one: Substitute) -> Given:
    """What a substitute of a launch in C++ is called with."""
    launch = next(x for x in wrapper.located.launches if x.index == one.launch.index)
    # A handle that the launch takes over is taken over in its place.
    owned = {x.name: f"RAIIAtenTensorHandle({x.expr})" for x in launch.tensors if x.later == ""}
    trees = [ast.parse(x, mode="eval") for x in one.arguments]
    names = dict.fromkeys(
        x.id for tree in trees for x in ast.walk(tree) if isinstance(x, ast.Name) and x.id != _VIEW
    )
    views = [view_in(x.expr, {}) for x in one.launch.tensors]
    tensors = {x.expr for x in one.launch.tensors} | {x.of for x in views if x is not None}
    handles = {x: owned.get(x, x) for x in names if x in tensors}
    return Given(handles, tuple(x for x in names if x not in handles))


class NotCalledError(NoBodyError):
    """The proxy executor cannot call what stands in the place of a launch; the message says why."""

    def __init__(self, launch: Launch, why: str) -> None:
        super().__init__(why)
        self.launch = launch


def proxied(
    wrapper: Wrapper, chosen: Sequence[Substitute], name: str, device: str
) -> tuple[list[list[str]], list[Json]]:
    """The lines in front of each launch of a package, and the nodes that they call. Raises
    `NotCalledError`."""
    calls = ProxyCalls(name, device, len(wrapper.operators))
    lines = []
    for one in chosen:
        given = given_to(wrapper, one)
        try:
            lines.append(calls.lines(one, given.handles, given.sizes))
        except NoBodyError as error:
            raise NotCalledError(one.launch, str(error)) from error
    return lines, calls.nodes


def called_in_python(
    wrapper: Wrapper, chosen: Sequence[Substitute], name: str, tag: str
) -> tuple[list[list[str]], Insertion]:
    """The line in front of each launch of a wrapper in a Python file, and the functions that these
    call, around the C++."""
    source, at = wrapper.plain, embedded.extract(wrapper.plain).statement
    functions, before = ["import torch"], []
    for one in chosen:
        given = given_to(wrapper, one)
        functions += _function(name, one, given)
        call = f"{name}({one.launch.index}, {{{', '.join(given.handles.values())}}}, "
        call += f"{{{', '.join(given.sizes)}}});"
        if one.target:
            bound = (f"{x} = made[{n}];" for n, x in enumerate(one.target.split(", ")))
            call = f"{{ auto made = {call} {' '.join(bound)} }}"
        before.append([call])
    functions += _FUNCTION.replace("NAME", name).splitlines()
    mark, newline = markers.Mark(tag, "#"), source.newline_at(at)
    return before, Insertion(at, b"".join(mark.line(x, newline) for x in functions), "reference")


def insertions(
    wrapper: Wrapper,
    chosen: Sequence[Substitute],
    head: Sequence[str],
    before: Sequence[Sequence[str]],
    mark: markers.Mark,
) -> Iterator[Insertion]:
    """What is inserted into C++: the `head`, and the lines `before` each launch, which is not
    run."""
    source, encode = wrapper.plain, embedded.extract(wrapper.plain).encode

    def marked(at: int, lines: Iterable[str], origin: str) -> Insertion:
        newline = source.newline_at(at)
        return Insertion(at, b"".join(mark.line(encode(x), newline) for x in lines), origin)

    yield marked(wrapper.located.header, head, "reference")
    for one, lines in zip(chosen, before, strict=True):
        point = one.launch.insertion_point
        skipping = [*lines[:-1], f"{lines[-1]} if (false)"]
        indented = (f"{point.indent.decode()}{x}" for x in skipping)
        yield marked(point.start, indented, f"#{one.launch.index}")


def _function(name: str, one: Substitute, given: Given) -> Iterator[str]:
    """The Python function of a launch. It is given variables of the wrapper."""
    yield "@torch.no_grad()"
    yield f"def {name}_{one.launch.index}({', '.join([*given.handles, *given.sizes])}):"
    if any(_VIEW in x for x in one.arguments):
        yield f"    {_VIEW} = torch._C._dynamo.guards._reinterpret_tensor"
    if one.parameters:
        yield f"    {', '.join(one.parameters)}, = {', '.join(one.arguments)},"
    yield from (f"    {x}" for x in one.lines[:-1])
    yield f"    {one.lines[-1] if one.target else 'return []'}"
