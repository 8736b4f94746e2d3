"""The text of the C++ runtime: the interface in each instrumented C++ wrapper, and the recorder.

The sources are ordinary C++ files in `rewriter/runtime/cpp/`; a probe is one file in its `probes/`
that defines a class of the probe's name. They are joined by following their includes. The recorder
is compiled once, as a library (`recorder_library.py`) or as an object of a package
(`compilation_units.py`); a wrapper has the interface to it. With `--standalone`, a wrapper has the
recorder, too, with no more than its probes need: with dormant probes an include of `awake.h` is
replaced by that of `dormant.h`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

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
# How others find it: rewriter/runtime/cpp/find.h, and code that puts probes into a running program.
_EXPORTS = """\
#define INDUCTOR_REWRITER_SHOWN extern "C" __attribute__((visibility("{visibility}")))
INDUCTOR_REWRITER_SHOWN const Functions* inductor_rewriter_recorder_1() {{
  return own_functions();
}}
INDUCTOR_REWRITER_SHOWN int inductor_rewriter_record_into(
    void* table, const char* directory, int quiet) {{
  return record_into(*static_cast<Table*>(table), directory, quiet);
}}
INDUCTOR_REWRITER_SHOWN void inductor_rewriter_finish(void* table) {{
  finish_writing(*static_cast<Table*>(table));
}}
"""
_OF_PYTHON = """\
INDUCTOR_REWRITER_SHOWN const ObjectFunctions* inductor_rewriter_objects_1() {
  return object_functions();
}
INDUCTOR_REWRITER_SHOWN const char* inductor_rewriter_gpu_compiler(const char* torch) {
  static thread_local std::string text;
  text = gpu::describe_compiler(torch, false);
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
# What a wrapper includes of torch, and what the recorder has in its place.
_TORCH, SHIM = "#include <torch/csrc/inductor/aoti_torch/c/shim.h>\n", SOURCES / "shim.h"
_TABLE = SOURCES / "table.h"
_LINES = SOURCES / "lines.h"
_FIND = SOURCES / "find.h"
_CALL = SOURCES / "call.h"
_OBJECTS = SOURCES / "object_calls.h"
_KERNEL = SOURCES / "engine" / "kernel.h"

BEGIN, END = "namespace { namespace inductor_rewriter {", "}}"
_LOCAL = re.compile(r'^#include "(.+)"\n', re.MULTILINE)
_OPEN = "\nnamespace {\nnamespace inductor_rewriter {\n"
_CLOSE = "}  // namespace inductor_rewriter\n}  // namespace\n"
_SECTION = re.compile(r"^#ifdef (ARRAYS|MEMORY)\n(.*?)^#endif\n", re.MULTILINE | re.DOTALL)
_EMPTY = re.compile(r"^ *(?://.*)?\n", re.MULTILINE)


def interface(*, arrays: bool, memory: bool) -> str:
    """What a wrapper gets of `rewriter/runtime/cpp/`, between BEGIN and END from the second on.

    `arrays` says whether its values may be arrays (`ArrayRefTensor`), `memory` whether it has lines
    about memory. It needs the include directories of torch, and nothing from the file that it is
    put into. It has no triple quotes, since it may be put into a string of a Python file, but it
    does have backslashes.
    """
    parts = _collect(_FIND, {}, arrays, memory)
    _collect(_LINES, parts, arrays, memory)
    body = "".join(map(_body, parts.values()))
    return f"{''.join(_includes(parts.values()))}{BEGIN}\n{_EMPTY.sub('', body)}"


def text(probes: Sequence[str], *, is_dormant: bool = False) -> str:
    """The interface and the recorder with these probes, as C++17: for a wrapper of its own.

    Everything has internal linkage. For the rest see `interface`.
    """
    return _text(tuple(probes), is_dormant)


@cache
def _text(probes: tuple[str, ...], is_dormant: bool) -> str:
    parts = _bodies(probes, is_dormant=is_dormant)
    lines = _collect(_LINES, {}, True, True)[_LINES]
    return "\n".join(
        [
            "".join(_includes([*parts.values(), lines])),
            _BEGIN,
            *_closed(parts.values()),
            f"{_OPEN.lstrip()}{_FOUND}{_body(lines)}{_CLOSE}",
            _END,
        ]
    )


@cache
def recorder(visibility: Literal["default", "hidden"]) -> str:
    """A file with the recorder and all probes: they are the same for all wrappers. It compiles
    without torch, for all of its releases.

    Only what wrappers look for is visible outside of it, with this visibility. The library, where
    that is `default`, serves wrappers in Python, too.
    """
    serves_python = visibility == "default"
    parts = _bodies(tuple(registry()), is_dormant=True, serves_python=serves_python)
    exports = _EXPORTS.format(visibility=visibility) + (_OF_PYTHON if serves_python else "")
    includes = _includes(parts.values())
    includes.remove(_TORCH)
    return "\n".join(
        [
            SHIM.read_text("utf-8"),
            "".join(includes),
            *_closed(parts.values()),
            f"{_OPEN.lstrip()}{exports}{_CLOSE}",
        ]
    )


def together(path: Path) -> str:
    """The text of a file, with our own headers in place of their `#include`s."""
    return _with_includes(path, set())


def _with_includes(path: Path, seen: set[Path]) -> str:
    seen.add(path)

    def included(match: re.Match[str]) -> str:
        other = (path.parent / match[1]).resolve()
        return "" if other in seen else _with_includes(other, seen)

    return _LOCAL.sub(included, path.read_text("utf-8").replace("#pragma once\n", ""))


def declarations() -> str:
    """What a table is made of, for a file that has nothing else. It includes nothing, so it
    compiles fast."""
    return _body(_TABLE.read_text("utf-8"))


def picks() -> str:
    """What a wrapper needs that is compiled with the lines for every selection."""
    return (SOURCES / "picks.h").read_text("utf-8").replace("#pragma once\n", "")


def _bodies(
    probes: tuple[str, ...], *, is_dormant: bool, serves_python: bool = False
) -> dict[Path, str]:
    """The files of the recorder, in an order in which they compile."""
    parts: dict[Path, str] = {}
    for name in probes:
        if not _path(name).is_file():
            raise InvalidProbe(f"the probe {name} has no rewriter/runtime/cpp/probes/{name}.h")
        _collect(_path(name), parts)
    _collect(_CALL, parts)
    call = parts.pop(_CALL)
    if is_dormant:
        # call.h includes the version for probes that are not dormant.
        parts.pop(SOURCES / "awake.h")
        _collect(SOURCES / "dormant.h", parts)
    declared = _declared(probes, kernel=SOURCES / "gpu_rows.h" in parts)
    parts |= {Path("declared"): declared, _CALL: call}
    return _collect(_OBJECTS, parts) if serves_python else parts


def _path(probe: str) -> Path:
    return SOURCES / "probes" / f"{probe}.h"


def _collect(
    path: Path, parts: dict[Path, str], arrays: bool = True, memory: bool = True
) -> dict[Path, str]:
    """Add a file, after the files that it includes, each once."""
    source = path.read_text("utf-8")
    for name in _LOCAL.findall(source):
        included = (path.parent / name).resolve()
        if included not in parts:
            _collect(included, parts, arrays, memory)
    wanted = {"ARRAYS": arrays, "MEMORY": memory}
    part = _LOCAL.sub("", source).replace("#pragma once\n", "")
    part = _SECTION.sub(lambda section: section[2] if wanted[section[1]] else "", part)
    if _OPEN not in part or not part.endswith(_CLOSE):
        raise InvalidProbe(
            f"rewriter/runtime/cpp/{path.relative_to(SOURCES)} does not open and close its "
            "namespaces as the files that it is put together with"
        )
    parts[path.resolve()] = part
    return parts


def _closed(parts: Iterable[str]) -> list[str]:
    return [_comment(part) + _OPEN.lstrip() + _body(part) + _CLOSE for part in parts]


def _comment(part: str) -> str:
    head = part.split(_OPEN, 1)[0]
    return "".join(line for line in head.splitlines(keepends=True) if line[:2] == "//")


def _body(part: str) -> str:
    return part.split(_OPEN, 1)[1].removesuffix(_CLOSE)


def _includes(parts: Iterable[str]) -> list[str]:
    heads = (part.split(_OPEN, 1)[0] for part in parts)
    return list(dict.fromkeys(line for head in heads for line in _directives(head)))


def _directives(head: str) -> list[str]:
    """The preprocessor lines of a head, with each `#if` block as one entry."""
    result: list[str] = []
    depth = 0
    for line in head.splitlines(keepends=True):
        if not line.startswith("#"):
            continue
        inside = depth > 0
        depth += line.startswith("#if")
        depth -= line.startswith("#endif")
        if inside:
            result[-1] += line
        else:
            result.append(line)
    return result


def _declared(probes: Sequence[str], *, kernel: bool) -> str:
    """The factory of the probes, by their Python classes; the kinds of launches that
    run on a GPU; and the text of the measuring kernel, which is compiled at run time."""
    kinds = "".join(f' || kind == "{kind}"' for kind in gpu_kinds())
    return (
        "// The probes of this file, and the kinds of launches that run on a GPU.\n"
        f"{_OPEN}\n"
        "inline std::unique_ptr<Probe> make_probe(const std::string& name) {\n"
        "  std::unique_ptr<Probe> probe;\n"
        f"{''.join(map(_factory, probes))}"
        "  return probe;\n"
        "}\n\n"
        "inline bool is_gpu_kind(const std::string& kind) {\n"
        f"  return {kinds.removeprefix(' || ')};\n"
        "}\n\n"
        f"{_kernel() if kernel else ''}"
        f"{_CLOSE}"
    )


def kernels() -> str:
    """The text of all that runs on a GPU, without comments."""
    lines = together(_KERNEL).splitlines(keepends=True)
    return "".join(line for line in lines if not line.lstrip().startswith("//"))


def _kernel() -> str:
    code = kernels()
    return f'inline const char* kernel_source() {{\n  return R"kernel({code})kernel";\n}}\n\n'


def _factory(name: str) -> str:
    probe = registry()[name]
    names = ("spans", "of_results", "measures", "saves", "marks")
    flags = {name: getattr(probe, name) for name in names}
    lines = [
        f"probe = std::make_unique<{name.title().replace('_', '')}>();",
        f'probe->when = "{probe.when}";',
        *(["probe->values = &reading;"] if probe.reads_values else []),
        *(f"probe->{flag} = true;" for flag, is_set in flags.items() if is_set),
    ]
    body = "".join(f"    {line}\n" for line in lines)
    return f'  if (name == "{name}") {{\n{body}  }}\n'
