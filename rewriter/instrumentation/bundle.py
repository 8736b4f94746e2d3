"""The text of the C++ runtime, which is pasted into each instrumented C++ wrapper.

The sources are ordinary C++ files in `rewriter/runtime/cpp/`; a probe is one file in its `probes/`
that defines a class of the probe's name. They are joined by following their includes, so that a
wrapper holds only what its probes need. An include of `formats/text.h` is replaced by that of the
wrapper's format, and with dormant probes one of `awake.h` by `dormant.h`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from rewriter.core.errors import FAILED, RewriterError
from rewriter.instrumentation.probes import registry
from rewriter.locate.vocabulary import vocabulary
from rewriter.runtime import cpp_sources

# Most of the runtime runs rarely, so it should compile fast; hot functions raise the optimization
# level themselves. Numbers must be the same as in Python, whatever flags the wrapper has.
_BEGIN = """\
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("Og", "no-fast-math")
#endif
"""
_END = """\
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
"""

# If the bodies are compiled as a file of their own, both files share the interface. The wrapper's
# table and lines find it in the unnamed namespace either way.
_SHARE = """\
#ifdef INDUCTOR_REWRITER_APART
namespace { namespace inductor_rewriter {} }
namespace inductor_rewriter_apart __attribute__((visibility("hidden"))) {
using namespace inductor_rewriter;
#else
namespace {
namespace inductor_rewriter {
#endif
"""
_SHARED = """\
#ifdef INDUCTOR_REWRITER_APART
}  // namespace inductor_rewriter_apart
namespace {
namespace inductor_rewriter {
using namespace inductor_rewriter_apart;
#endif
}  // namespace inductor_rewriter
}  // namespace
"""
_IF_BODIES = "#if !defined(INDUCTOR_REWRITER_APART) || defined(INDUCTOR_REWRITER_BODIES)\n"
_END_IF = "#endif\n"
_APART = """\
// The runtime of a wrapper that is compiled with INDUCTOR_REWRITER_APART.
#ifndef INDUCTOR_REWRITER_APART
#define INDUCTOR_REWRITER_APART
#endif
#define INDUCTOR_REWRITER_BODIES
"""
_TABLE_APART = """\
// The table of a wrapper that is compiled with INDUCTOR_REWRITER_APART.
#define INDUCTOR_REWRITER_APART
#define INDUCTOR_REWRITER_TABLE
namespace inductor_rewriter_apart __attribute__((visibility("hidden"))) {
"""
# Around the table. If the wrapper is compiled apart, the table is in another file.
TABLE_BEGIN = (
    "#ifdef INDUCTOR_REWRITER_APART",
    'namespace inductor_rewriter_apart __attribute__((visibility("hidden"))) {',
    "extern Wrapper wrapper;",
    "}",
    "#endif",
    "#if !defined(INDUCTOR_REWRITER_APART) || defined(INDUCTOR_REWRITER_TABLE)",
    "#ifdef INDUCTOR_REWRITER_APART",
    'namespace inductor_rewriter_apart __attribute__((visibility("hidden"))) {',
    "#else",
    "namespace { namespace inductor_rewriter {",
    "#endif",
)
TABLE_END = (
    "}",
    "#ifndef INDUCTOR_REWRITER_APART",
    "}",
    "#endif",
    "#endif",
)

SOURCES = Path(__file__).resolve().parent.parent / "runtime" / "cpp"
_TABLE = SOURCES / "table.h"
_INTERFACE = SOURCES / "interface.h"
_CALL = SOURCES / "call.h"

_LOCAL = re.compile(r'^#include "(.+)"\n', re.MULTILINE)
_OPEN = "\nnamespace {\nnamespace inductor_rewriter {\n"
_CLOSE = "}  // namespace inductor_rewriter\n}  // namespace\n"


def text(probes: Sequence[str], format: str, *, is_dormant: bool = False) -> str:
    """The runtime with these probes and this format (text or upstream), as C++17.

    It needs the include directories of torch, and nothing from the file that it is pasted into;
    the table of launches follows it. It has no triple quotes, since it may be pasted into a string
    of a Python file, but it does have backslashes.

    Everything has internal linkage. If the macro INDUCTOR_REWRITER_APART is defined, only the
    interface is compiled, and the library also needs the files that `apart` and `table` return.
    """
    return _text(tuple(probes), format, is_dormant)


@cache
def _text(probes: tuple[str, ...], format: str, is_dormant: bool) -> str:
    shared = _collect(_INTERFACE, {}, format)
    parts = dict(shared)
    for name in probes:
        path = _path(name)
        if not has(name):
            raise RewriterError(
                "probe-invalid",
                f"the probe {name} has no rewriter/runtime/cpp/probes/{name}.h: C++ wrappers "
                "cannot have it",
                hint="See docs/project/extending.md for what a probe's file holds.",
                code=FAILED,
            )
        _collect(path, parts, format)
    _collect(_CALL, parts, format)
    call = parts.pop(_CALL)
    if is_dormant:
        # call.h includes the version for probes that are not dormant.
        parts.pop(SOURCES / "awake.h")
        _collect(SOURCES / "dormant.h", parts, format)
    parts = {path: part for path, part in parts.items() if path not in shared}

    includes = _includes(shared.values())
    more = [line for line in _includes([*parts.values(), call]) if line not in includes]
    return "\n".join(
        [
            "".join([*includes, _IF_BODIES, *more, _END_IF]),
            _BEGIN,
            _share(shared.values()),
            _IF_BODIES,
            *(_comment(part) + _OPEN.lstrip() + _body(part) + _CLOSE for part in parts.values()),
            _declared(probes, kernel=SOURCES / "gpu_rows.h" in parts),
            _share([call]),
            _END_IF,
            _END,
        ]
    )


def has(probe: str) -> bool:
    """Whether a probe exists in C++."""
    return _path(probe).is_file()


def interface(format: str) -> str:
    """The part of `text` and of the table that is compiled if INDUCTOR_REWRITER_APART is defined.

    It is the same for all probes and launches.
    """
    shared = _collect(_INTERFACE, {}, format).values()
    lines = [*TABLE_BEGIN[: TABLE_BEGIN.index("#endif") + 1], ""]
    return "\n".join(["".join(_includes(shared)), _BEGIN, _share(shared), _END, *lines])


def table(lines: str) -> str:
    """A file with the lines of a table, between TABLE_BEGIN and TABLE_END.

    It includes nothing, so it compiles fast.
    """
    return f"{_TABLE_APART}{_body(_TABLE.read_text('utf-8')).removesuffix(_CLOSE)}}}\n{lines}"


def apart(probes: Sequence[str], format: str, *, is_dormant: bool = False) -> str:
    """A file with the bodies of `text(probes, format)`.

    It is linked with a wrapper that is compiled with -DINDUCTOR_REWRITER_APART. Both need the same
    flags, since they share types. Their symbols are hidden, so that other libraries can have a
    runtime of their own.
    """
    return _APART + text(probes, format, is_dormant=is_dormant)


def _path(probe: str) -> Path:
    return SOURCES / "probes" / f"{probe}.h"


def _collect(path: Path, parts: dict[Path, str], format: str) -> dict[Path, str]:
    """Add a file, after the files that it includes, each once."""
    source = path.read_text("utf-8").replace('formats/text.h"', f'formats/{format}.h"')
    for name in _LOCAL.findall(source):
        included = (path.parent / name).resolve()
        if included not in parts:
            _collect(included, parts, format)
    part = _LOCAL.sub("", source).replace("#pragma once\n", "")
    if _OPEN not in part or not part.endswith(_CLOSE):
        raise RewriterError(
            "probe-invalid",
            f"rewriter/runtime/cpp/{path.relative_to(SOURCES)} does not open and close its "
            "namespaces as the files that it is put together with",
            hint="See docs/project/extending.md for what a probe's file holds.",
            code=FAILED,
        )
    parts[path.resolve()] = part
    return parts


def _comment(part: str) -> str:
    head = part.split(_OPEN, 1)[0]
    return "".join(line for line in head.splitlines(keepends=True) if line[:2] == "//")


def _body(part: str) -> str:
    return part.split(_OPEN, 1)[1].removesuffix(_CLOSE)


def _share(parts: Iterable[str]) -> str:
    return _SHARE + "".join("\n" + _comment(part) + _body(part) for part in parts) + _SHARED


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
    kinds = "".join(f' || kind == "{kind}"' for kind in sorted(vocabulary().gpu_kinds))
    return (
        "// The probes of this file, and the kinds of launches that run on a GPU.\n"
        f"{_OPEN.lstrip()}\n"
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


def _kernel() -> str:
    lines = cpp_sources.together(cpp_sources.KERNEL).splitlines(keepends=True)
    code = "".join(line for line in lines if not line.lstrip().startswith("//"))
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
