"""Loads the declarations in `grammars/`: launch shapes, and calls that are known not to launch.

Each language has a folder there, and each TOML file in it is one launch shape: adding a file adds
the shape. `known_calls.toml` sorts the other calls into groups by their effect on the data flow.
This module reads what all languages declare alike; each language reads the rest in its own
`grammar.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rewriter.core import toml
from rewriter.core.errors import FAILED, RewriterError
from rewriter.locate.declarations import check_keys, folder, invalid, texts
from rewriter.locate.vocabulary import PLACEHOLDERS, check_kind, check_placeholders, expand

KNOWN_CALLS = "known_calls.toml"

_SPECIAL = re.compile(rf"(\*\*|\*|{'|'.join(map(re.escape, PLACEHOLDERS))})")


@dataclass(frozen=True)
class Shape:
    """One launch shape. Shapes are tried by `order`, lowest first.

    `roles` names the resolver that tells inputs from outputs. `valid` and `invalid` are statements
    that are launches of this shape, and statements that are not.
    """

    kind: str
    order: int
    roles: str
    valid: tuple[str, ...]
    invalid: tuple[str, ...]


S = TypeVar("S", bound=Shape)


class Grammar(Generic[S]):
    """All shapes of one language, lowest order first, and its known calls by group."""

    def __init__(self, shapes: Iterable[S], known_calls: Mapping[str, re.Pattern[str]]) -> None:
        self.shapes = tuple(sorted(shapes, key=lambda shape: shape.order))
        self._known_calls = known_calls
        self._effects: dict[str, str | None] = {}

    def effect(self, callee: str) -> str | None:
        """The first group of `known_calls.toml` that `callee` is in, or `None`."""
        if callee not in self._effects:
            groups = (
                group for group, pattern in self._known_calls.items() if pattern.fullmatch(callee)
            )
            self._effects[callee] = next(groups, None)
        return self._effects[callee]


def read_folder(
    language: str, groups: Sequence[str], read_shape: Callable[[dict[str, Any]], S]
) -> tuple[list[S], dict[str, re.Pattern[str]]]:
    """The launch shapes of a language, and its known calls: a pattern for each of `groups`.

    Raises `RewriterError`, naming the file and the key, if a declaration is wrong.
    """
    root = folder() / language
    files = sorted(root.glob("*.toml"))
    names = [file.name for file in files]
    if KNOWN_CALLS not in names or len(files) == 1:
        raise RewriterError(
            "grammar-missing",
            f"expected launch shapes and {KNOWN_CALLS} in {root}, "
            f"found {', '.join(names) or 'nothing'}",
            hint="The installation is incomplete: reinstall inductor-rewriter.",
            code=FAILED,
        )
    shapes: list[S] = []
    known_calls: dict[str, re.Pattern[str]] = {}
    for file in files:
        try:
            declared = toml.read(file)
            if file.name == KNOWN_CALLS:
                check_keys(declared, required=set(groups), optional=set())
                known_calls = {name: compile_glob(*texts(declared, name)) for name in groups}
            else:
                shapes.append(read_shape(declared))
        except (KeyError, TypeError, ValueError) as error:
            raise invalid(file, error) from error
    return shapes, known_calls


def common_fields(
    declared: dict[str, Any], roles: Sequence[str], *, required: set[str], optional: set[str]
) -> dict[str, Any]:
    """The fields of `Shape` in a declaration. Its other keys are `required` or `optional`."""
    check_keys(
        declared, required={"kind", "order", "roles", "examples"} | required, optional=optional
    )
    check_kind(declared["kind"])
    if declared["roles"] not in roles:
        raise ValueError(f"roles {declared['roles']!r} is none of {', '.join(roles)}")
    if not isinstance(declared["order"], int):
        raise TypeError(f"order {declared['order']!r} is no whole number")
    return {
        "kind": declared["kind"],
        "order": declared["order"],
        "roles": declared["roles"],
        "valid": texts(declared["examples"], "valid"),
        "invalid": texts(declared["examples"], "invalid"),
    }


def compile_glob(*patterns: str) -> re.Pattern[str]:
    """One regular expression for any of `patterns`.

    `*` is any text without a dot, also none; `**` is any text. `{devices}` is the name of a device,
    `{libraries}` that of a library of templates. Raises `ValueError` for other placeholders.
    """
    pieces = {
        "**": ".+",
        "*": "[^.]*",
        **{placeholder: f"(?:{expand(placeholder)})" for placeholder in PLACEHOLDERS},
    }
    for pattern in patterns:
        check_placeholders(pattern)
    return re.compile(
        "|".join(
            "".join(pieces.get(part) or re.escape(part) for part in _SPECIAL.split(pattern))
            for pattern in patterns
        )
    )
