"""Files in which torch keeps compiled models: what is in them, and the same file again."""

from __future__ import annotations

import base64
import pickle
from pathlib import Path

import pytest

from container_files import CHECKED, CONTAINERS, FORMS, data_of, hostile, with_checksum
from rewriter.artifact.containers.opening import container_in, read_contents
from rewriter.artifact.opening import open_artifact
from rewriter.artifact.types import Artifact
from rewriter.core.errors import RewriterError
from rewriter.core.pickle_strings import splice

PATH = Path("container")


def opened(data: bytes) -> Artifact:
    artifact = container_in(PATH, data)
    assert artifact is not None
    return artifact


@pytest.mark.parametrize("name", FORMS)
def test_forms_and_their_wrappers(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data_of(name))
    artifact = open_artifact(tmp_path / name)
    form, names = FORMS[name]
    assert artifact.form.name == form
    assert [wrapper.name for wrapper in artifact.wrappers] == names
    for wrapper in artifact.wrappers:
        assert wrapper.launches
        assert not wrapper.unrecognised
        assert wrapper.inside == tmp_path / name
        assert wrapper.stored.key[0] == "c"


@pytest.mark.parametrize("name", FORMS)
def test_the_same_texts_give_the_same_file(name: str) -> None:
    data = data_of(name)
    contents = read_contents(data)
    assert contents is not None
    assert contents.splice({}) == data
    texts: dict[int, str | bytes] = {}
    for wrapper in opened(data).wrappers:
        texts |= {place.source: wrapper.source for place in wrapper.stored.places}
    assert contents.splice(texts) == data
    longer = contents.splice(
        {at: b"#" * 70_000 + b"\n" + text.encode() for at, text in _plain(texts)}
    )
    assert len(longer) > len(data) + 70_000 * len(texts)
    assert [one.source[:1] for one in opened(longer).wrappers] == [b"#"] * len(FORMS[name][1])


def _plain(texts: dict[int, str | bytes]) -> list[tuple[int, str]]:
    return [(at, text if isinstance(text, str) else text.decode()) for at, text in texts.items()]


def test_pieces_of_a_model_that_are_the_same_are_one_wrapper() -> None:
    artifact = opened(data_of("vllm-model"))
    assert artifact.only.stored.submodules == ("submod_0 (1, 8192)", "submod_2 (1, 8192)")
    assert artifact.only.stored.layers == ("layers.0", "layers.1")
    for name in ("submod_2", "submod_2 (1, 8192)", "layers.1", "inference", "submod_0/*"):
        assert artifact.choose([name]).wrappers == artifact.wrappers
    with pytest.raises(RewriterError, match="matches nothing"):
        artifact.choose(["submod_1"])


def test_a_wrapper_in_several_places_is_one() -> None:
    entry = data_of("fx-graph.entry")
    artifact = opened(pickle.dumps([entry, entry[:], bytes(bytearray(entry))]))
    assert len(artifact.only.stored.places) == 2  # the first two are one object, kept once


def test_graphs_are_in_folders_where_there_are_several() -> None:
    data = pickle.dumps(
        {"compiled_fn": [data_of("aot-autograd-bundled.entry"), data_of("fx-graph.entry")]}
    )
    assert [one.name for one in opened(data).wrappers] == [
        "graph_0/forward.py",
        "graph_0/backward.py",
        "graph_1/inference.py",
    ]


def _item(data: bytes) -> bytes:
    return len(data).to_bytes(8, "big") + data


def _mega_cache(entries: dict[str, dict[str, bytes]]) -> bytes:
    """A mega-cache file, as torch/compiler/_cache.py writes it."""
    body = (1).to_bytes(8, "big")
    for type_, by_key in entries.items():
        body += _item(base64.b64encode(type_.encode())) + len(by_key).to_bytes(8, "big")
        for key, content in by_key.items():
            body += _item(base64.b64encode(key.encode())) + _item(content)
    return with_checksum(body)


def test_graphs_of_a_mega_cache_are_those_of_autograd() -> None:
    entry = data_of("fx-graph.entry")
    (wrapper,) = opened(entry).wrappers
    at = wrapper.stored.places[0].source
    others = [splice(entry, {at: b"# %d\n" % number + wrapper.source}) for number in range(3)]
    data = _mega_cache(
        {
            "inductor": dict(zip(("fa", "fb", "fc"), others, strict=True)),
            "autotune": {"t": b"no pickle"},
            "aot_autograd": {"a1": pickle.dumps(["fc"]), "a2": pickle.dumps({"fw": "fa"})},
        }
    )
    artifact = opened(data)
    names = {one.name: one.source[:3] for one in artifact.wrappers}
    assert names == {
        "graph_0/inference.py": b"# 2",
        "graph_1/inference.py": b"# 0",
        "graph_2/inference.py": b"# 1",
    }
    assert artifact.wrappers[0].path.name == "graph_0-inference.py"


def test_an_entry_that_only_refers_to_others_says_to_which() -> None:
    with pytest.raises(RewriterError, match="of Inductor's cache: fxgraph") as caught:
        open_artifact(CONTAINERS / "aot-autograd.entry")
    assert caught.value.slug == "no-artifacts"


@pytest.mark.parametrize("name", CHECKED)
def test_a_flipped_byte_of_what_has_a_checksum_is_an_error(name: str) -> None:
    data = bytearray(data_of(name))
    for at in (*range(100, len(data), 5_003), len(data) - 1):
        data[at] ^= 1
        with pytest.raises(RewriterError, match="checksum") as caught:
            opened(bytes(data))
        assert caught.value.slug == "damaged-container"
        data[at] ^= 1


@pytest.mark.parametrize("name", CHECKED)
@pytest.mark.parametrize("cut", [13, 40, 400, -1])
def test_a_list_that_ends_early_is_an_error_with_a_checksum_too(
    name: str, cut: int, tmp_path: Path
) -> None:
    path, body = tmp_path / name, data_of(name)[4:]
    path.write_bytes(with_checksum(body[:cut]))
    with pytest.raises(RewriterError) as caught:
        open_artifact(path)
    assert caught.value.slug in ("damaged-container", "damaged-pickle", "binary-file")


@pytest.mark.parametrize("name", ["standalone-aot.bin", "any.entry"])
def test_what_would_run_a_command_is_refused_and_runs_nothing(name: str, tmp_path: Path) -> None:
    canary = tmp_path / "executed"
    with pytest.raises(RewriterError, match="system when it is loaded") as caught:
        opened(hostile(f"touch {canary}", name))
    assert caught.value.slug == "unsafe-pickle"
    assert not canary.exists()


@pytest.mark.parametrize(
    "body",
    [
        b"ctorch\nos.system\n",
        b"cimportlib\nimport_module\n",
        b"ccommands\ngetoutput\n",  # what protocol 2 calls subprocess.getoutput
    ],
)
def test_detours_to_a_command_are_refused(body: bytes) -> None:
    data = b"\x80\x02(" + body + _blob(data_of("fx-graph.entry")) + b"l."
    with pytest.raises(RewriterError) as caught:
        opened(data)
    assert caught.value.slug == "unsafe-pickle"


@pytest.mark.parametrize("tail", [b".junk", b".junk.", b"0\x8bX."])
@pytest.mark.parametrize("inner", [False, True])
def test_commands_before_the_damage_of_nested_bytes_are_refused(tail: bytes, inner: bool) -> None:
    """Python reads no further than the end of a pickle, and runs what stands before damage."""
    evil = b"\x80\x04cos\nsystem\n"
    damaged = b"\x80\x04" + _blob(evil + b".") + tail if inner else evil + tail
    data = b"\x80\x04(" + _blob(damaged) + _blob(data_of("fx-graph.entry")) + b"l."
    with pytest.raises(RewriterError) as caught:
        opened(data)
    assert caught.value.slug == "unsafe-pickle"


def _blob(data: bytes) -> bytes:
    return b"B" + len(data).to_bytes(4, "little") + data


def test_other_pickles_are_no_artifacts() -> None:
    with pytest.raises(RewriterError, match="a pickle") as caught:
        opened(pickle.dumps({"source_code": "print()", "cache_key": "c"}))
    assert caught.value.slug == "no-artifacts"
