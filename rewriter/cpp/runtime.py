"""The text of the C++ runtime: what is pasted into an instrumented C++ wrapper, once.

The sources are ordinary C++ files in `rewriter/runtime/cpp/`; a probe is one file in its `probes/`
that defines a class of the probe's name. They are put together by following their includes, so
that a wrapper holds only what its probes need.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from rewriter.errors import FAILED, RewriterError

# Most of it runs rarely, so it must not cost time to compile; what is hot says so itself. Numbers
# are those of Python whatever the wrapper is compiled with.
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

SOURCES = Path(__file__).parent.parent / "runtime" / "cpp"

_LOCAL = re.compile(r'^#include "(.+)"\n', re.MULTILINE)


def text(probes: Sequence[str]) -> str:
    """The runtime with these probes, as C++17: includes first, then namespaces without linkage.

    It needs the include directories of torch, and nothing else of the file that it is pasted
    into; the table of launches follows it. It holds no triple quotes, since it may be pasted into
    a string of a Python file, but it does hold backslashes.
    """
    parts: dict[Path, str] = {}
    for name in probes:
        if not (SOURCES / "probes" / f"{name}.h").is_file():
            raise RewriterError(
                "probe-invalid",
                f"the probe {name} has no rewriter/runtime/cpp/probes/{name}.h: C++ wrappers "
                "cannot have it",
                hint="See CONTRIBUTING.md for what a probe's file holds.",
                code=FAILED,
            )
        _collect(SOURCES / "probes" / f"{name}.h", parts)
    includes: dict[str, None] = {}
    bodies = []
    for part in parts.values():
        head, body = part.split("\nnamespace {\n", 1)
        includes |= dict.fromkeys(_directives(head))
        comment = "".join(line for line in head.splitlines(keepends=True) if line[:2] == "//")
        bodies.append(f"{comment}namespace {{\n{body}")
    bodies.append(_factory(probes))
    return "\n".join(["".join(includes), _BEGIN, *bodies, _END])


def _collect(path: Path, parts: dict[Path, str]) -> None:
    """Add a file after those that it includes, each once."""
    source = path.read_text("utf-8")
    for name in _LOCAL.findall(source):
        found = (path.parent / name).resolve()
        if found not in parts:
            _collect(found, parts)
    parts[path.resolve()] = _LOCAL.sub("", source).replace("#pragma once\n", "")


def _directives(head: str) -> list[str]:
    """The includes of the system; directives that depend on one another stay together."""
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


def _factory(probes: Sequence[str]) -> str:
    made = "".join(
        f'  if (name == "{name}") return std::make_unique<{name.title().replace("_", "")}>();\n'
        for name in probes
    )
    return (
        "// The probes of this file.\n"
        "namespace {\n"
        "namespace inductor_rewriter {\n\n"
        "inline std::unique_ptr<Probe> make_probe(const std::string& name) {\n"
        f"{made}"
        "  return nullptr;\n"
        "}\n\n"
        "}  // namespace inductor_rewriter\n"
        "}  // namespace\n"
    )
