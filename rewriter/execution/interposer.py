"""Builds the interposer between an AOTInductor library and torch.

It is `interposer.cpp`, with a function for everything that the library launches. The types of these
functions are read from torch's headers.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rewriter.core.errors import FAILED, RewriterError
from rewriter.runtime.build import compiler

_HEADERS = "include/torch/csrc/inductor/aoti_torch"
_PROTOTYPE = re.compile(
    r"AOTI_TORCH_EXPORT\s+AOTITorchError\s+(?P<name>\w+)\s*\((?P<given>[^)]*)\)"
)
_COMMENT = re.compile(r"//[^\n]*")
_SLOTS = 128  # arguments passed to a kernel, which ignores those beyond its own
_PATIENCE = 120  # seconds for the compiler
_RETURNED = re.compile(r"ret\d*$|ret_\w+$|out\d*$")
_PROXY = "aoti_torch_proxy_executor_call_function"
_DRIVER = """
REWRITER_API int32_t cuModuleGetFunction(void** function, void* module, const char* name) {
  static auto get = real<decltype(&cuModuleGetFunction)>("cuModuleGetFunction");
  const int32_t error = get(function, module, name);
  if (!error) driver_names[*function] = name;
  return error;
}
REWRITER_API int32_t cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz,
                                    unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                    void* stream, void** given, void** extra) {
  static auto launch = real<decltype(&cuLaunchKernel)>("cuLaunchKernel");
  std::vector<Handle> handles;
  for (const Seen& one : asked) handles.push_back(one.handle);
  const int32_t name = driver_name(driver_names[function]);
  report(0, name, handles);
  const int32_t error = launch(function, gx, gy, gz, bx, by, bz, shared, stream, given, extra);
  report(1, name, handles);
  return error;
}
"""


@dataclass(frozen=True)
class Interposer:
    """The shared object. `names` are the names of launches, by the numbers that it reports."""

    path: Path
    names: tuple[str, ...]


def build(
    functions: Sequence[str], kernels: Sequence[str], driver: Sequence[str], path: Path
) -> Interposer:
    """Compile an interposer for functions of the C shim, the library's own CPU kernels, and kernels
    that the GPU driver may launch.

    Raises `RewriterError` if there is no compiler or no torch, or compiling fails.
    """
    names = (*functions, *kernels, *driver)
    program = compiler()
    if not program:
        raise RewriterError(
            "no-compiler",
            "no C++ compiler was found, and recording the launches of a library needs one",
            hint="Install g++, or name a compiler in CXX.",
            code=FAILED,
        )
    text = "".join(_text(functions, kernels, driver))
    command = [program, "-std=c++17", "-O1", "-fPIC", "-shared", "-x", "c++", "-", "-ldl"]
    run = subprocess.run(
        [*command, "-o", str(path)], input=text, capture_output=True, text=True, timeout=_PATIENCE
    )
    if run.returncode:
        lines = [line for line in run.stderr.splitlines() if "error" in line] or [run.stderr]
        raise RewriterError(
            "compile-failed",
            f"{program} cannot compile the code that records launches: {lines[0][:300]}",
            hint="Please report this: it is a fault of inductor-rewriter, or torch is newer.",
            code=FAILED,
        )
    return Interposer(path, names)


def _text(functions: Sequence[str], kernels: Sequence[str], driver: Sequence[str]) -> Iterator[str]:
    yield f"#define REWRITER_KERNELS {len(kernels)}\n"
    yield Path(__file__).with_suffix(".cpp").read_text(encoding="utf-8")
    prototypes = _prototypes() if functions else {}
    for number, name in enumerate(functions):
        if name == _PROXY:
            yield _proxy(number)
        elif name in prototypes:
            yield _function(number, name, prototypes[name])
    for index in range(len(kernels)):
        yield _thunk(index)
    if driver:
        yield "namespace {\nstd::unordered_map<void*, std::string> driver_names;\n"
        yield "int32_t driver_name(const std::string& name) {\n"
        first = len(functions) + len(kernels)
        for number, name in enumerate(driver):
            yield f'  if (name == "{name}") return {first + number};\n'
        yield f"  return {first};\n}}\n}}  // namespace\n{_DRIVER}"


def _prototypes() -> dict[str, list[str]]:
    """The parameters of the functions of the C shim, from the headers of torch."""
    installed = importlib.util.find_spec("torch")
    if installed is None or not installed.submodule_search_locations:
        raise RewriterError(
            "no-torch",
            "torch is not installed, and recording the launches of a library needs its headers",
            hint="Install the torch that the library was made with.",
            code=FAILED,
        )
    root = Path(installed.submodule_search_locations[0]) / _HEADERS
    found: dict[str, list[str]] = {}
    for header in sorted(root.rglob("*.h")):
        text = _COMMENT.sub("", header.read_text(encoding="utf-8", errors="replace"))
        for match in _PROTOTYPE.finditer(text):
            given = (" ".join(one.split()) for one in match["given"].split(","))
            found[match["name"]] = [text for text in given if text]
    return found


def _function(number: int, name: str, parameters: list[str]) -> str:
    """A function that reports its tensors and calls torch's function of the same name."""
    given, returned, filled = [], [], []
    names = [parameter.rsplit(None, 1)[-1].lstrip("*") for parameter in parameters]
    for position, (parameter, short) in enumerate(zip(parameters, names, strict=True)):
        if "AtenTensorHandle" not in parameter:
            continue
        following = names[position + 1] if position + 1 < len(names) else ""
        if "*" not in parameter:
            given.append(short)
        elif _RETURNED.match(short):
            returned.append(short)
        elif following == f"{short}_len_":
            filled.append(
                f"  for (int64_t one = 0; one < {following}; one++) "
                f"launch.given.push_back({short}[one]);\n"
            )
        else:
            filled.append(f"  if ({short}) launch.given.push_back(*{short});\n")
    declared = ", ".join(
        parameter.replace("AtenTensorHandle", "Handle") for parameter in parameters
    )
    declared = re.sub(r"\b(?!int\d+_t\b|Handle\b)\w+Handle\b", "void*", declared)
    return (
        f"REWRITER_API int32_t {name}({declared}) {{\n"
        f'  static auto act = real<decltype(&{name})>("{name}");\n'
        f"  Launch launch{{{number}, {{{', '.join(given)}}}, {{{', '.join(returned)}}}}};\n"
        f"{''.join(filled)}"
        "  launch.begin();\n"
        f"  const int32_t error = act({', '.join(names)});\n"
        "  if (!error) launch.end();\n"
        "  return error;\n}\n"
    )


def _proxy(number: int) -> str:
    return (
        f"REWRITER_API int32_t {_PROXY}(void* executor, int node, int count, int64_t* numbers, "
        "int tensors, Handle* handles) {\n"
        f'  static auto act = real<decltype(&{_PROXY})>("{_PROXY}");\n'
        f"  Launch launch{{{number}, std::vector<Handle>(handles, handles + tensors), {{}}}};\n"
        "  launch.begin();\n"
        "  const int32_t error = act(executor, node, count, numbers, tensors, handles);\n"
        "  if (!error) launch.end();\n"
        "  return error;\n}\n"
    )


def _thunk(index: int) -> str:
    """The function that replaces a kernel. It may pass more arguments than the kernel takes, which
    is harmless."""
    slots = [f"a{slot}" for slot in range(_SLOTS)]
    declared = ", ".join(f"int64_t {slot}" for slot in slots)
    return (
        f"REWRITER_API void inductor_rewriter_thunk_{index}({declared}) {{\n"
        f"  Kernel& kernel = kernels[{index}];\n"
        f"  const int64_t slots[] = {{{', '.join(slots)}}};\n"
        f"  kernel.begin(slots, {_SLOTS});\n"
        f"  reinterpret_cast<void (*)({', '.join(['int64_t'] * _SLOTS)})>(kernel.at)"
        f"({', '.join(slots)});\n"
        "  kernel.end();\n}\n"
    )
