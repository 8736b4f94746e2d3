"""Holds what commands print as JSON against the schemas of its types."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import jsonschema

import schemas
from rewriter.core import documents, json_text


@cache
def validator(name: str) -> Any:
    schema = schemas.schema(name)
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
