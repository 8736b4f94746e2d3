"""Directories that torch or vLLM loads as a whole: names, copies, and what is left alone."""

from __future__ import annotations

import json
import pprint
import shutil
from pathlib import Path
from typing import Any

import pytest

from artifacts import get
from fuzzing import snapshot
from rewriter.artifact.opening import open_artifact
from rewriter.artifact.saved.index import pieces
from rewriter.artifact.saved.opening import SavedDirectory
from rewriter.cli import main

CONTAINERS = Path(__file__).parents[2] / "fixtures" / "containers"
WRAPPER = get("cpu-torch2.13/mlp").path.read_bytes()
OTHER = get("cpu-torch2.13/conv").path.read_bytes()
PAIR = CONTAINERS.parent / "precompile" / "cpu-torch2.15"
KEY = "cb" + "a" * 50
GRAPH = """
class GraphModule(torch.nn.Module):
    def forward(self, x):
        submod_0 = self.submod_0(x)
        submod_1 = self.submod_1(submod_0)
        submod_2 = self.submod_2(submod_1)
        submod_3 = self.submod_3(submod_2)
        submod_4 = self.submod_4(submod_3)
"""


def unpacked(folder: Path, source: bytes = WRAPPER) -> Path:
    """An unpacked artifact of `standalone_compile`, as far as a reader sees."""
    for name in ("aotautograd/a1/entry", "fxgraph/b2/fb2/entry"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(b"\x80\x04N.")
    (folder / "ba").mkdir()
    (folder / "ba" / f"{KEY}.py").write_bytes(source)
    return folder


def index(folder: Path, entries: dict[Any, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "vllm_compile_cache.py"
    path.write_text(pprint.pformat(entries), encoding="utf-8")
    return path


def names(path: Path) -> list[str]:
    return [one.name for one in open_artifact(path).wrappers]


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    return unpacked(tmp_path / "artifact")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache directory of vLLM's with two ranks, three pieces, and one that has two sizes."""
    for rank in ("rank_0_0", "rank_1_0"):
        folder = tmp_path / "cache" / rank / "backbone"
        entries = {}
        for piece, sizes in ((0, (1, 8192)), (1, (1, 8192)), (1, (4, 4)), (2, (1, 8192))):
            name = f"artifact_compile_range_{sizes[0]}_{sizes[1]}_subgraph_{piece}"
            unpacked(folder / name, OTHER if piece == 1 else WRAPPER)
            handle = name, f"/root/.cache/vllm/{rank}/backbone/{name}"
            entries[sizes, piece, "inductor_standalone"] = handle
        index(folder, entries)
        (folder / "computation_graph.py").write_text(GRAPH, encoding="utf-8")
    return tmp_path / "cache"


def test_an_artifact_needs_a_place_for_all_of_it(
    artifact: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(artifact)
    assert main(["instrument", str(artifact)]) == 2
    assert "error[no-target]" in capsys.readouterr().err
    assert main(["instrument", str(artifact), "-o", str(artifact / "copy")]) == 2
    assert "error[unwritable]" in capsys.readouterr().err
    assert snapshot(artifact) == before


def test_a_copy_has_all_files(artifact: Path, tmp_path: Path) -> None:
    probed, back = tmp_path / "new" / "probed", tmp_path / "back"
    assert main(["instrument", str(artifact), "-o", str(probed)]) == 0
    assert main(["strip", str(probed), "--check"]) == 1
    before, after = snapshot(artifact), snapshot(probed)
    assert {name for name in before if before[name] != after.pop(name)} == {f"ba/{KEY}.py"}
    assert not after
    assert main(["strip", str(probed), "-o", str(back)]) == 0
    assert snapshot(back) == before


def test_a_copy_takes_the_place_of_nothing(artifact: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    for more in ([], ["--overwrite"]):
        assert main(["instrument", str(artifact), "-o", str(there), *more]) == 2
    assert not list(there.iterdir())


def test_in_place_nothing_is_put_beside_the_entry(artifact: Path) -> None:
    before = snapshot(artifact)
    assert main(["instrument", str(artifact), "--in-place"]) == 0
    assert {name for name in snapshot(artifact) if name not in before} == {f"ba/{KEY}.py.orig"}
    assert main(["instrument", str(artifact), "-o", str(artifact.with_name("copy"))]) == 2
    assert main(["strip", str(artifact), "-o", str(artifact.with_name("copy"))]) == 0
    assert snapshot(artifact.with_name("copy")) == before
    assert main(["strip", str(artifact), "--in-place"]) == 0
    assert snapshot(artifact) == before


def test_a_cache_of_many_is_no_artifact(artifact: Path) -> None:
    (artifact / "aotautograd" / "a2").mkdir()
    assert not isinstance(open_artifact(artifact), SavedDirectory)


def test_wrappers_of_vllm_have_the_names_of_pieces(cache: Path) -> None:
    expected = ["submod_0/1-8192", "submod_2/1-8192", "submod_2/4-4", "submod_4/1-8192"]
    assert names(cache / "rank_0_0") == [f"backbone/{one}/inference.py" for one in expected]
    assert sorted(names(cache)) == [
        f"{rank}/backbone/{one}/inference.py"
        for rank in ("rank_0_0", "rank_1_0")
        for one in expected
    ]


def test_vllm_in_place_and_back(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = snapshot(cache)
    assert main(["instrument", str(cache), "--wrapper", "*submod_2*", "--in-place"]) == 0
    changed = {name for name, data in snapshot(cache).items() if before.get(name) != data}
    assert {name.removesuffix(".orig") for name in changed} == {
        f"{rank}/backbone/artifact_compile_range_{sizes}_subgraph_1/ba/{KEY}.py"
        for rank in ("rank_0_0", "rank_1_0")
        for sizes in ("1_8192", "4_4")
    }
    capsys.readouterr()
    assert main(["list", str(cache), "--wrapper", "rank_0_0/*/submod_2/4-4/*", "--json"]) == 0
    (wrapper,) = json.loads(capsys.readouterr().out)["wrappers"]
    assert wrapper["file"].endswith(f"rank_0_0/backbone/{sorted(changed)[2].split('/', 2)[2]}")
    assert main(["strip", str(cache), "--in-place"]) == 0
    assert snapshot(cache) == before


def test_a_copy_of_vllm_says_where_it_belongs(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["instrument", str(cache), "-o", str(tmp_path / "copy")]) == 0
    assert "absolute paths" in capsys.readouterr().err
    assert len(snapshot(tmp_path / "copy")) == len(snapshot(cache))


def test_a_copy_of_vllm_has_the_cache_of_a_pair_beside_its_code(tmp_path: Path) -> None:
    """What a piece is called is no place: both files of the pair keep theirs."""
    folder = tmp_path / "cache"
    (folder / "inductor_cache" / "ba").mkdir(parents=True)
    for end in (".py", ".cache"):
        made = (PAIR / "m").with_suffix(end)
        shutil.copy(made, folder / "inductor_cache" / "ba" / made.name)
    shutil.copy(CONTAINERS / "standalone.bin", folder / "art0")
    handles = {
        (None, 2, "inductor"): ("k", "/x/inductor_cache/ba/m.py"),
        ((1, 8192), 0, "inductor"): ("art0", "/x/art0"),
    }
    index(folder, handles)
    before = snapshot(folder)
    assert main(["instrument", str(folder), "-o", str(tmp_path / "copy")]) == 0
    after = snapshot(tmp_path / "copy")
    assert after.keys() == before.keys()
    changed = {name for name in before if after[name] != before[name]}
    assert changed == {"art0", "inductor_cache/ba/m.py", "inductor_cache/ba/m.cache"}


def test_an_artifact_that_several_pieces_have_is_listed_once(tmp_path: Path) -> None:
    folder = tmp_path / "rank_0_0" / "backbone"
    unpacked(folder / "shared")
    handles = {
        (None, piece, "inductor_standalone"): {"graph_handle": ("shared", "/old/place/shared")}
        for piece in range(3)
    }
    (one,) = pieces(index(folder, handles))
    assert one.names == ("subgraph_0", "subgraph_1", "subgraph_2")
    assert names(tmp_path) == ["rank_0_0/backbone/subgraph_0+2/inference.py"]


def test_wrappers_in_the_cache_of_a_rank(tmp_path: Path) -> None:
    folder = tmp_path / "rank_0_0" / "backbone"
    for place in ("rank_0_0/inductor_cache/ba", "rank_0_0/inductor_cache/zz"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / f"{KEY}.py").write_bytes(WRAPPER)
    handle = "fb2", f"/old/rank_0_0/inductor_cache/ba/{KEY}.py"
    index(folder, {(16, 0, "inductor"): handle})
    assert names(tmp_path) == [
        "rank_0_0/backbone/subgraph_0/16/inference.py",
        f"rank_0_0/inductor_cache/zz/{KEY}.py",
    ]


@pytest.mark.parametrize(
    "text", ["", "{", "__import__('os').system('touch executed')", "[1]", "{1: 2}", "(" * 100_000]
)
def test_an_index_that_is_none_is_named(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "rank_0_0"
    name = "artifact_compile_range_1_8192_subgraph_0"
    unpacked(folder / name)
    index(folder, {}).write_text(text, encoding="utf-8")
    assert main(["list", str(tmp_path)]) == 0
    assert "an index that cannot be read" in capsys.readouterr().err
    assert names(tmp_path) == [f"rank_0_0/{name}/ba/{KEY}.py"]
    assert not (tmp_path / "executed").exists()


def test_paths_of_an_index_lead_nowhere_else(tmp_path: Path) -> None:
    outside = tmp_path / "outside.py"
    shutil.copyfile(get("cpu-torch2.13/mlp").path, outside)
    folder = tmp_path / "cache" / "rank_0_0"
    unpacked(folder / "artifact_shape_None_subgraph_3")
    index(folder, {(None, 0, "inductor"): ("f", "../outside.py"), (None, 1, "i"): ("..", "/")})
    (one,) = pieces(folder / "vllm_compile_cache.py")
    assert one.names == ("subgraph_3",)


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    """A cache directory of vLLM's with an artifact in one file, and a model ahead of time."""
    folder = tmp_path / "cache" / "hash" / "rank_0_0" / "backbone"
    name = "artifact_compile_range_1_8192_subgraph_0"
    index(folder, {((1, 8192), 0, "inductor_standalone"): (name, f"/old/{name}")})
    shutil.copyfile(CONTAINERS / "standalone.bin", folder / name)
    ahead = tmp_path / "cache" / "torch_aot_compile" / "hash" / "rank_0_0"
    ahead.mkdir(parents=True)
    shutil.copyfile(CONTAINERS / "vllm-model", ahead / "model")
    return tmp_path / "cache"


def test_artifacts_in_one_file(binary: Path, tmp_path: Path) -> None:
    before = snapshot(binary)
    assert names(binary) == [
        "hash/rank_0_0/backbone/subgraph_0/1-8192/inference.py",
        "torch_aot_compile/hash/rank_0_0/submod_0/1-8192/inference.py",
    ]
    probed, back = tmp_path / "probed", tmp_path / "back"
    assert main(["instrument", str(binary), "-o", str(probed), "--probe", "print"]) == 0
    assert names(probed) == names(binary)
    after = snapshot(probed)
    assert {name.rpartition("/")[2] for name in before if before[name] != after[name]} == {
        "artifact_compile_range_1_8192_subgraph_0",
        "model",
    }
    assert all(one.probes is not None for one in open_artifact(probed).wrappers)
    assert main(["strip", str(probed), "-o", str(back)]) == 0
    assert snapshot(back) == before


def test_artifacts_in_one_file_in_place(binary: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = snapshot(binary)
    assert main(["instrument", str(binary), "--in-place", "--probe", "print"]) == 0
    assert "2 wrappers changed in place, 2 originals kept" in capsys.readouterr().err
    kept = {name for name in snapshot(binary) if name.endswith(".orig")}
    assert all(snapshot(binary)[name] == before[name.removesuffix(".orig")] for name in kept)
    assert main(["diff", str(binary), str(binary)]) == 0
    assert main(["strip", str(binary), "--in-place", "--wrapper", "*submod_0*"]) == 0
    assert len(snapshot(binary)) == len(before) + 1
    assert main(["strip", str(binary), "--in-place"]) == 0
    assert snapshot(binary) == before


def test_a_damaged_artifact_is_named(binary: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = next(binary.rglob("model"))
    model.write_bytes(model.read_bytes()[:-100])
    assert main(["list", str(binary)]) == 0
    assert "not read: torch_aot_compile/hash/rank_0_0" in capsys.readouterr().err
    assert main(["instrument", str(binary), "--in-place"]) == 2
    assert not list(binary.rglob("*.orig"))
