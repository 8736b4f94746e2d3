"""A patched package begins with its original, names what it should, and gives the original back."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewriter.artifact.package import pack
from rewriter.artifact.package.pack import Changes

ABOUT = {"probes": ["print"], "models": {}}


@dataclass(frozen=True)
class Case:
    """A package, and what is to happen to its members."""

    root: str
    members: tuple[tuple[str, bytes], ...]
    methods: tuple[int, ...]
    comment: bytes
    renamed: dict[str, str]
    replaced: dict[str, bytes]
    added: tuple[tuple[str, bytes, str], ...]  # name, contents, and what it comes after

    @property
    def zipped(self) -> bytes:
        target = io.BytesIO()
        with zipfile.ZipFile(target, "w") as file:
            for (name, data), method in zip(self.members, self.methods, strict=True):
                file.writestr(zipfile.ZipInfo(name), data, method)
            file.comment = self.comment
        return target.getvalue()

    @property
    def expected(self) -> list[tuple[str, bytes]]:
        """The members afterwards, in the order of the directory; less what the tool adds."""
        found = [
            (self.renamed.get(name, name), self.replaced.get(name, data))
            for name, data in self.members
        ]
        for name, data, after in self.added:
            place = [known for known, _ in found].index(after) + 1
            found.insert(place, (name, data))
        return found


NAMES = st.text(st.sampled_from("abcxyz0._-é模 "), min_size=1, max_size=9).filter(
    lambda name: name.strip(". ") == name
)
CONTENTS = st.one_of(st.binary(max_size=40), st.builds(bytes, st.integers(0, 5000)))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    root = draw(st.sampled_from(["", "model/", "modèle/"]))
    folder = st.sampled_from(["data/aotinductor/model/", "data/aotinductor/b/", "data/", ""])
    names = draw(
        st.lists(
            st.builds(lambda place, name: root + place + name, folder, NAMES),
            min_size=1,
            max_size=8,
            unique=True,
        )
    )
    members = tuple((name, draw(CONTENTS)) for name in names)
    methods = tuple(draw(st.sampled_from([0, 8])) for _ in names)
    # A renamed member gets another name of as many bytes; the old name may be that of a new one.
    chosen = draw(st.lists(st.sampled_from(names), unique=True))
    renamed = {name: f"{name[:-1]}{'_' if name[-1].isascii() else ''}" for name in chosen}
    renamed = {
        old: new
        for old, new in renamed.items()
        if len(new.encode()) == len(old.encode()) and new not in names
    }
    renamed = {old: new for old, new in renamed.items() if list(renamed.values()).count(new) == 1}
    others = [name for name in names if name not in renamed]
    replaced = {
        name: draw(CONTENTS)
        for name in (draw(st.lists(st.sampled_from(others), unique=True)) if others else [])
    }
    added: list[tuple[str, bytes, str]] = []
    for old, new in renamed.items():
        if draw(st.booleans()):
            added.append((old, draw(CONTENTS), new))
    if draw(st.booleans()):
        after = draw(st.sampled_from([renamed.get(name, name) for name in names]))
        added.append((f"{after.rpartition('/')[0]}/new file".lstrip("/"), draw(CONTENTS), after))
    comment = draw(st.sampled_from([b"", b"made by hand"]))
    return Case(root, members, methods, comment, renamed, replaced, tuple(added))


@contextmanager
def laid_out(case: Case) -> Iterator[tuple[Path, Changes]]:
    """A directory with the package `original.pt2`, and the changes with their files."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "original.pt2").write_bytes(case.zipped)
        replaced, added = {}, []
        for number, (name, data) in enumerate(case.replaced.items()):
            replaced[name] = place / f"replaced{number}"
            replaced[name].write_bytes(data)
        for number, (name, data, after) in enumerate(case.added):
            file = place / f"added{number}"
            file.write_bytes(data)
            added.append((name, file, after))
        yield place, Changes(replaced, case.renamed, added)


def listed(path: Path) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None
        return [(entry.filename, file.read(entry)) for entry in file.infolist()]


def directory_of(data: bytes) -> int:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return file.start_dir


@settings(max_examples=150, deadline=None)
@given(cases())
def test_patch_and_restore(case: Case) -> None:
    with laid_out(case) as (place, changes):
        original, patched = place / "original.pt2", place / "patched.pt2"
        before = original.read_bytes()
        pack.patch(original, patched, case.root, changes, ABOUT)
        assert original.read_bytes() == before
        *members, directory, manifest = listed(patched)
        assert members == case.expected
        start = directory_of(before)
        assert directory == (case.root + pack.DIRECTORY, before[start:])
        assert manifest[0] == case.root + pack.MANIFEST
        said = json.loads(manifest[1])
        assert said["format"] == pack.FORMAT
        assert said["version"] == pack.VERSION
        assert said["probes"] == ["print"]
        assert said["original"]["sha256"] == hashlib.sha256(before).hexdigest()
        with zipfile.ZipFile(patched) as file:
            assert file.comment == case.comment

        # The very bytes of the original, but for the names that are others now.
        after = bytearray(patched.read_bytes()[:start])
        for offset, old in said["original"]["renamed"]:
            name = case.renamed[old].encode()
            assert after[offset : offset + len(name)] == name
            after[offset : offset + len(name)] = old.encode()
        assert after == before[:start]

        assert pack.gives_back(patched, case.root, original)
        assert pack.restore(patched, case.root)
        back = place / "back.pt2"
        assert pack.restore(patched, case.root, back)
        assert back.read_bytes() == before

        again = place / "again.pt2"
        again.write_bytes(b"what was there")
        pack.patch(original, again, case.root, changes, ABOUT)
        assert again.read_bytes() == patched.read_bytes()


@settings(max_examples=100, deadline=None)
@given(cases(), st.data())
def test_what_was_changed_since_is_not_the_original(case: Case, data: st.DataObject) -> None:
    with laid_out(case) as (place, changes):
        patched, back = place / "patched.pt2", place / "back.pt2"
        pack.patch(place / "original.pt2", patched, case.root, changes, ABOUT)
        before = (place / "original.pt2").read_bytes()
        whole = bytearray(patched.read_bytes())
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] ^= data.draw(st.integers(1, 255))
        patched.write_bytes(whole)
        # Where what was hit is not of the original, it still comes back: never anything else.
        is_whole = pack.restore(patched, case.root, back)
        if is_whole:
            assert back.read_bytes() == before
            assert pack.gives_back(patched, case.root, place / "original.pt2")
        # The hash in the manifest is of no use to who has the original.
        elif pack.gives_back(patched, case.root, place / "original.pt2"):
            assert hashlib.sha256(before).hexdigest().encode() not in bytes(whole)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_a_folder_is_patched_as_its_zip_is(case: Case) -> None:
    folders = {name.rpartition("/")[0] for name, _ in case.members}
    if any(name in folders or f"{name}/" in str(folders) for name, _ in case.expected):
        return  # a file and a directory of one name
    with laid_out(case) as (place, changes):
        original, patched = place / "unpacked", place / "patched"
        files = [(name, place / f"m{number}") for number, (name, _) in enumerate(case.members)]
        for (_, data), (_, file) in zip(case.members, files, strict=True):
            file.write_bytes(data)
        pack.write_folder(original, files)
        pack.patch_folder(original, patched, case.root, changes, ABOUT)
        found = {
            path.relative_to(patched).as_posix(): path.read_bytes()
            for path in patched.rglob("*")
            if path.is_file()
        }
        manifest = json.loads(found.pop(case.root + pack.MANIFEST))
        assert manifest.pop("original") == pack.hashes(original)
        ours = {**case.replaced, **{name: data for name, data, _ in case.added}}
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in ours.items()}
        assert manifest.pop("written") == hashes
        assert manifest == {"format": pack.FORMAT, "version": pack.VERSION, **ABOUT}
        assert found == dict(case.expected)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_members_are_written_in_their_order(case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for number, (name, data) in enumerate(case.members):
            files.append((name, Path(folder, str(number))))
            files[-1][1].write_bytes(data)
        for output in ("a.pt2", "b.pt2"):
            pack.write(Path(folder, output), files)
        assert listed(Path(folder, "a.pt2")) == list(case.members)
        assert Path(folder, "a.pt2").read_bytes() == Path(folder, "b.pt2").read_bytes()
        with zipfile.ZipFile(Path(folder, "a.pt2")) as file:
            assert {entry.compress_type for entry in file.infolist()} == {zipfile.ZIP_STORED}


# --- The order that loaders go by -----------------------------------------------------------------


def test_a_new_library_directly_follows_the_one_whose_name_it_has(tmp_path: Path) -> None:
    """Loaders before torch 2.13 take the last library of a model, or of all that they unpacked."""
    models = ("a", "b", "c")
    kinds = ("wrapper.cpp", "wrapper.so", "wrapper.json")
    names = [f"m/data/aotinductor/{model}/{kind}" for model in models for kind in kinds]
    new = tmp_path / "new"
    new.write_bytes(b"new")
    original, patched = tmp_path / "original.pt2", tmp_path / "patched.pt2"
    with zipfile.ZipFile(original, "w") as file:
        for name in names:
            file.writestr(name, name)
    renamed = {name: name.replace("wrapper.so", "kernels.so") for name in names if ".so" in name}
    del renamed["m/data/aotinductor/b/wrapper.so"]
    changes = Changes(
        {"m/data/aotinductor/a/wrapper.cpp": new, "m/data/aotinductor/c/wrapper.cpp": new},
        renamed,
        [(old, new, name) for old, name in renamed.items()],
    )
    pack.patch(original, patched, "m/", changes, ABOUT)
    assert [name.removeprefix("m/data/aotinductor/") for name, _ in listed(patched)] == [
        "a/wrapper.cpp",
        "a/kernels.so",
        "a/wrapper.so",
        "a/wrapper.json",
        "b/wrapper.cpp",
        "b/wrapper.so",
        "b/wrapper.json",
        "c/wrapper.cpp",
        "c/kernels.so",
        "c/wrapper.so",
        "c/wrapper.json",
        "m/rewriter/original.directory",
        "m/rewriter/manifest.json",
    ]
    changed = {name for name, data in listed(patched) if data == b"new"}
    assert changed == {*changes.replaced, *renamed}
    # What is replaced stays where it was, out of the directory; what is renamed is there once.
    whole = patched.read_bytes()
    for name in (*renamed, *renamed.values()):
        ends = [match.start() for match in re.finditer(re.escape(name.encode()), whole)]
        assert [whole[end - 30 : end - 26] for end in ends].count(b"PK\3\4") == 1
    for old in renamed:
        assert re.search(b"PK\3\4.{26}" + re.escape(old.encode()) + b"new", whole, re.DOTALL)


# --- Refused ------------------------------------------------------------------------------------

WRONG: dict[str, Changes] = {
    "renamed to a longer name": Changes(renamed={"m/a": "m/aa"}),
    "renamed to a shorter name": Changes(renamed={"m/a": "m/"}),
    "renamed to as many letters of more bytes": Changes(renamed={"m/a": "m/é"}),
    "renamed to a member": Changes(renamed={"m/a": "m/b"}),
    "renamed to itself": Changes(renamed={"m/a": "m/a"}),
    "two renamed to one": Changes(renamed={"m/a": "m/c", "m/b": "m/c"}),
    "renamed what is not there": Changes(renamed={"m/x": "m/y"}),
    "replaced what is not there": Changes(replaced={"m/x": Path(__file__)}),
    "added behind what is not there": Changes(added=[("m/x", Path(__file__), "m/y")]),
    "added behind a name of before": Changes(
        renamed={"m/a": "m/c"}, added=[("m/x", Path(__file__), "m/a")]
    ),
    "added what is there": Changes(added=[("m/b", Path(__file__), "m/a")]),
}


@pytest.mark.parametrize("what", WRONG)
def test_changes_that_make_no_sense_are_refused(what: str, tmp_path: Path) -> None:
    original = tmp_path / "original.pt2"
    with zipfile.ZipFile(original, "w") as file:
        file.writestr("m/a", "a")
        file.writestr("m/b", "b")
    before = original.read_bytes()
    with pytest.raises((ValueError, KeyError)):
        pack.patch(original, tmp_path / "patched.pt2", "m/", WRONG[what], ABOUT)
    assert original.read_bytes() == before


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/x", "..", "", "a/.."])
@pytest.mark.parametrize("write", [pack.write, pack.write_folder])
def test_no_member_is_written_outside(name: str, write: object, tmp_path: Path) -> None:
    contents = tmp_path / "contents"
    contents.write_text("x")
    (tmp_path / "in").mkdir()
    members: Sequence[tuple[str, Path]] = [("a/b", contents), (name, contents)]
    with pytest.raises(ValueError, match="no name of a member"):
        write(tmp_path / "in" / "output", members)  # type: ignore[operator]
    assert {path.name for path in tmp_path.iterdir()} == {"contents", "in"}
    assert {path.name for path in (tmp_path / "in").iterdir()} == {"output"}


def test_a_package_that_was_not_patched_is_not_restored(tmp_path: Path) -> None:
    path = tmp_path / "plain.pt2"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("m/a", "a")
    assert not pack.restore(path, "m/", tmp_path / "back")
    path.write_bytes(b"PK\3\4")
    assert not pack.restore(path, "m/", tmp_path / "back")
    assert not (tmp_path / "back").exists()
