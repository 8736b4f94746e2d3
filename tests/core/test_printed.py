"""What `printed` says of a type is what its values print, and what their schema has."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import pytest

import printed_documents
import schemas
from rewriter.core import documents, json_text
from rewriter.core.documents import Document, Number
from rewriter.core.printed import printed


@dataclass(frozen=True)
class Plain:
    path: Path
    value: Number


@printed("size=name.size plain.path note? *plain missing")
@dataclass(frozen=True)
class Shown:
    plain: Plain
    note: str = ""
    missing: Plain | None = None

    @property
    def name(self) -> Name:
        return Name(len(str(self.plain.path)))


@dataclass(frozen=True)
class Name:
    size: int


class ShownDocument(Document, frozen=True, kw_only=True, tag="rewriter.shown"):
    """`rewriter shown --json`."""

    all: tuple[Shown, ...]


def test_values_print_what_their_type_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(schemas.DOCUMENTS, "shown", (ShownDocument,))
    plain = Plain(Path("a/b"), math.inf)
    document = ShownDocument(all=(Shown(plain), Shown(plain, "so", plain)))
    found = json.loads(json_text.encode(documents.as_json(document)))
    path = {"path": "a/b", "value": "inf"}
    first, second = {"size": 3, **path, "missing": None}, {"note": "so", "missing": path}
    assert found == {
        "format": "rewriter.shown", "version": 1, "all": [first, {**first, **second}],
    }  # fmt: skip
    for wrong in ({"size": "3"}, {"value": "high"}, {"plain": path}):
        with pytest.raises(jsonschema.ValidationError):
            printed_documents.check({**found, "all": [{**first, **wrong}]})
