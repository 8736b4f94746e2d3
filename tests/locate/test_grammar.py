"""The declarations under `grammars/`: their own examples hold, in both languages."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import tomllib

import statements
from rewriter.locate import grammar
from rewriter.locate.declarations import folder
from rewriter.locate.python import grammar as python_grammar
from rewriter.locate.types import Located
from rewriter.locate.vocabulary import PLACEHOLDERS, vocabulary

FILES = sorted((folder() / "python").glob("*.toml"))
LANGUAGES = {"python": statements.python, "cpp": statements.cpp}
Locate = Callable[[str], Located]


def examples(which: str) -> pytest.MarkDecorator:
    """The examples of every shape, with the kinds that it has. A shape without any is refused when
    it is loaded."""
    found = []
    for language, locate in LANGUAGES.items():
        for file in sorted((folder() / language).glob("*.toml")):
            if file.stem != "known_calls":
                declared = tomllib.loads(file.read_text())
                kinds = {declared["kind"], *(row["kind"] for row in declared.get("kinds", []))}
                for example in declared["examples"][which]:
                    id_ = f"{language}, {file.stem}: {example[:50]}"
                    found.append(pytest.param(locate, kinds, example, id=id_))
    return pytest.mark.parametrize(("locate", "kinds", "statement"), found)


@examples("invalid")
def test_invalid_examples_are_not_of_that_kind(
    locate: Locate, kinds: set[str], statement: str
) -> None:
    assert not kinds & {launch.kind for launch in locate(statement).launches}


@examples("valid")
def test_valid_examples(locate: Locate, kinds: set[str], statement: str) -> None:
    found = locate(statement)
    (launch,) = found.launches
    assert launch.kind in kinds
    assert found.unrecognised == ()


def test_every_kind_has_a_file() -> None:
    assert {shape.kind for shape in python_grammar.load().shapes} == set(vocabulary().kinds)


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
