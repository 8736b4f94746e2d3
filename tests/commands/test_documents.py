"""What commands print as JSON is as the schemas of its types say.

`conftest.py` holds every document that a test prints in this process against its schema; here are
those that need no run.
"""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

import printed_documents
from artifacts import ARTIFACTS, get
from caches import MLP, make, put_probes
from rewriter.cli import main

WRAPPERS = [
    get(name).path
    for name in ("cpu-torch2.13/mlp", "cpu-torch2.13/mlp cpp_wrapper", "cuda-torch2.11/mlp")
]


def printed(capfd: pytest.CaptureFixture[str], *words: object) -> dict[str, object]:
    """One document, held against its schema."""
    main([*map(str, words), "--json"])
    document: dict[str, object] = json.loads(capfd.readouterr().out)
    printed_documents.check(document)
    return document


def test_wrappers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, path in enumerate(WRAPPERS):
        probed = f"{number}{path.suffix}"
        assert printed(capfd, "list", path)["launches"]
        assert printed(capfd, "instrument", path, "-o", probed)["changed"]
        assert printed(capfd, "strip", probed, "--check-probes")["wrappers"]
        assert printed(capfd, "strip", probed, "--diff")["exact"]
        assert printed(capfd, "diff", path, probed, "--unified")["verdict"] == "instrumented"


def test_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = ARTIFACTS / "cpu-torch2.13" / "conv_train"
    assert len(printed(capfd, "list", folder)["wrappers"]) > 1  # type: ignore[arg-type]
    assert printed(capfd, "instrument", folder, "-o", "probed")["wrappers"]
    assert printed(capfd, "strip", "probed", "--check")["removed"]


def test_packages(capfd: pytest.CaptureFixture[str]) -> None:
    package = next(iter(sorted(ARTIFACTS.rglob("*.pt2"))))
    assert printed(capfd, "list", package)["launches"]
    assert printed(capfd, "instrument", package, "--check")["models"]
    assert printed(capfd, "strip", package)["removed"] == 0


def test_the_cache(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    place = ["--dir", make(tmp_path / "cache", [MLP])]
    assert printed(capfd, "cache", "list", *place)["wrappers"]
    put_probes(tmp_path / "cache", names=[MLP])
    assert printed(capfd, "cache", "status", *place)["wrappers"]
    assert printed(capfd, "cache", "restore", *place)["restored"]


def test_this_machine(capfd: pytest.CaptureFixture[str]) -> None:
    assert printed(capfd, "doctor")["checks"]


def test_a_schema_refuses_what_it_does_not_know() -> None:
    printed_documents.check({"format": "rewriter.doctor", "version": 1, "checks": []})
    for wrong in ({"checks": [], "more": 1}, {}, {"checks": [{"name": "a"}]}):
        with pytest.raises(jsonschema.ValidationError):
            printed_documents.check({"format": "rewriter.doctor", "version": 1, **wrong})
