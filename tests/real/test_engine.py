"""A program shaped as vLLM: the layer that makes a NaN is named by one command.

The engine sets its cache directory itself, in each of its processes, and loads binary artifacts,
one for each piece of the model; layers that are the same have one wrapper.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import programs
from caches import ROOT, bytes_of
from compilations import Compilations
from rewriter.dump import reading
from rewriter.execution.hook.cache.slots import scan
from rewriter.model_names import saved_layers

pytestmark = pytest.mark.usefixtures("warm_python")

ENGINE = ROOT / "tests/support/engine.py"
CACHE = "torch_compile_cache/0123456789"
# Where a piece of the model ends at attention, the next one begins in the same layer.
LAYER_1 = "layers.1, layers.2 (submod_4, sizes 1 to 64), by its turn among 2 with this wrapper"
LAYER_2 = "layers.2 (submod_6, sizes 1 to 64)"


def start(
    root: Path, *words: object, before: Any = (), code: int = 0, **added: str
) -> programs.Done:
    kept = {"TORCHINDUCTOR_CACHE_DIR": root.parent / "given", **added}
    line = [*before, sys.executable, ENGINE, root, *words]
    return programs.run(*line, code=code, cwd=ROOT, **kept)


def run(root: Path, *words: object, options: Any = (), **added: str) -> Any:
    """`rewriter run -- python engine.py`: its document, and the lines of the engine."""
    before = [sys.executable, "-m", "rewriter", "run", "--json", "-d", root.parent / "dump"]
    done = start(root, *words, before=[*before, *options, "--"], code=1, **added)
    lines = [line for line in done.stderr.splitlines() if line.startswith("engine ")]
    return json.loads(done.stdout), lines, done.stderr


@pytest.fixture(scope="module")
def served(compilations: Compilations, warm_module: None) -> Path:
    """What the engine leaves when it was started once."""

    def serve(folder: Path) -> Path:
        start(folder / "root", ENGINE_START="fork")
        return folder / "root"

    return compilations.value_with_files(serve, "engine")


@pytest.fixture
def root(served: Path, tmp_path: Path) -> Path:
    """A copy of it: a later start loads the artifacts."""
    shutil.copytree(served, tmp_path / "root")
    return tmp_path / "root"


def assert_layer_1_of_engine_1(found: dict[str, Any], lines: list[str]) -> None:
    """A weight of layer 1 came in with a NaN, in one process."""
    (verdict,) = found["verdicts"]
    assert verdict["headline"] == (
        f"the first NaN is in the inputs of {LAYER_1}: 1 of 256 elements of arg4_1, rank 0, "
        "1st call of the inference graph"
    )
    assert verdict["piece"] == LAYER_1
    assert verdict["process"] == "EngineCore_1 (rank_1_0)"
    assert [x["model"] for x in verdict["arguments"]] == ["layers.1.up.weight"]
    caches = {Path(row["wrapper"]).parents[1].name for row in found["wrappers"]}
    assert caches == {"inductor_cache"}


def test_warm(root: Path) -> None:
    before = bytes_of(root / CACHE / "inductor_cache")
    found, lines, errors = run(root, 1, 1, ENGINE_START="fork")
    assert "compiled " not in errors
    assert_layer_1_of_engine_1(found, lines)
    after = bytes_of(root / CACHE / "inductor_cache")
    assert {name: after[name] for name in before} == before
    assert {slot.state for slot in scan(root / CACHE / "inductor_cache").slots} == {"plain"}
    opened = reading.open_dump(root.parent / "dump")
    pieces = {}
    for one in opened.runs:
        assert one.piece is not None
        pieces.setdefault(one.facts.pid, []).append(one.piece.name)
    # Each process called all pieces in turn, twice.
    assert list(pieces.values()) == [["submod_0", "submod_2", "submod_4", "submod_6"] * 2] * 2


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_cold(method: str, tmp_path: Path) -> None:
    """It compiles and saves the artifacts, with probes from the first call on; then warm, on a
    fault elsewhere."""
    root = tmp_path / "root"
    found, lines, errors = run(root, 1, 1, ENGINE_START=method)
    assert errors.count("compiled ") == 8
    assert_layer_1_of_engine_1(found, lines)
    found, lines, errors = run(root, 0, 2, options=["--overwrite"], ENGINE_START=method)
    assert "compiled " not in errors
    assert found["verdicts"][0]["piece"] == LAYER_2
    assert found["verdicts"][0]["process"] == "EngineCore_0 (rank_0_0)"


GRAPH = """
class GraphModule(torch.nn.Module):
    def forward(self, L_self_modules_layers_modules_0_modules_up_parameters_weight_: "f32[4, 4]"):
        submod_0 = self.submod_0(l_x_)

    class submod_0(torch.nn.Module):
        def forward(self, l_x_: "f32[s0, 4][4, 1]cpu", s0: "Sym(s0)", l_self_modules_embed_tokens_parameters_weight_: "f32[4, 4]", attended: "f32[4]", l_self_modules_layers_modules_10_modules_self_attn_buffers_scale_: "f32[]"):
            pass

    class submod_1(torch.nn.Module):
        def forward(self, q):
            pass
"""  # noqa: E501


def test_layers_of_a_split_graph(tmp_path: Path) -> None:
    (tmp_path / "computation_graph.py").write_text(GRAPH)
    names = saved_layers.read(tmp_path / "computation_graph.py")
    assert names["submod_0"].layers == ("embed_tokens", "layers.10")
    assert names["submod_0"].inputs == (
        *("x", "s0", "embed_tokens.weight", "attended"),
        "layers.10.self_attn.scale",
    )
    assert names["submod_1"].inputs == ("q",)
    assert saved_layers.read(tmp_path / "none") == {}
