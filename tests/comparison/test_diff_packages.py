"""`rewriter diff` of packages: members, metadata, constants, and patched ones."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import rewriter
from artifacts import ARTIFACTS
from rewriter.artifact.opening import open_artifact
from rewriter.artifact.package import pack
from rewriter.artifact.package.model import Package
from rewriter.cli import main
from rewriter.core.errors import BAD_INPUT, DIFFERS, OK
from rewriter.instrumentation.rebuild import probed_models
from rewriter.instrumentation.select import select
from sampling import one_in

pytestmark = pytest.mark.properties

MLP, CUSTOMOP = (
    ARTIFACTS / "cuda-torch2.11" / model / "package" / "model.pt2" for model in ("mlp", "customop")
)
BOTH = pytest.mark.parametrize("original", [MLP, CUSTOMOP], ids=["mlp", "customop"])


def patched(original: Path, output: Path, probe: str = "names") -> Path:
    """A package with probes as `instrument` packs it, around a library that is none."""
    artifact = open_artifact(original)
    assert isinstance(artifact, Package)
    (one,) = probed_models.instrument(artifact, select(probe))
    source, library = output.with_suffix(".cpp"), output.with_suffix(".so")
    source.write_bytes(one.result.source)
    library.write_bytes(f"a library with {probe}".encode())
    changes = probed_models.changes([one], {one.model.name: source}, {one.model.name: library})
    write = pack.patch_folder if original.is_dir() else pack.patch
    about = probed_models.manifest([one], ["link"])
    write(original, output, artifact.root, changes, about)
    return output


def unpacked(original: Path, folder: Path) -> Path:
    with zipfile.ZipFile(original) as file:
        file.extractall(folder)
    return folder


def repacked(folder: Path, output: Path) -> Path:
    with zipfile.ZipFile(output, "w") as file:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                file.write(path, path.relative_to(folder).as_posix())
    return output


def the(folder: Path, pattern: str) -> Path:
    (found,) = folder.rglob(pattern)
    return found


@BOTH
def test_a_patched_package_is_instrumented(original: Path, tmp_path: Path) -> None:
    names = patched(original, tmp_path / "names.pt2")
    others = patched(original, tmp_path / "print.pt2", "print,save")
    for a, b in ((original, names), (others, original), (names, others)):
        found = rewriter.diff(a, b)
        assert found.verdict == "instrumented", (a, b)
        (wrapper,) = found.wrappers
        assert wrapper.count_a == wrapper.count_b == 5
        for side, probing in ((a, wrapper.probing_a), (b, wrapper.probing_b)):
            assert (probing is None) == (side == original)
            assert probing is None or probing.launches == 5
    assert rewriter.diff(names, names).verdict == "identical"


@pytest.mark.parametrize("original", one_in(2, [MLP, CUSTOMOP], id=lambda one: one.parts[-3]))
def test_unpacked_ones_and_sources_too(original: Path, tmp_path: Path) -> None:
    folder = unpacked(original, tmp_path / "folder")
    assert rewriter.diff(original, folder).verdict == "identical"
    names = patched(folder, tmp_path / "names")
    archive = patched(original, tmp_path / "print.pt2", "print")
    sources = tmp_path / "sources"
    assert main(["instrument", "--no-rebuild", str(original), "-o", str(sources)]) == OK
    places = [original, folder, names, archive, sources]
    for a in places:
        for b in places:
            plain = {a, b} <= {original, folder} or a == b
            assert rewriter.diff(a, b).verdict == ("identical" if plain else "instrumented"), (a, b)


def edit_wrapper(folder: Path) -> None:
    path = the(folder, "*.wrapper.cpp")
    data = path.read_bytes()
    assert data.count(b"512L,") == 1
    path.write_bytes(data.replace(b"512L,", b"511L,"))


def test_an_edit_of_a_patched_package_is_a_difference(tmp_path: Path) -> None:
    folder = unpacked(MLP, tmp_path / "folder")
    probed = patched(folder, tmp_path / "probed")
    edit_wrapper(probed)
    found = rewriter.diff(folder, probed)
    assert found.verdict == "different"
    (change,) = found.wrappers[0].launches
    assert change.details == ("argument 3: 512 -> 511",)


def test_a_changed_archive_is_a_difference(tmp_path: Path) -> None:
    probed = patched(MLP, tmp_path / "probed.pt2")
    data = bytearray(probed.read_bytes())
    # In the wrapper of the original, which is still there but no member any more.
    place = data.index(b"512L,")
    data[place] ^= 1
    probed.write_bytes(data)
    found = rewriter.diff(MLP, probed)
    assert found.verdict == "different"
    assert found.package is not None
    assert found.package.members


def test_libraries_of_two_patched_packages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = unpacked(MLP, tmp_path / "folder")
    one, other = patched(folder, tmp_path / "one"), patched(folder, tmp_path / "other")
    assert rewriter.diff(one, other).verdict == "identical"
    library = the(other, "*.wrapper.so")
    library.write_bytes(b"another library")
    found = rewriter.diff(one, other)
    assert found.verdict == "different"
    assert found.package is not None
    assert found.package.built_a is not None
    assert found.package.built_b is not None
    assert (found.package.built_a.state, found.package.built_b.state) == ("verified", "changed")
    assert main(["diff", str(one), str(other)]) == DIFFERS
    assert f"{library.relative_to(other)} is not the one that was" in capsys.readouterr().out
    # Against the original, too: it is not the library that the manifest was written for.
    assert main(["diff", str(folder), str(other)]) == DIFFERS
    said = capsys.readouterr().out
    assert said.startswith("different: the probes are not what instrument writes\n")
    assert f"{library.relative_to(other)} is not the one that was packed" in said
    notes = rewriter.diff(folder, one).notes
    assert notes[0] == "the library with the probes in B was built, and is not compared"
    assert "only building it again would show it" in notes[1]
    # With other probes, another manifest is explained, and any other member is not.
    third = patched(folder, tmp_path / "third", "print")
    assert rewriter.diff(one, third).verdict == "instrumented"
    the(third, "byteorder").write_text("big")
    assert rewriter.diff(one, third).verdict == "different"


def test_a_damaged_member_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed = Path(shutil.copy(MLP, tmp_path / "changed.pt2"))
    with zipfile.ZipFile(changed) as file:
        entry = max(file.infolist(), key=lambda one: one.compress_size)
    flip(changed, entry.header_offset + 1000)
    for a, b in ((MLP, changed), (changed, MLP)):
        assert main(["diff", str(a), str(b)]) == BAD_INPUT
        assert "error[corrupt-package]" in capsys.readouterr().err


def flip(path: Path, offset: int = 100) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def metadata(folder: Path) -> None:
    path = the(folder, "*wrapper_metadata.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"AOTI_DEVICE_KEY": "cpu"}))


def constants(folder: Path) -> None:
    from rewriter.artifact.package import library

    path = the(folder, "*.so")
    found = library.read(path, "library").constants
    assert found is not None
    flip(path, found.offset + 8)


@pytest.mark.parametrize(
    ("change", "members", "values"),
    [
        (edit_wrapper, [".wrapper.cpp"], []),
        (lambda folder: flip(sorted(folder.rglob("*.cubin"))[0]), [".cubin"], []),
        (metadata, ["_metadata.json"], ["AOTI_DEVICE_KEY"]),
        (constants, [".wrapper.so"], ["constants"]),
        (lambda folder: flip(the(folder, "*.so"), 6000), [".wrapper.so"], []),
        (lambda folder: (folder / "model" / "new.txt").write_text("new"), ["new.txt"], []),
        (lambda folder: the(folder, "byteorder").unlink(), ["byteorder"], []),
    ],
    ids=["wrapper", "cubin", "metadata", "constants", "library", "added", "removed"],
)
def test_what_changed_in_a_package_is_named(
    change: Callable[[Path], object],
    members: list[str],
    values: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = unpacked(MLP, tmp_path / "folder")
    change(folder)
    changed = repacked(folder, tmp_path / "changed.pt2")
    found = rewriter.diff(MLP, changed)
    assert found.verdict == "different"
    assert found.package is not None
    names = [member.b or member.a or "" for member in found.package.members]
    assert len(names) == len(members)
    assert all(name.endswith(end) for name, end in zip(names, members, strict=True))
    assert [value.what for value in found.package.values] == values
    assert main(["diff", "--json", str(MLP), str(changed)]) == DIFFERS
    assert json.loads(capsys.readouterr().out)["verdict"] == "different"
    assert main(["diff", str(MLP), str(changed)]) == DIFFERS
    out = capsys.readouterr().out
    assert all(end in out for end in [*members, *values])


def test_equal_members_in_another_archive(tmp_path: Path) -> None:
    folder = unpacked(MLP, tmp_path / "folder")
    found = rewriter.diff(MLP, repacked(folder, tmp_path / "again.pt2"))
    assert found.verdict == "different"
    assert found.package is not None
    assert (found.package.members, found.package.layout) == ((), True)


def test_a_kernel_in_another_file_is_compared(tmp_path: Path) -> None:
    """On the CPU, kernels are a source of their own; here one that the package did not have."""
    folder = unpacked(MLP, tmp_path / "folder")
    path = the(folder, "*.kernel.cpp")
    kernel = b'extern "C" void cpp_fused_add_0(float* out_ptr0)\n{\n    out_ptr0[0] = 1;\n}\n'
    path.write_bytes(path.read_bytes() + kernel)
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    the(other, "*.kernel.cpp").write_bytes(path.read_bytes().replace(b"= 1;", b"= 2;"))
    (wrapper,) = rewriter.diff(folder, other).wrappers
    (change,) = wrapper.kernels
    assert (change.a, change.removed, change.added, change.apart) == ("cpp_fused_add_0", 1, 1, True)
    assert (wrapper.launches, wrapper.lines) == ((), ())


def test_another_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", str(MLP), str(CUSTOMOP)]) == DIFFERS
    assert capsys.readouterr().out.startswith(
        "different: 0 of 5 launches, 5 only in A, 5 only in B"
    )
    assert main(["diff", str(MLP), str(CUSTOMOP), "--model", "other"]) == BAD_INPUT
    assert main(["diff", str(MLP), str(MLP), "--model", "model"]) == OK


def test_a_package_and_a_wrapper_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    wrapper = MLP.parent.parent / "aoti" / "wrapper.cpp"
    assert main(["diff", str(MLP), str(wrapper)]) == BAD_INPUT
    assert "error[different-kinds]" in capsys.readouterr().err
