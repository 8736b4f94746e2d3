"""`list`, `instrument`, `strip` and `diff` of containers: every byte comes back."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from container_files import CHECKED, FORMS, data_of, hostile
from rewriter.artifact.containers.opening import key_of
from rewriter.artifact.opening import open_artifact
from rewriter.cli import main
from rewriter.core.pickle_strings import splice


def _write(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_bytes(data_of(name))
    return path


@pytest.mark.parametrize("name", FORMS)
def test_strip_gives_back_every_byte(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _write(tmp_path, name)
    probed, back = tmp_path / "probed", tmp_path / "back"
    options = ["--standalone"] if name in ("standalone.bin", "vllm-model") else []
    probes = ("print", "save") if options else ("hash", "print")
    asked = ["instrument", str(path), "--probe", ",".join(probes), *options]
    assert main([*asked, "-o", str(probed)]) == 0
    before, after = open_artifact(path), open_artifact(probed)
    assert [one.name for one in after.wrappers] == FORMS[name][1]
    for plain, one in zip(before.wrappers, after.wrappers, strict=True):
        assert one.probes is not None
        assert one.probes.probes == probes
        assert one.stored.key == key_of(one.source) != plain.stored.key
        assert one.stored.submodules == plain.stored.submodules
    assert main(["strip", str(probed), "--check-probes"]) == 0
    assert main(["diff", str(path), str(probed)]) == 0
    assert main(["strip", str(probed), "-o", str(back)]) == 0
    assert back.read_bytes() == data_of(name)
    assert main(["strip", str(back), "--check"]) == 0
    capsys.readouterr()


def test_in_place_keeps_the_original_and_other_probes_keep_the_key(tmp_path: Path) -> None:
    path = _write(tmp_path, "vllm-model")
    original = path.read_bytes()
    assert main(["instrument", str(path), "--in-place", "--probe", "print"]) == 0
    first = path.read_bytes()
    assert (tmp_path / "vllm-model.orig").read_bytes() == original
    assert main(["instrument", str(path), "--in-place", "--probe", "hash"]) == 2
    assert path.read_bytes() == first
    assert main(["instrument", str(path), "--in-place", "--probe", "hash", "--replace"]) == 0
    assert path.read_bytes() not in (first, original)
    assert main(["strip", str(path), "--in-place"]) == 0
    assert path.read_bytes() == original
    assert [one.name for one in tmp_path.iterdir()] == ["vllm-model"]


def test_chosen_wrappers_alone_get_probes(tmp_path: Path) -> None:
    path = _write(tmp_path, "mega-cache.bin")
    assert main(["instrument", str(path), "--wrapper", "backward", "--in-place"]) == 0
    assert main(["instrument", str(path), "--wrapper", "forward", "--in-place"]) == 0
    assert [bool(one.probes) for one in open_artifact(path).wrappers] == [True, True]
    assert (tmp_path / "mega-cache.bin.orig").read_bytes() == data_of("mega-cache.bin")
    assert main(["strip", str(path), "--wrapper", "forward", "--in-place"]) == 0
    assert [bool(one.probes) for one in open_artifact(path).wrappers] == [False, True]
    assert main(["strip", str(path), "--in-place"]) == 0
    assert path.read_bytes() == data_of("mega-cache.bin")


def test_wrappers_without_a_launch_stay_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _write(tmp_path, "mega-cache.bin")
    assert main(["instrument", str(path), "--in-place", "--kernels", "*relu_sum_threshold*"]) == 0
    assert "1 wrapper without such a launch" in capsys.readouterr().err
    assert [bool(one.probes) for one in open_artifact(path).wrappers] == [True, False]
    assert main(["strip", str(path), "--in-place"]) == 0
    assert main(["instrument", str(path), "--in-place", "--kernels", "nothing*"]) == 2
    assert path.read_bytes() == data_of("mega-cache.bin")


@pytest.mark.parametrize("folder", ["aotautograd/akey", "fxgraph/ke/fkey"])
def test_nothing_is_written_beside_an_entry_of_a_cache(folder: str, tmp_path: Path) -> None:
    entry = tmp_path / folder / "entry"
    entry.parent.mkdir(parents=True)
    entry.write_bytes(data_of("fx-graph.entry"))
    elsewhere, beside = str(tmp_path / "probed"), str(entry.with_name("probed"))
    for options in ([], ["--in-place"], ["-o", beside]):
        assert main(["instrument", str(entry), *options]) == 2
    assert [one.name for one in entry.parent.iterdir()] == ["entry"]
    assert main(["instrument", str(entry), "--check"]) == 1
    assert main(["instrument", str(entry), "-o", elsewhere]) == 0


def test_probes_that_torch_saved_from_its_cache_come_out(tmp_path: Path) -> None:
    entry = _write(tmp_path, "fx-graph.entry")
    (wrapper,) = open_artifact(entry).wrappers
    module = tmp_path / f"{wrapper.stored.key}.py"
    module.write_bytes(wrapper.source)
    assert main(["instrument", str(module), "--in-place", "--probe", "print"]) == 0
    saved = splice(entry.read_bytes(), {wrapper.stored.places[0].source: module.read_bytes()})
    entry.write_bytes(saved)
    again = tmp_path / "again"
    assert main(["instrument", str(entry), "--replace", "--probe", "hash", "-o", str(again)]) == 0
    for path in (entry, again):
        back = tmp_path / "back"
        assert main(["strip", str(path), "-o", str(back), "--overwrite"]) == 0
        assert back.read_bytes() == data_of("fx-graph.entry")


def test_default_names(tmp_path: Path) -> None:
    path = _write(tmp_path, "vllm-model")
    assert main(["instrument", str(path)]) == 0
    probed = tmp_path / "vllm-model.instrumented"
    assert b"'label': 'submod_0 (1, 8192) +1'" in probed.read_bytes()  # what prints call it
    assert main(["instrument", str(probed), "--replace", "--probe", "hash", "--overwrite"]) == 0
    path.unlink()
    assert main(["strip", str(probed)]) == 0
    assert path.read_bytes() == data_of("vllm-model")


def test_what_list_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _write(tmp_path, "vllm-model")
    assert main(["list", str(path)]) == 0
    head, *_ = capsys.readouterr().out.splitlines()
    assert head.startswith("submod_0/1-8192/inference.py: ")
    assert head.endswith("submod_0 (1, 8192), submod_2 (1, 8192), of layers.0, layers.1")
    assert main(["list", str(path), "--json"]) == 0
    (wrapper,) = json.loads(capsys.readouterr().out)["wrappers"]
    assert wrapper["submodules"] == ["submod_0 (1, 8192)", "submod_2 (1, 8192)"]
    assert wrapper["layers"] == ["layers.0", "layers.1"]
    assert wrapper["file"] == str(path)
    assert wrapper["key"] == open_artifact(path).only.stored.key


def test_json_of_instrument_and_strip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, probed = _write(tmp_path, "mega-cache.bin"), tmp_path / "probed.bin"
    assert main(["instrument", str(path), "-o", str(probed), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [one["graph"] for one in printed["wrappers"]] == ["forward", "backward"]
    assert printed["output"] == str(probed)
    assert main(["strip", str(probed), "-o", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["exact"] is True


def test_diff_says_what_is_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = _write(tmp_path, "aot-compile.bin"), _write(tmp_path, "standalone-aot.bin")
    assert main(["diff", str(a), str(b)]) == 1
    assert "A is a function saved by aot_compile, B an artifact of" in capsys.readouterr().out
    other = tmp_path / "other.bin"
    other.write_bytes(a.read_bytes().replace(b"guards_state", b"others_state"))
    assert other.read_bytes() != a.read_bytes()
    assert main(["diff", str(a), str(other)]) == 0
    assert "differ beside the wrappers" in capsys.readouterr().out
    assert main(["diff", str(a), str(a)]) == 0
    assert "beside" not in capsys.readouterr().out


@pytest.mark.parametrize("output", ["-o", "--in-place"])
@pytest.mark.parametrize("name", ["standalone-aot.bin", "hostile.entry"])
def test_hostile_files_are_refused(name: str, output: str, tmp_path: Path) -> None:
    canary, path = tmp_path / "executed", tmp_path / name
    path.write_bytes(hostile(f"touch {canary}", name))
    before = path.read_bytes()
    options = [output, str(tmp_path / "out")][: 1 + (output == "-o")]
    for command in (["list"], ["instrument", *options], ["strip", *options]):
        assert main([command[0], str(path), *command[1:]]) == 2
    assert main(["diff", str(path), str(path)]) == 2
    assert [one.name for one in tmp_path.iterdir()] == [name]
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", FORMS)
def test_damaged_files_are_refused_or_are_another_wrapper(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = random.Random(name)
    path, data = tmp_path / "damaged", data_of(name)
    for _ in range(3):
        path.write_bytes(data[: draw.randrange(len(data))])
        assert main(["instrument", str(path), "--in-place"]) == 2
    for _ in range(3):
        at = draw.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :])
        code = main(["instrument", str(path), "--check"])
        assert code == 2 if name in CHECKED else code in (1, 2)
    assert [one.name for one in tmp_path.iterdir()] == ["damaged"]
    assert "Traceback" not in capsys.readouterr().err


def test_standard_output_is_for_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _write(tmp_path, "aot-compile.bin")
    assert main(["instrument", str(path), "-o", "-"]) == 2
    assert "error[not-text]" in capsys.readouterr().err
