"""Extracts one launch from a C++ wrapper, as Python that runs the same.

A CPU kernel is compiled as for a Python wrapper; its arguments are tensors and numbers in the order
of its parameters. A launch that calls an operator of torch becomes a call from Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rewriter.artifact.kernel_sources import find_kernels
from rewriter.locate.python.kernel_functions import triton_name
from rewriter.locate.types import Argument, KernelSource
from rewriter.locate.vocabulary import kind_of
from rewriter.reproduction import cpp_calls
from rewriter.reproduction.cpp_text import CppNames, UnreadError, unwrapped
from rewriter.reproduction.types import Cut, Recorded, refusal

_SIGNATURE = re.compile(r'extern "C"\s+(?:[A-Z_]+\s+)?void\s+(\w+)\s*\(([^)]*)\)')
_PREFIX = re.compile(r"^#include [<\"][^>\"\n]*cpp_prefix\.h[>\"]", re.MULTILINE)
_DEFAULT_PREFIX = "#include <torch/csrc/inductor/cpp_prefix.h>"
_HEADER = "import torch\n"
_COMPILER = "from torch._inductor.async_compile import AsyncCompile\n"
_VIEWS = "\nreinterpret_tensor = torch.ops.inductor._reinterpret_tensor\n"
_CALLED = '''def called(operator, *values):
    """The result of an operator, for which C++ hands over truth values as 0 and 1."""
    kinds = [str(one.type) for one in operator._schema.arguments]
    pairs = zip(values, kinds)
    return operator(*(bool(x) if "bool" in kind and x is not None else x for x, kind in pairs))
'''


def cut(recorded: Recorded) -> Cut:
    """Extract a launch. Raises `RewriterError` if Python cannot run it, and says why."""
    kind = recorded.launch.kind
    try:
        if kind == "cpp":
            return _kernel(recorded)
        if kind_of(kind).operator:
            return _operator(recorded)
        if kind_of(kind).triton:
            return _triton(recorded)
    except UnreadError as error:
        raise refusal(recorded, str(error)) from error
    if kind == "multi_kernel":
        raise refusal(recorded, "it has several kernels, and no dump says which of them ran")
    raise refusal(recorded, f"of C++ wrappers it does not do so with launches of kind {kind}")


def names_above(recorded: Recorded) -> CppNames:
    """The variables of the function around a launch, and the sizes of the launch's inputs."""
    text = recorded.wrapper.plain.data[: recorded.launch.insertion_point.start]
    known = {**recorded.inputs, **recorded.given}

    def shape(name: str, what: str, dimension: int) -> int | None:
        tensor = known.get(name)
        if tensor is None:
            return None
        sizes = tensor.shape if what == "size" else tensor.stride
        return sizes[dimension] if dimension < len(sizes) else None

    return CppNames(text.decode("utf-8", "replace"), recorded.numbers, shape)


def _operator(recorded: Recorded) -> Cut:
    call = cpp_calls.call_of(recorded, names_above(recorded))
    body = "\n".join(call.statements)
    header = _HEADER
    if "reinterpret_tensor(" in body:
        header += _VIEWS
    kernels = _CALLED if "called(" in body else ""
    return Cut(header, kernels, body, call.variables, call.results, is_random=call.is_random)


def _kernel(recorded: Recorded) -> Cut:
    launch = recorded.launch
    found = _source(recorded)
    signature = None if found is None else _SIGNATURE.search(found.text)
    if found is None or signature is None:
        raise refusal(recorded, "the source of its kernel is not in the dump")
    types = [parameter.rpartition(" ")[0].strip() for parameter in signature[2].split(",")]
    renamed = found.text.replace(signature[0], f'extern "C"  void  kernel({signature[2]})', 1)
    prefix = _PREFIX.search(recorded.wrapper.plain.data.decode("utf-8", "replace"))
    source = f"{prefix[0] if prefix else _DEFAULT_PREFIX}\n{renamed}"
    compiled = f"cpp_pybinding({types!r}, r'''\n{source}\n''')"
    variables, handed, sizes = _arguments(recorded, launch.args)
    return _compiled(recorded, compiled, f"{launch.kernel}({', '.join(handed)})", variables, sizes)


def _arguments(
    recorded: Recorded, arguments: Iterable[Argument]
) -> tuple[dict[str, str], list[str], dict[str, str]]:
    """The variables of the tensors, what each argument is given, and numbers by their names."""
    names = names_above(recorded)
    views = cpp_calls.Handed(recorded, names)
    handed: list[str] = []
    sizes: dict[str, str] = {}
    for argument in arguments:
        if argument.name in recorded.given:
            handed.append(views.handed(argument))
            continue
        text = unwrapped(argument.expr)
        value = names.number(text)
        if text.isidentifier() and text not in ("true", "false"):
            sizes[text], value = value, text
        handed.append(value)
    return views.variables, handed, sizes


def _compiled(
    recorded: Recorded,
    compiled: str,
    call: str,
    variables: dict[str, str],
    sizes: dict[str, str],
    header: str = "",
) -> Cut:
    """A launch of a kernel that `AsyncCompile` compiles."""
    if compiled.count("'''") > 2:
        raise refusal(recorded, "its source has ''' in it")
    kernels = (
        f"async_compile = AsyncCompile()\n{recorded.launch.kernel} = async_compile.{compiled}"
        "\n\nasync_compile.wait(globals())\ndel async_compile\n"
    )
    views = _VIEWS if "reinterpret_tensor(" in call else ""
    results = {name: variables[name] for name in recorded.written if name in variables}
    return Cut(_HEADER + _COMPILER + header + views, kernels, call, variables, results, sizes=sizes)


def _triton(recorded: Recorded) -> Cut:
    """A kernel of Triton from the source that the wrapper quotes, launched as in Python: Inductor's
    launcher chooses the blocks again."""
    launch = recorded.launch
    found = _source(recorded)
    function = None if found is None else triton_name(found.text)
    if found is None or function is None:
        raise refusal(
            recorded,
            "the wrapper has the compiled kernel (a cubin) and not its source: torch quotes that "
            "since 2.8",
        )
    # The device, the stream and where kernels are loaded from are the launcher's own.
    own = (x for x in launch.args if x.name in recorded.given or x.type == "scalar")
    variables, handed, sizes = _arguments(recorded, own)
    device = next((x.device for x in recorded.given.values() if x.device != "cpu"), "cuda:0")
    kind, _, index = device.partition(":")
    compiled = f"triton({function!r}, '''{found.text}''', device_str={kind!r})"
    call = (
        f"stream = get_raw_stream({index or 0})\n"
        f"{launch.kernel}.run({', '.join([*handed, 'stream=stream'])})"
    )
    stream = f"from torch._C import _{kind}_getCurrentRawStream as get_raw_stream\n"
    return _compiled(recorded, compiled, call, variables, sizes, stream)


def _source(recorded: Recorded) -> KernelSource | None:
    kernels = find_kernels(recorded.wrapper, recorded.sources)
    return next((x for x in kernels if x.name == recorded.launch.kernel), None)
