"""What the entries of a cache say of the wrappers in it: `fixtures/entries`."""

from __future__ import annotations

import contextlib
import json
import pickle
import random
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

import rewriter
from artifacts import get
from entries import count
from rewriter.cli import main
from rewriter.core.pickle_values import PickleError
from rewriter.dump.names import SourceLine
from rewriter.instrumentation import probe_check
from rewriter.instrumentation.instrument import instrument_all
from rewriter.model_names.entries.index import EntryIndex, cache_of
from rewriter.model_names.entries.reading import innermost, read_autograd, read_graph
from rewriter.model_names.fragment import fragments
from rewriter.model_names.known import Compilations
from rewriter.model_names.names import of_artifact

ARCHIVES = Path(__file__).parents[2] / "fixtures" / "entries"
PARTS = ("fxgraph", "aotautograd")
KINDS = ("python", "cpp_wrapper")
HEAD = ["line", "kind", "kernel", "reads", "writes", "source", "nodes", "model"]


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of each kind, as torch left it."""
    folder = tmp_path_factory.mktemp("caches")
    for kind in KINDS:
        (archive,) = ARCHIVES.glob(f"*-{kind}.tar.xz")
        with tarfile.open(archive) as packed:
            packed.extractall(folder / kind, filter="data")
    return folder


@pytest.fixture(scope="module")
def forward(caches: Path) -> Path:
    """The forward of the transformer."""
    artifact = rewriter.open(caches / "python").choose(["forward"])
    return max((x.path for x in artifact.wrappers), key=lambda path: path.stat().st_size)


def test_an_entry_is_read(forward: Path) -> None:
    cache = cache_of(forward)
    assert cache is not None
    entry = EntryIndex(cache).of_wrapper(forward.stem)
    assert entry is not None
    assert entry.cache_key == forward.stem
    assert entry.lowered.startswith("class GraphModule(torch.nn.Module):")
    assert "# File: /tmp/models/models.py:" in entry.lowered
    line, frame = entry.line_map[0]
    assert line > 1
    assert (frame.file, frame.function) == ("/tmp/models/models.py", "forward")


def test_forward_and_backward_are_joined(caches: Path) -> None:
    artifact = rewriter.open(caches / "python")
    trained = tuple(one for one in artifact.wrappers if one.graph != "inference")
    artifact = replace(artifact, wrappers=trained)
    names = of_artifact(artifact)
    pairs = {one.path.name: names[one.name].partner for one in artifact.wrappers}
    assert pairs
    assert all(pairs[other] == one for one, other in pairs.items())
    for one in artifact.wrappers:
        if one.graph == "backward":
            about = names[one.name]
            partner = next(x for x in artifact.wrappers if x.path.name == about.partner)
            assert about.graph == names[partner.name].graph
            outputs = partner.located.entries[0].outputs
            assert set(about.saved) <= set(one.located.entries[0].inputs)
            assert about.saved
            assert set(about.saved.values()) <= set(outputs)


@pytest.mark.parametrize("kind", KINDS)
def test_share_of_launches_with_lines_of_the_model(caches: Path, kind: str) -> None:
    """All that torch names lines for. Without entries there are none: torch keeps no entry of
    conditions, loops and frozen weights, and names no line of a module that is compiled alone."""
    total, kept, known = count(caches / kind)
    assert known / kept >= 0.95
    assert known / total >= 0.7


def test_without_entries_there_are_no_lines(forward: Path, tmp_path: Path) -> None:
    shutil.copytree(forward.parent, tmp_path / forward.parent.name)
    assert not of_artifact(rewriter.open(tmp_path))


def test_list_shows_lines_and_partners(forward: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", str(forward), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (about,) = document["wrappers"]
    assert about["model"].startswith("models.py:")
    assert about["partner"].endswith(".py")
    assert (forward.parent.parent / about["partner"][1:3] / about["partner"]).is_file()
    first = document["launches"][0]
    assert first["lines"][0]["file"] == "/tmp/models/models.py"
    assert first["lines"][0]["code"]
    assert all(" = " in node for node in first["computes"])
    assert main(["list", str(forward)]) == 0
    first_line, head, *_ = capsys.readouterr().out.splitlines()
    assert first_line.endswith(f"its backward is {about['partner']}")
    assert head.split() == ["#", *HEAD]
    assert main(["list", str(forward), "--sources"]) == 0
    text = capsys.readouterr().out
    assert f"  models.py:{first['lines'][0]['line']} in " in text
    assert f"    {first['computes'][0]}\n" in text


def test_a_wrapper_elsewhere_has_no_entry(forward: Path, tmp_path: Path) -> None:
    copy = tmp_path / forward.name
    shutil.copy(forward, copy)
    assert cache_of(copy) is None
    assert not of_artifact(rewriter.open(copy))


def test_damaged_entries_leave_launches_unnamed(
    forward: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = tmp_path / "cache"
    shutil.copytree(forward.parent.parent, cache)
    name = str(forward.relative_to(forward.parent.parent))
    for file in (cache / "fxgraph").glob("*/*/*"):
        data = file.read_bytes()
        file.write_bytes(data[: len(data) // 2])
    assert main(["list", str(cache / name)]) == 0
    shown = capsys.readouterr()
    assert "model" not in shown.out.splitlines()[0].split()
    assert "not read: " in shown.err
    for file in (cache / "fxgraph").glob("*/*/*"):
        file.unlink()
    assert main(["list", str(cache / name)]) == 0


def test_an_entry_is_not_loaded(forward: Path, tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> object:
            return (Path.touch, (tmp_path / "called",))

    key = forward.stem
    cache = tmp_path / "cache"
    (cache / key[1:3]).mkdir(parents=True)
    shutil.copy(forward, cache / key[1:3])
    (cache / "fxgraph" / "aa" / "faa").mkdir(parents=True)
    content = pickle.dumps({"cache_key": key, "more": Hostile()}, protocol=4)
    (cache / "fxgraph" / "aa" / "faa" / "entry").write_bytes(content)
    assert not of_artifact(rewriter.open(cache / key[1:3] / forward.name))
    assert read_graph(content) is None
    assert read_autograd(content) is None
    assert not (tmp_path / "called").exists()
    with pytest.raises(PickleError):
        read_graph(content[:-3])


@pytest.mark.parametrize(
    ("trace", "frame"),
    [
        ("", None),
        ("text", None),
        (
            '  File "/a.py", line 3, in f\n    x = g(y)\n  File "/b.py", line 7, in g\n'
            "    return y.log()\n           ^^^^^^^\n",
            SourceLine("/b.py", 7, "g", "return y.log()"),
        ),
    ],
)
def test_the_innermost_frame(trace: str, frame: SourceLine | None) -> None:
    assert innermost(trace) == frame


def test_a_large_cache_is_searched_by_the_beginnings_of_its_entries(
    forward: Path, tmp_path: Path
) -> None:
    """One wrapper is looked for: of 300 other entries the first bytes are read, and no more."""
    cache = tmp_path / "cache"
    shutil.copytree(forward.parent.parent, cache)
    (source,) = list((cache / "fxgraph").glob("*/*/*"))[:1]
    for number in range(300):
        folder = cache / "fxgraph" / "zz" / f"f{number}"
        folder.mkdir(parents=True)
        (folder / "entry").hardlink_to(source)
    index = EntryIndex(cache)
    read: list[Path] = []
    plain = index._bytes

    def counted(file: Path) -> bytes | None:
        read.append(file)
        return plain(file)

    index._bytes = counted  # type: ignore[method-assign]
    entry = index.of_wrapper(forward.stem)
    assert entry is not None
    assert len(read) == 1


def guarded(caches: Path, kind: str) -> Path:
    """A wrapper for several sizes, on which its entry has conditions."""
    artifact = rewriter.open(caches / kind)
    return next(x.path for x in artifact.wrappers if b"s77 = arg2_1" in x.source)


def test_the_probe_inputs_has_the_guards_of_the_entry(caches: Path, tmp_path: Path) -> None:
    path = guarded(caches, "python")
    result = rewriter.instrument(path, rewriter.select("inputs"))
    assert b"'if 2<=s77'" in result.source
    assert not result.plan.unchecked
    copy = tmp_path / path.name
    copy.write_bytes(result.source)
    assert main(["strip", "--check", str(copy)]) == 1
    check = probe_check.check(rewriter.open(copy).only)
    assert check is not None
    assert check.state == "verified"
    assert rewriter.strip(copy).source == path.read_bytes()
    copy.write_bytes(result.source.replace(b"2%3C=s77", b"2%3C=s77;x()"))
    check = probe_check.check(rewriter.open(copy).only)
    assert check is not None
    assert check.state == "changed"
    assert b"'if " not in rewriter.instrument(path, rewriter.select("print")).source


def test_the_same_in_cpp(caches: Path) -> None:
    artifact, compilations = rewriter.open(caches / "cpp_wrapper"), Compilations()
    wrapper = next(x for x in artifact.wrappers if compilations.guards(x) == "2 <= L['t0']")
    result = rewriter.instrument(wrapper.path, rewriter.select("inputs"))
    assert b"; if 2<=s" in result.source


def test_the_list_of_a_cache_joins_forward_and_backward(
    caches: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cache", "list", "--dir", str(caches / "python"), "--json"]) == 0
    wrappers = json.loads(capsys.readouterr().out)["wrappers"]
    pair = [one for one in wrappers if one["partner"]]
    assert {one["graph"] for one in pair} == {"forward", "backward"}
    assert {one["model"] for one in pair} == {"models.py:112"}
    assert {one["partner"] for one in pair} == {Path(one["wrapper"]).name for one in pair}
    assert main(["cache", "list", "--dir", str(caches / "python")]) == 0
    head = capsys.readouterr().out.splitlines()[0]
    assert head.split()[-4:] == ["state", "model", "trained", "with"]


def test_kernels_of_a_gpu_name_their_nodes() -> None:
    """The comment above a kernel has them, where no cache is there."""
    wrapper = rewriter.open(get("cuda-torch2.11/gpt_train").path).only
    names = of_artifact(rewriter.open(wrapper.path))[wrapper.name]
    triton = [one for one in wrapper.launches if one.kind == "triton"]
    first = {one.kernel: one.index for one in reversed(triton)}
    assert set(names.computes) == set(first.values())
    assert names.computes[triton[0].index]
    assert not any("%" in node for nodes in names.computes.values() for node in nodes)


_ADD = "call_function[target=torch.ops.aten.add.Tensor](args = (%arg0_1, 1), kwargs = {})"
_SUM = "call_function[target=torch.ops.aten.sum.dim_IntList](args = (%add, [0]), kwargs = {d: 1})"
_EXP = "call_function[target=torch.ops.aten.exp.default](args = (%add,), kwargs = {})"
FRAGMENT = f"""
# Graph fragment:
#   %arg0_1 : Tensor "f32[4]" = PlaceHolder[target=arg0_1]
#   %add : [num_users=1] = {_ADD}
#   %sum_1 : Tensor = {_SUM}
#   %exp : [num_users=1] = {_EXP}
#   return %sum_1
triton_0 = async_compile.triton('triton_0', '')
"""


def test_a_fragment_is_read() -> None:
    nodes = {
        "add": "aten.add.Tensor(arg0_1, 1)",
        "sum_1": "aten.sum.dim_IntList(add, [0], d=1)",
        "exp": "aten.exp.default(add)",
    }
    for text in (FRAGMENT, FRAGMENT.replace("\n", "\r\n")):
        (graph,) = fragments(text).values()
        assert {node.name: node.call for node in graph.nodes.values()} == nodes
    assert fragments(FRAGMENT.replace("triton_0 =", "triton_0 +")) == {}
    assert not fragments(FRAGMENT.replace("(args", "args"))["triton_0"].nodes
    assert fragments("# Graph fragment:\n") == {}


def test_without_the_graph_of_inductor_that_of_autograd_names_lines(
    forward: Path, tmp_path: Path
) -> None:
    """As of a torch that keeps fewer things in an entry."""
    cache = tmp_path / "cache"
    shutil.copytree(forward.parent.parent, cache)
    for file in (cache / "fxgraph").glob("*/*/*"):
        data = file.read_bytes()
        for key in (b"inductor_post_grad_graph_str", b"runnable_graph_str", b"cache_linemap"):
            data = data.replace(key, b"x" * len(key))
        file.write_bytes(data)
    path = cache / forward.relative_to(forward.parent.parent)
    names = of_artifact(rewriter.open(path))[forward.name]
    launches = rewriter.open(path).launches
    assert names.partner
    assert len(names.lines) >= 0.6 * len(launches)


def test_a_container_has_the_lines_of_its_graphs() -> None:
    path = ARCHIVES.parent / "containers" / "mega-cache.bin"
    artifact = rewriter.open(path)
    names = of_artifact(artifact)
    by_graph = {one.graph: names[one.name] for one in artifact.wrappers}
    assert by_graph["forward"].graph == by_graph["backward"].graph != ""
    for one in artifact.wrappers:
        about = names[one.name]
        assert set(about.lines) == {launch.index for launch in one.launches}
        assert about.partner in names
    assert by_graph["backward"].saved


def test_flipped_bytes_of_an_entry_are_an_error_or_an_entry(forward: Path) -> None:
    cache = forward.parent.parent
    chance = random.Random(0)
    files = [next((cache / name).glob("*/*/*" if name == "fxgraph" else "*/*")) for name in PARTS]
    for number in range(60):
        data = bytearray(files[number % 2].read_bytes())
        for _ in range(3):
            data[chance.randrange(20_000)] = chance.randrange(256)
        for read in (read_graph, read_autograd):
            with contextlib.suppress(PickleError):
                read(bytes(data))


def test_a_container_has_the_guards_of_its_graphs(caches: Path) -> None:
    """The entry of a graph is a container itself."""
    files = (caches / "python" / "fxgraph").glob("*/*/*")
    guarded_entry = next(x for x in files if b"2 <= L['t0']" in x.read_bytes())
    artifact = rewriter.open(guarded_entry)
    (wrapper,) = artifact.wrappers
    making = instrument_all([wrapper], rewriter.select("inputs"), [""])
    (made,) = making
    assert b"'if 2<=s77'" in made().source
