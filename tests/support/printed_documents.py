"""Holds what commands print as JSON against `docs/schemas/`."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

from rewriter.core import documents, json_text

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


@cache
def validator(name: str) -> Any:
    schema = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def check(printed: dict[str, Any]) -> None:
    """A document is as the schema of its format says."""
    validator(printed["format"].removeprefix("rewriter.")).validate(printed)


def checked_json(value: documents.Entry, as_json: Any = documents.as_json) -> Any:
    """`as_json`, which holds whole documents against their schemas."""
    content = as_json(value)
    if documents.is_document(value):
        check(json.loads(json_text.encode(content)))
    return content
