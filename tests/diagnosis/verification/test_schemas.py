"""The schemas that a program records are what torch printed, which torch does not read in full."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import library

from rewriter.diagnosis.operators import examine_operators
from rewriter.diagnosis.verification.bounded import UncheckedError
from rewriter.diagnosis.verification.operators.operands import is_written, schema_of
from rewriter.dump.reading import Dump

# As vLLM 0.32.0 with torch 2.13.0 recorded them.
PRODUCT = "_C::onednn_mm(Tensor($0! -> ) c, Tensor a, Tensor? bias, Tensor handler_tensor) -> ()"
CACHE = "vllm::unified_kv_cache_update(Tensor key, Tensor value, PyObject layer_name) -> Tensor"


def written(text: str) -> list[str]:
    return [x.name for x in schema_of(text).arguments if is_written(x)]


def test_what_torch_prints_is_read() -> None:
    own = library.Library("schemas_read", "DEF")
    own.define("scale_(Tensor! c, Tensor![] more, Tensor a, Tensor(x!) d) -> ()")
    printed = str(torch.ops.schemas_read.scale_.default._schema)
    assert "$0" in printed
    assert written(printed) == ["c", "more", "d"]
    assert written(PRODUCT) == ["c"]
    assert [x.name for x in schema_of(CACHE).arguments] == ["key", "value", "layer_name"]


def test_another_type_is_no_reason_to_stop() -> None:
    with pytest.raises(UncheckedError, match="f\\(Unknown x\\) -> \\(\\) cannot be read"):
        schema_of("mine::f(Unknown x) -> ()")


def _dump(schema: str, **parameters: list[str]) -> Dump:
    row = SimpleNamespace(schema=schema, parameters=parameters, kernel="k", line=1)
    step = SimpleNamespace(launch=0)
    run = SimpleNamespace(sha256="", steps=[step], launch_row=lambda _: row)
    return cast(Dump, SimpleNamespace(runs=[run]))


def test_operators_of_an_engine_are_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor as source and target of one is found; a schema that is not read accuses nobody."""

    def at(*words: Any, text: Any) -> str:
        return str(words[3])

    monkeypatch.setattr("rewriter.diagnosis.operators.finding_at", at)
    (finding,) = examine_operators(_dump(PRODUCT, buf0=["0", "a"])).findings
    assert cast(str, finding).startswith("is given buf0 as a, which it reads, and as c, which it")
    for given in ({"buf0": ["0"]}, {"buf0": ["key", "value"]}):
        assert not examine_operators(_dump(CACHE, **given)).findings
    assert not examine_operators(_dump("mine::f(Unknown x) -> ()", buf0=["x"])).findings
