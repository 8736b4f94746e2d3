"""The text of the C++ runtime: the interface in each instrumented C++ wrapper, and the recorder.

The sources are ordinary C++ files in `rewriter/runtime/cpp/`; a probe is one file in its `probes/`
that defines a class of the probe's name, and those for memory are in `memory/`. They are joined by
following their includes. The recorder is compiled once, as a library (`recorder_library.py`) or as
an object of a package (`compilation_units.py`); a wrapper has the interface to it. With
`--standalone`, a wrapper has the recorder, too.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from .gpu_kinds import gpu_kinds
from .probes import InvalidProbe, registry

# Numbers must be the same as in Python, whatever flags the wrapper has.
_BEGIN = """\
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O1", "no-fast-math")
#endif
"""
_END = """\
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
"""
# How a standalone wrapper finds the recorder: it is in the wrapper.
_FOUND = "inline const Functions* find_recorder() { return own_functions(); }\n"
# How others find it: rewriter/runtime/cpp/find.h; code that puts probes into a running program; and
# wrappers in Python.
_EXPORTS = """\
#define INDUCTOR_REWRITER_SHOWN extern "C" __attribute__((visibility("default")))
INDUCTOR_REWRITER_SHOWN const Functions* inductor_rewriter_recorder_1() {
  return own_functions();
}
INDUCTOR_REWRITER_SHOWN int inductor_rewriter_record_into(
    void* table, const char* directory, int quiet) {
  return record_into(*static_cast<Table*>(table), directory, quiet);
}
INDUCTOR_REWRITER_SHOWN void inductor_rewriter_finish(void* table) {
  finish_writing(*static_cast<Table*>(table));
}
INDUCTOR_REWRITER_SHOWN const ObjectFunctions* inductor_rewriter_objects_1() {
  return object_functions();
}
INDUCTOR_REWRITER_SHOWN const char* inductor_rewriter_gpu_compiler(const char* torch) {
  static thread_local std::string text;
  text = gpu::Compiler(torch).describe();
  return text.c_str();
}
INDUCTOR_REWRITER_SHOWN int inductor_rewriter_fingerprint(void* tensor, char* to) {
  std::string text;
  try {
    if (!find_fingerprint(static_cast<AtenTensorHandle>(tensor), text)) return 0;
  } catch (const std::exception&) {
    return 0;
  }
  std::memcpy(to, text.c_str(), text.size() + 1);
  return 1;
}
"""

SOURCES = Path(__file__).resolve().parent / "cpp"
# The functions of torch that the recorder calls; it needs no header of torch.
SHIM = SOURCES / "shim.h"
# A version script of the linker, for packages.
HIDDEN = "{ local: inductor_rewriter_*; };\n"
# What a wrapper gets, in this order.
_INTERFACE = ("table.h", "abi.h", "find.h", "lines.h")

BEGIN, END = "namespace { namespace inductor_rewriter {", "}}"
_LOCAL = re.compile(r'^#include "(.+)".*\n', re.MULTILINE)
_SYSTEM = re.compile(
    r"^(?:#if [^\n]*\n(?:#include <[^\n]*\n)+#endif|#include <[^\n]*)\n", re.MULTILINE
)
# Wrappers and the recorder share one process, of several releases perhaps: nothing is visible.
_OPEN = re.compile(r"^namespace inductor_rewriter\S* \{$", re.MULTILINE)
_CLOSE = re.compile(r"^\}(  // namespace inductor_rewriter\S*)$", re.MULTILINE)
_SECTION = re.compile(r"^#ifdef (ARRAYS|MEMORY)\n(.*?)^#endif\n", re.MULTILINE | re.DOTALL)
_EMPTY = re.compile(r"^ *(?://.*)?\n", re.MULTILINE)


def interface(*, arrays: bool, memory: bool) -> str:
    """What a wrapper gets of `rewriter/runtime/cpp/`, between BEGIN and END from the second on.

    `arrays` says whether its values may be arrays (`ArrayRefTensor`), `memory` whether it has lines
    about memory. It needs the include directories of torch, and nothing from the file that it is
    put into. It has no triple quotes, since it may be put into a string of a Python file, but it
    does have backslashes.
    """
    text = "".join(_text(SOURCES / name, arrays=arrays, memory=memory) for name in _INTERFACE)
    includes = dict.fromkeys(_SYSTEM.findall(text))
    body = "".join(map(_body, text.split("#pragma once\n")[1:]))
    return f"{''.join(includes)}{BEGIN}\n{_EMPTY.sub('', body)}"


@cache
def text() -> str:
    """The interface and the recorder, as C++17: for a wrapper of its own.

    Everything has internal linkage. For the rest see `interface`.
    """
    recorder = _recorder()
    lines = _text(SOURCES / "lines.h")
    includes = dict.fromkeys(_SYSTEM.findall(recorder + lines))
    return f"{''.join(includes)}{_BEGIN}{recorder}{BEGIN}\n{_FOUND}{_body(lines)}{END}\n{_END}"


@cache
def recorder() -> str:
    """A file with the recorder and all probes: they are the same for all wrappers. It compiles
    without torch, for all of its releases.

    Only what wrappers look for is visible outside of its object. The linker hides that, too, in a
    package (`HIDDEN`): another release may be in the same process.
    """
    return f"{_recorder('object_calls.h')}{BEGIN}\n{_EXPORTS}{END}\n"


def _recorder(*more: str) -> str:
    """The recorder with all probes, and these files, in an order in which it compiles."""
    seen: set[Path] = set()
    probes = [_path(name) for name, probe in registry().items() if not probe.memory]
    files = [*probes, *map(SOURCES.joinpath, ("call.h", *more))]
    text = "".join(_with_includes(path, seen) for path in files) + _declared()
    return _unnamed(text)


def _unnamed(text: str) -> str:
    """The text with its namespaces in ones without a name."""
    return _CLOSE.sub(r"}}\1", _OPEN.sub(r"namespace { \g<0>", text))


def together(path: Path) -> str:
    """The text of a file, with our own headers in place of their `#include`s."""
    return _with_includes(path, set())


def _with_includes(path: Path, seen: set[Path]) -> str:
    if path in seen:
        return ""
    seen.add(path)

    def included(match: re.Match[str]) -> str:
        return _with_includes((path.parent / match[1]).resolve(), seen)

    return _LOCAL.sub(included, _text(path).replace("#pragma once\n", ""))


def _text(path: Path, *, arrays: bool = True, memory: bool = True) -> str:
    """The text of a file, with the sections that are wanted."""
    wanted = {"ARRAYS": arrays, "MEMORY": memory}
    text = path.read_text("utf-8")
    return _SECTION.sub(lambda section: section[2] if wanted[section[1]] else "", text)


def _body(text: str) -> str:
    """What a header has in its namespace."""
    return _CLOSE.split(_OPEN.split(text, maxsplit=1)[1])[0]


def declarations() -> str:
    """What a table is made of, for a file that has nothing else. It includes nothing, so it
    compiles fast."""
    return _body(_text(SOURCES / "table.h"))


def picks() -> str:
    """What a wrapper needs that is compiled with the lines for every selection."""
    return _unnamed(_text(SOURCES / "picks.h").replace("#pragma once\n", ""))


def _path(probe: str) -> Path:
    """The file with a probe's class."""
    path = SOURCES / "probes" / f"{probe}.h"
    if not path.is_file():
        raise InvalidProbe(f"the probe {probe} has no rewriter/runtime/cpp/probes/{probe}.h")
    return path


def _declared() -> str:
    """The factory of the probes, by their Python classes; the kinds of launches that
    run on a GPU; and the text of the measuring kernel, which is compiled at run time."""
    kinds = "".join(f' || kind == "{kind}"' for kind in gpu_kinds())
    return (
        "// The probes of this file, the kinds of launches that run on a GPU, and the kernels.\n"
        "namespace inductor_rewriter {\n\n"
        "inline std::unique_ptr<Probe> make_probe(const std::string& name) {\n"
        "  std::unique_ptr<Probe> probe;\n"
        f"{''.join(map(_factory, registry()))}"
        "  return probe;\n"
        "}\n\n"
        "inline bool is_gpu_kind(const std::string& kind) {\n"
        f"  return {kinds.removeprefix(' || ')};\n"
        "}\n\n"
        f'inline const char* kernel_source() {{\n  return R"kernel({kernels()})kernel";\n}}\n\n'
        "}  // namespace inductor_rewriter\n"
    )


def kernels() -> str:
    """The text of all that runs on a GPU, without comments."""
    lines = together(SOURCES / "engine" / "kernel.h").splitlines(keepends=True)
    return "".join(line for line in lines if not line.lstrip().startswith("//"))


def _factory(name: str) -> str:
    probe = registry()[name]
    kind = "Probe" if probe.memory else name.title().replace("_", "")
    names = ("spans", "of_results", "reads_values", "measures", "saves", "marks")
    flags = {name: getattr(probe, name) for name in names} | {"acts_on_memory": probe.memory}
    lines = [
        f"probe = std::make_unique<{kind}>();",
        f'probe->when = "{probe.when}";',
        *(f"probe->{flag} = true;" for flag, is_set in flags.items() if is_set),
    ]
    body = "".join(f"    {line}\n" for line in lines)
    return f'  if (name == "{name}") {{\n{body}  }}\n'
