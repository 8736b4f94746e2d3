"""Puts what torch's operators compute in the place of launches of a C++ wrapper.

Lines in front of a launch end in an `if`: the statement below them stays, and is not run. In a
Python file they call a function in Python, around the C++, with tensors and sizes. In a package
they call the proxy executor.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

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
# True if the launch is done. Torch makes a RuntimeError of whatever is thrown: what Python raised
# is set again when the exception, which torch has caught then, is destroyed.
CALL = """\
template <class... Bound>
static bool NAME(int launch, std::initializer_list<AtenTensorHandle> given,
    std::initializer_list<int64_t> sizes, Bound&... bound) {
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
        PyObject_CallFunction(PySys_GetObject("NAME_TAG"), "iNN", launch, tensors, numbers);
    if (!returned) {
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        PyGILState_Release(state);
        struct Raised : std::runtime_error {
            using std::runtime_error::runtime_error;
            std::shared_ptr<PyObject> again;
        } raised("what stands in the place of launch #" + std::to_string(launch) + " failed");
        raised.again = {value, [type, trace](PyObject* value) {
            PyGILState_STATE state = PyGILState_Ensure();
            PyErr_Restore(type, value, trace);
            PyGILState_Release(state);
        }};
        throw raised;
    }
    bool done = returned != Py_None;
    int place = 0;
    if (done) ((bound = static_cast<AtenTensorHandle>(
        PyCapsule_GetPointer(PyList_GetItem(returned, place++), nullptr))), ...);
    Py_DECREF(returned);
    PyGILState_Release(state);
    return done;
}
"""
# A launch without a function runs as it is.
CALLED = """\
def NAME(launch, handles, sizes):
    tensors = torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs(handles)
    function = globals().get(f"NAME_{launch}", lambda *_: None)
    made = function(*tensors, *sizes)
    return made and torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors(made)
import sys; sys.NAME_TAG = NAME
"""


class Given(NamedTuple):
    """The variables that the expressions of a substitute need: of tensors, each with the variable
    of its handle, and of sizes. The launch takes over the handles in `taken`."""

    handles: dict[str, str]
    sizes: tuple[str, ...]
    taken: tuple[str, ...]


def given_to(wrapper: Wrapper, one: Substitute) -> Given:
    """What a substitute of a launch in C++ is called with."""
    launch = next(x for x in wrapper.located.launches if x.index == one.launch.index)
    owned = {x.name: x.expr for x in launch.tensors if x.later == ""}
    trees = [ast.parse(x, mode="eval") for x in one.arguments]
    names = dict.fromkeys(
        x.id for tree in trees for x in ast.walk(tree) if isinstance(x, ast.Name) and x.id != _VIEW
    )
    views = [view_in(x.expr, {}) for x in one.launch.tensors]
    tensors = {x.expr for x in one.launch.tensors} | {x.of for x in views if x is not None}
    handles = {x: owned.get(x, x) for x in names if x in tensors}
    sizes = tuple(x for x in names if x not in handles)
    return Given(handles, sizes, tuple(owned[x] for x in handles if x in owned))


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
    for substitute in chosen:
        given = given_to(wrapper, substitute)
        try:
            # A handle that the launch takes over is taken over in its place.
            own = {x: f"RAIIAtenTensorHandle({x})" for x in given.taken}
            handles = {x: own.get(y, y) for x, y in given.handles.items()}
            *block, end = calls.lines(substitute, handles, given.sizes)
        except NoBodyError as error:
            raise NotCalledError(substitute.launch, str(error)) from error
        lines.append([*block, f"{end} if (false)"])
    return lines, calls.nodes


def called_in_python(
    wrapper: Wrapper, chosen: Sequence[Substitute], name: str
) -> tuple[list[list[str]], list[Substitute]]:
    """The line in front of each launch of a wrapper in a Python file, and the substitutes as
    functions of the variables that these pass."""
    before, functions = [], []
    for substitute in chosen:
        given = given_to(wrapper, substitute)
        variables = (*given.handles, *given.sizes)
        lines = [*substitute.lines[:-1], substitute.lines[-1] if substitute.target else "return []"]
        if substitute.parameters:
            lines[:0] = [
                f"{', '.join(substitute.parameters)}, = {', '.join(substitute.arguments)},"
            ]
        if any(_VIEW in x for x in substitute.arguments):
            lines[:0] = [f"{_VIEW} = torch._C._dynamo.guards._reinterpret_tensor"]
        functions.append(replace(substitute, parameters=variables, lines=tuple(lines)))
        handles, sizes = ", ".join(given.handles.values()), ", ".join(given.sizes)
        passed = [str(substitute.launch.index), f"{{{handles}}}", f"{{{sizes}}}", substitute.target]
        call = f"!{name}({', '.join(filter(None, passed))})"
        # A handle that the launch takes over is taken over in its place once it is not run.
        taken = (f" || (RAIIAtenTensorHandle({x}), false)" for x in given.taken)
        before.append([f"if ({call}{''.join(taken)})"])
    return before, functions


def insertions(
    wrapper: Wrapper,
    chosen: Sequence[Substitute],
    head: Sequence[str],
    before: Sequence[Sequence[str]],
    mark: markers.Mark,
) -> Iterator[Insertion]:
    """What is inserted into C++: the `head`, and the lines `before` each launch."""
    source, encode = wrapper.plain, embedded.extract(wrapper.plain).encode

    def marked(at: int, lines: Iterable[str], origin: str) -> Insertion:
        newline = source.newline_at(at)
        return Insertion(at, b"".join(mark.line(encode(x), newline) for x in lines), origin)

    yield marked(wrapper.located.header, head, "reference")
    for substitute, lines in zip(chosen, before, strict=True):
        point = substitute.launch.insertion_point
        indented = (f"{point.indent.decode()}{x}" for x in lines)
        yield marked(point.start, indented, f"#{substitute.launch.index}")
