"""The pieces of a model that wrappers are for: by the files that processes read."""

from __future__ import annotations

from pathlib import Path

from container_files import data_of
from rewriter.artifact.containers.opening import container_in
from rewriter.dump.processes import PieceOfModel, ProcessNames
from rewriter.execution.hook import naming
from rewriter.execution.hook.server import Process

GRAPH = """
    class submod_0(torch.nn.Module):
        def forward(self, l_x_: "f32[8, 4]", l_self_modules_layers_modules_{}_parameters_weight_):
            pass

    class submod_2(torch.nn.Module):
        def forward(self, x_1: "f32[8, 4]", l_self_modules_layers_modules_{}_parameters_weight_):
            pass
"""
SIZES = "(1, 8192)"


def names_of(path: Path, name: str = "EngineCore") -> ProcessNames:
    """What is known of a process that read a file, the wrapper in it being called W."""
    artifact = container_in(path, path.read_bytes())
    assert artifact is not None
    stored = artifact.wrappers[0].stored
    assert stored is not None
    return naming.of_processes({7: Process(7, name, (), (path,))}, {stored.key: "W"})[7]


def test_the_model_of_vllm(tmp_path: Path) -> None:
    """By its own code, and by the text of the graph where there is one of this rank."""
    path = tmp_path / "torch_compile_cache/torch_aot_compile/ab12/rank_1_0/model"
    path.parent.mkdir(parents=True)
    path.write_bytes(data_of("vllm-model"))
    found = names_of(path)
    assert str(found) == "EngineCore (rank_1_0)"
    assert found.pieces["W"] == (
        PieceOfModel("submod_0", SIZES, ("layers.0",)),
        PieceOfModel("submod_2", SIZES, ("layers.1",)),
    )
    for number, (layers, hash_) in enumerate([((0, 1), "aa"), ((0, 1), "bb"), ((4, 5), "cc")]):
        graph = tmp_path / f"torch_compile_cache/{hash_}/rank_1_0/backbone/computation_graph.py"
        graph.parent.mkdir(parents=True)
        graph.write_text(GRAPH.format(*layers))
        inputs = [piece.inputs for piece in names_of(path).pieces["W"]]
        # Of two models nobody knows which one it is.
        known = [("x", "layers.0.weight"), ("x_1", "layers.1.weight")]
        assert inputs == (known if number < 2 else [(), ()])


def test_turns_and_sizes() -> None:
    """The calls of a wrapper go round the pieces that it is for."""
    one, two = PieceOfModel("submod_2", SIZES, ("layers.1",)), PieceOfModel("submod_10", SIZES)
    process = ProcessNames(pieces={"W": naming._in_order([two, one])})
    assert process.pieces["W"] == (one, two)
    assert [process.piece("W", turn) for turn in range(3)] == [one, two, one]
    assert process.piece("W", None) is None
    assert process.words("W", None) == "one of 2 pieces of the model with this wrapper"
    assert process.words("W", 1).startswith("submod_10, sizes 1 to 8192, by its turn among 2")
    assert process.words("V", 0) == ""
    # Compiled for two sizes, and the texts were the same.
    assert naming._in_order([one, PieceOfModel("submod_2", "(16)", ("layers.1",))]) == (
        PieceOfModel("submod_2", "", ("layers.1",)),
    )


def test_what_is_no_container_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"\x80\x04 no pickle")
    process = Process(7, "", (), (tmp_path / "weights.bin", tmp_path / "none"))
    assert naming.of_processes({7: process}, {"k": "W"}) == {}
