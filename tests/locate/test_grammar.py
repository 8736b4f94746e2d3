"""The declarations under `grammars/`: their own examples hold."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
import tomllib

import statements
from rewriter.locate import grammar
from rewriter.locate.declarations import folder
from rewriter.locate.python import grammar as python_grammar
from rewriter.locate.vocabulary import PLACEHOLDERS, vocabulary

FILES = sorted((folder() / "python").glob("*.toml"))
SHAPES = [file for file in FILES if file.stem != "known_calls"]


def kinds(statement: str) -> list[str]:
    return [launch.kind for launch in statements.python(statement).launches]


def _examples(which: str) -> Iterator[tuple[str, str]]:
    for file in SHAPES:
        declared = tomllib.loads(file.read_text())
        for example in declared["examples"][which]:
            yield declared["kind"], example


def rows(which: str) -> pytest.MarkDecorator:
    found = list(_examples(which))
    return pytest.mark.parametrize(
        ("kind", "statement"), found, ids=[f"{kind}: {statement[:50]}" for kind, statement in found]
    )


@rows("invalid")
def test_invalid_examples_are_not_of_that_kind(kind: str, statement: str) -> None:
    assert kind not in kinds(statement)


@rows("valid")
def test_valid_examples(kind: str, statement: str) -> None:
    found = statements.python(statement)
    assert [launch.kind for launch in found.launches] == [kind]
    assert found.unrecognised == ()


def test_every_kind_has_a_file_with_examples() -> None:
    shapes = python_grammar.load().shapes
    assert {shape.kind for shape in shapes} == set(vocabulary().kinds)
    for shape in shapes:
        assert shape.valid, shape.kind
        assert shape.invalid, shape.kind


def test_shapes_are_tried_in_order() -> None:
    orders = [shape.order for shape in python_grammar.load().shapes]
    assert orders == sorted(orders)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_pattern_compiles_and_matches_itself(file: Path) -> None:
    declared = tomllib.loads(file.read_text())
    if file.stem == "known_calls":
        patterns = [pattern for group in declared.values() for pattern in group]
    else:
        patterns = [match["callee"] for match in declared["match"]] + declared.get("except", [])
    for pattern in patterns:
        compiled = grammar.compile_glob(pattern)
        callee = pattern.replace("**", "a.b").replace("*", "a")
        for device, library in product(vocabulary().devices, vocabulary().libraries):
            named = callee.replace("{devices}", device).replace("{libraries}", library)
            assert compiled.fullmatch(named)
        has_one = any(one in callee for one in PLACEHOLDERS)
        assert has_one == (compiled.fullmatch(callee) is None)


GLOBS = [
    ("*.run", "a.b.run", False),
    ("*.run", "run", False),
    ("*.run", "kernel.running", False),
    ("aten.**", "aten", False),
    ("aten.**", "aten.", False),
    ("aten.view.dtype", "atenxviewxdtype", False),
    ("self.partitions[]", "self.partitions", False),
    ("torch.ops.*.*", "torch.ops.corp.scale.default", False),
    ("*.run", "kernel.run", True),
    ("aten.**", "aten.index_put_", True),
    ("aten.**", "aten.scatter_reduce_.two", True),
    ("**.view", "reinterpret_tensor().view", True),
    ("self.partitions[]", "self.partitions[]", True),
    ("*", "kernel", True),
]


@pytest.mark.parametrize(
    ("pattern", "callee", "matches"), GLOBS, ids=[f"{row[0]} ~ {row[1]}" for row in GLOBS]
)
def test_glob(pattern: str, callee: str, matches: bool) -> None:
    assert (grammar.compile_glob(pattern).fullmatch(callee) is not None) is matches


def test_the_synthetic_wrappers_parse() -> None:
    for text in statements.DEFINITIONS.values():
        ast.parse(text)
