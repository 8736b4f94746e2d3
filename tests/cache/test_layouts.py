"""`rewriter cache list` finds the caches of serving engines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from caches import MLP, make
from rewriter import cli


@pytest.mark.parametrize(
    ("engine", "variable", "folder"),
    [
        ("vLLM", "VLLM_CACHE_ROOT", "torch_compile_cache/torch_aot_compile/ab12/inductor_cache"),
        ("vLLM", "VLLM_CACHE_ROOT", "torch_compile_cache/ab12/rank_0_0/inductor_cache"),
        ("SGLang", "SGLANG_CACHE_DIR", "torch_compile_cache/ab/rank_0_0/backbone/inductor_cache"),
        ("SGLang", "XDG_CACHE_HOME", "sglang/inductor"),
    ],
    ids=["vllm-aot", "vllm-rank", "sglang-piecewise", "sglang"],
)
def test_caches_of_engines_are_listed(
    engine: str,
    variable: str,
    folder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("VLLM_CACHE_ROOT", "SGLANG_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "given"))
    monkeypatch.setenv(variable, str(tmp_path))
    make(tmp_path / folder, [MLP])
    assert cli.main(["cache", "list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["wrappers"] == []
    path = str(tmp_path / folder)
    assert found["others"] == [{"directory": path, "engine": engine, "wrappers": 1}]
    assert cli.main(["cache", "list"]) == 0
    assert f"{engine}: 1 wrapper in {path}, " in capsys.readouterr().err
    assert cli.main(["cache", "list", "--dir", path]) == 0
    assert "cabmlp0000" in capsys.readouterr().out
