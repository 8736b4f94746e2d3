"""Loads the declarations under `grammars/`: what a launch looks like, and what is none.

One TOML file is one launch shape; dropping a file into the folder adds the shape. Patterns match
the callee's text, in which a call is written `()` and a subscript `[]`, as in
`reinterpret_tensor().copy_` and `self.partitions[]`. In a pattern `*` is any text without a dot,
also none, and `**` any text at all.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from rewriter.core.errors import FAILED, RewriterError
from rewriter.locate.types import KINDS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Roles = Literal["signature", "out", "schema"]

# What a call that is no launch does to the data flow; `functions` names whole functions instead.
NOT_LAUNCHES = (
    "allocation",
    "view",
    "memory",
    "copy",
    "check",
    "device",
    "scalar",
    "plumbing",
    "functions",
)


@dataclass(frozen=True)
class Match:
    """One way to recognise a shape; every condition that is given must hold.

    `defined_by` is the callee that made the module-level name at the head of this callee, `source`
    a text that the definition contains, `keyword` a keyword argument of the call.
    """

    callee: re.Pattern[str]
    defined_by: str = ""
    source: str = ""
    keyword: str = ""


@dataclass(frozen=True)
class Shape:
    """One launch shape. Shapes are tried by `order`, lowest first."""

    kind: str
    order: int
    roles: Roles
    matches: tuple[Match, ...]
    excluded: tuple[re.Pattern[str], ...]
    valid: tuple[str, ...]
    invalid: tuple[str, ...]


@dataclass(frozen=True)
class Grammar:
    """All shapes of one language, and the calls that are known to be no launch."""

    shapes: tuple[Shape, ...]
    not_launches: dict[str, re.Pattern[str]]

    def effect(self, callee: str) -> str | None:
        """The group of `not_launches.toml` that `callee` is in, or `None`."""
        for group, pattern in self.not_launches.items():
            if group != "functions" and pattern.fullmatch(callee):
                return group
        return None

    def is_helper(self, function: str) -> bool:
        """Whether a function of this name is part of a wrapper's frame, not of a call."""
        return self.not_launches["functions"].fullmatch(function) is not None


def folder() -> Path:
    """`grammars/` as installed with the package, or as it stands in a checkout."""
    package = Path(__file__).parent.parent
    installed = package / "grammars"
    return installed if installed.is_dir() else package.parent / "grammars"


@cache
def load(language: str) -> Grammar:
    """Read and check every declaration for `language`.

    Raises `RewriterError` naming the file and the key where a declaration is wrong.
    """
    files = sorted((folder() / language).glob("*.toml"))
    if "not_launches" not in (stems := {file.stem for file in files}) or len(stems) == 1:
        raise RewriterError(
            "grammar-missing",
            f"expected launch shapes and not_launches.toml in {folder() / language}, "
            f"found {', '.join(sorted(stems)) or 'nothing'}",
            hint="The installation is incomplete: reinstall inductor-rewriter.",
            code=FAILED,
        )
    shapes = []
    not_launches: dict[str, re.Pattern[str]] = {}
    for file in files:
        try:
            declared = read(file)
            if file.stem == "not_launches":
                not_launches = _groups(declared)
            else:
                shapes.append(_shape(declared))
        except (KeyError, TypeError, ValueError) as error:
            raise RewriterError(
                "grammar-invalid",
                f"{file}: {type(error).__name__}: {error}",
                hint="See CONTRIBUTING.md for what a declaration holds.",
                code=FAILED,
            ) from error
    return Grammar(tuple(sorted(shapes, key=lambda shape: shape.order)), not_launches)


def read(file: Path) -> dict[str, Any]:
    """The contents of a TOML file. Raises `ValueError` where it is none."""
    return tomllib.loads(file.read_text(encoding="utf-8"))


def compile_glob(*patterns: str) -> re.Pattern[str]:
    """One regular expression for any of `patterns`; `*` stays within a dotted segment."""
    pieces = {"**": ".+", "*": "[^.]*"}
    return re.compile(
        "|".join(
            "".join(pieces.get(part) or re.escape(part) for part in re.split(r"(\*\*|\*)", pattern))
            for pattern in patterns
        )
    )


def _groups(declared: dict[str, Any]) -> dict[str, re.Pattern[str]]:
    check_keys(declared, required=set(NOT_LAUNCHES), optional=set())
    return {group: compile_glob(*texts(declared, group)) for group in NOT_LAUNCHES}


def _shape(declared: dict[str, Any]) -> Shape:
    check_keys(
        declared,
        required={"kind", "order", "roles", "match", "examples"},
        optional={"except"},
    )
    if declared["kind"] not in KINDS:
        raise ValueError(f"kind {declared['kind']!r} is none of {', '.join(KINDS)}")
    if declared["roles"] not in get_args(Roles):
        raise ValueError(f"roles {declared['roles']!r} is none of {', '.join(get_args(Roles))}")
    if not isinstance(declared["order"], int):
        raise TypeError(f"order {declared['order']!r} is no whole number")
    if not isinstance(declared["match"], list) or not declared["match"]:
        raise TypeError("match is no list of tables")
    matches = []
    for match in declared["match"]:
        if not isinstance(match, dict):
            raise TypeError(f"match {match!r} is no table")
        check_keys(match, required={"callee"}, optional={"defined_by", "source", "keyword"})
        matches.append(Match(**{**match, "callee": compile_glob(match["callee"])}))
    return Shape(
        kind=declared["kind"],
        order=declared["order"],
        roles=declared["roles"],
        matches=tuple(matches),
        excluded=tuple(
            compile_glob(pattern)
            for pattern in (texts(declared, "except") if "except" in declared else ())
        ),
        valid=texts(declared["examples"], "valid"),
        invalid=texts(declared["examples"], "invalid"),
    )


def texts(declared: dict[str, Any], key: str) -> tuple[str, ...]:
    """A list of texts, which a single text is not."""
    value = declared[key]
    if not isinstance(value, list) or not value or not all(isinstance(x, str) for x in value):
        raise TypeError(f"{key} is no list of texts: {value!r}")
    return tuple(value)


def check_keys(declared: dict[str, Any], *, required: set[str], optional: set[str]) -> None:
    if missing := required - declared.keys():
        raise KeyError(f"missing {', '.join(sorted(missing))}")
    if unknown := declared.keys() - required - optional:
        raise KeyError(f"unknown {', '.join(sorted(unknown))}")
