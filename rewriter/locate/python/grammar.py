"""Loads the declarations in `grammars/python/`.

Patterns match the callee's text, in which a call is written `()` and a subscript `[]`, such as
`reinterpret_tensor().copy_` and `self.partitions[]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from rewriter.locate.declarations import check_keys, texts
from rewriter.locate.grammar import Grammar, Shape, common_fields, compile_glob, read_folder
from rewriter.runtime.host.harness import HARNESSES

ROLES = ("signature", "out", "schema")

# Values of `defined_by`: a function that the wrapper defines, and one with that decorator.
FUNCTION = "def"
JIT = "triton.jit"

# The effects of known calls on the data flow.
GROUPS = ("allocation", "view", "write", "copy", "check", "device", "scalar", "plumbing")
# Another group, which names whole functions.
_FUNCTIONS = "functions"


@dataclass(frozen=True)
class CallPattern:
    """One way to recognise a shape; every condition that is given must hold.

    `defined_by` is the callee that made the module-level name at the start of this callee, or `def`
    if that name is a function, or `triton.jit` if it is a kernel. `source` is text that the
    definition contains, `keyword` a keyword argument of the call.
    """

    callee: re.Pattern[str]
    defined_by: str = ""
    source: str = ""
    keyword: str = ""


@dataclass(frozen=True)
class PythonShape(Shape):
    """A launch shape: a call that matches one of `patterns`, and whose callee is not `excluded`."""

    patterns: tuple[CallPattern, ...]
    excluded: tuple[re.Pattern[str], ...]


class PythonGrammar(Grammar[PythonShape]):
    """The shapes and the known calls of Python wrappers."""

    def __init__(
        self, shapes: Iterable[PythonShape], known_calls: dict[str, re.Pattern[str]]
    ) -> None:
        super().__init__(shapes, {group: known_calls[group] for group in GROUPS})
        self._functions = known_calls[_FUNCTIONS]

    def is_helper(self, function: str) -> bool:
        """Whether a function of this name belongs to the wrapper's frame, and not to a call."""
        return function in HARNESSES or self._functions.fullmatch(function) is not None


@cache
def load() -> PythonGrammar:
    """Read and check every declaration for Python.

    Raises `RewriterError`, naming the file and the key, if a declaration is wrong.
    """
    return PythonGrammar(*read_folder("python", (*GROUPS, _FUNCTIONS), _read_shape))


def _read_shape(declared: dict[str, Any]) -> PythonShape:
    fields = common_fields(declared, ROLES, required={"match"}, optional={"except"})
    if not isinstance(declared["match"], list) or not declared["match"]:
        raise TypeError("match is no list of tables")
    excluded = texts(declared, "except") if "except" in declared else ()
    return PythonShape(
        **fields,
        patterns=tuple(map(_read_pattern, declared["match"])),
        excluded=tuple(map(compile_glob, excluded)),
    )


def _read_pattern(declared: object) -> CallPattern:
    if not isinstance(declared, dict):
        raise TypeError(f"match {declared!r} is no table")
    check_keys(declared, required={"callee"}, optional={"defined_by", "source", "keyword"})
    return CallPattern(**{**declared, "callee": compile_glob(declared["callee"])})
