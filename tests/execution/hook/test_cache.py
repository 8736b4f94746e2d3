"""`rewriter cache list`, `status` and `restore`: nothing of a cache is lost."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pickle
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from caches import (
    BACKWARD,
    CPP,
    CUDA,
    FORWARD,
    MLP,
    NAMES,
    bytes_of,
    cache,
    content,
    make,
    put_probes,
)
from examples import examples
from imports import HEAVY, imported_by
from rewriter import cli
from rewriter.core import locks, markers
from rewriter.execution.hook.cache import location
from rewriter.execution.hook.cache.slots import TEMPORARY, scan

pytestmark = pytest.mark.properties

PROBES = ("names", "print", "save", "hash", "names,print")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return make(tmp_path / "cache")


@pytest.fixture
def act(directory: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """`act("list")` is `rewriter cache list --dir …`: exit code, output and messages."""

    def run(action: str, *arguments: object) -> tuple[int, str, str]:
        code = cli.main(["cache", action, "--dir", str(directory), *map(str, arguments)])
        return code, *capsys.readouterr()

    return run


Act = Callable[..., tuple[int, str, str]]


def states(directory: Path) -> dict[str, str]:
    return {slot.name: slot.state for slot in scan(directory).slots}


def listed(act: Act, *arguments: object) -> dict[str, Any]:
    code, out, err = act("list", "--json", *arguments)
    assert code == 0, err
    parsed: dict[str, Any] = json.loads(out)
    return parsed


@pytest.mark.parametrize(
    ("arguments", "slug"),
    [
        (["list", "--dir", "nothing"], "no-cache"),
        (["status", "--dir", "file"], "no-cache"),
        (["restore", "--dir", "file"], "no-cache"),
        (["list", "--dir", "cache", "zz*"], "no-wrapper-matches"),
        (["list", "--dir", "cache", "--kernels", "nosuch"], "no-wrapper-matches"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_refused_and_nothing_changed(
    arguments: list[str],
    slug: str,
    tmp_path: Path,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").write_text("text")
    monkeypatch.chdir(tmp_path)
    before = content(tmp_path)
    assert cli.main(["cache", *arguments]) == 2
    assert f"error[{slug}]" in capfd.readouterr().err
    assert content(tmp_path) == before


def test_list(act: Act, directory: Path) -> None:
    before = content(directory)
    code, out, err = act("list")
    assert code == 0
    head, *rows = out.splitlines()
    assert head.split()[:5] == ["wrapper", "when", "graph", "language", "launches"]
    assert head.split()[-1] == "state"
    assert [row.split()[0] for row in rows] == [Path(n).stem[:14] for n in reversed(NAMES)]
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(1_700_000_000))
    assert when in rows[-1]
    assert "5 wrappers in" in err
    assert "1 file of kernels" in err
    assert content(directory) == before


def test_list_json(act: Act) -> None:
    found = listed(act)
    facts = (found["format"], found["kernel_files"], found["foreign"])
    assert facts == ("rewriter.cache-list", 1, [])
    rows = {row["wrapper"]: row for row in found["wrappers"]}
    graphs = {FORWARD: "forward", BACKWARD: "backward"}
    assert {name: row["graph"] for name, row in rows.items()} == {
        name: graphs.get(name, "inference") for name in NAMES
    }
    assert rows[CPP]["language"] == "cpp"
    assert rows[MLP]["launches"] == 5
    assert "extern_kernels.addmm" in rows[MLP]["kernels"]
    assert {row["state"] for row in rows.values()} == {"plain"}


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["cab"], []),  # too short to stand for a hash
        (["cabml"], []),
        (["cabmlp0"], [MLP]),
        (["cabmlp*"], [MLP]),
        (["ab/*"], [MLP]),
        ([Path(MLP).name], [MLP]),
        (["cab*", "cef*"], [CPP, MLP]),
        ([], list(reversed(NAMES))),
        (["ce*", "--kernels", "cpp_fused_*"], [CPP]),
        (["--kernels", "triton_*"], [CUDA]),
        (["--kernels", "triton_*,*backward*"], [CUDA, BACKWARD]),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_choice(arguments: list[str], names: list[str], act: Act, directory: Path) -> None:
    if names:
        assert [row["wrapper"] for row in listed(act, *arguments)["wrappers"]] == names
    else:
        assert act("list", *arguments)[0] == 2


def test_files_that_are_no_wrappers(act: Act, directory: Path) -> None:
    """What is broken is named, and stops nothing."""
    broken = (directory / MLP).read_text().replace("def call(", "def call((", 1)
    (directory / "ab" / "broken.py").write_text(broken)
    (directory / "ab" / "binary.py").write_bytes(b"\xff\xfe torch._inductor\ndef call(\x00")
    (directory / "ab" / "empty.py").write_bytes(b"")
    (directory / "ab" / "dangling.py").symlink_to("nothing")
    (directory / "ab" / "folder.py").mkdir()
    found = listed(act)
    assert len(found["wrappers"]) == 5
    assert {row["wrapper"] for row in found["broken"]} == {"ab/broken.py", "ab/binary.py"}
    assert found["foreign"] == ["ab/empty.py"]
    before = content(directory)
    assert "warning: ab/broken.py cannot be read" in act("list")[2]
    assert act("restore")[0] == 0
    assert content(directory) == before


def test_status_and_restore(act: Act, directory: Path) -> None:
    """Every byte, mode and time is as it was, and each original is the very file."""
    before = content(directory)
    assert act("status")[0] == 0
    put_probes(directory, "names")
    assert set(states(directory).values()) == {"instrumented"}
    assert listed(act)["wrappers"][0]["probes"] == ["names"]
    probed = content(directory)
    code, out, err = act("status")
    assert code == 1
    assert out.count("instrumented") == 5
    assert "`rewriter cache restore` gives the originals back" in err
    assert content(directory) == probed
    assert act("restore")[:2] == (0, "restored 5 wrappers\n")
    assert content(directory) == before
    assert act("status")[0] == 0


def test_a_backup_of_somebody_else_stays(act: Act, directory: Path, tmp_path: Path) -> None:
    """Beside a plain wrapper even if it is a copy of it, beside one with probes if it is not the
    original, and a link that leads to the original."""
    before = bytes_of(directory)
    put_probes(directory, names=[FORWARD, BACKWARD])
    (directory / (FORWARD + ".orig")).write_text("mine")
    (directory / (BACKWARD + ".orig")).rename(tmp_path / "original")
    (directory / (BACKWARD + ".orig")).symlink_to(tmp_path / "original")
    (directory / (MLP + ".orig")).write_text("mine")
    os.link(directory / CPP, directory / (CPP + ".orig"))
    shutil.copy2(directory / CUDA, directory / (CUDA + ".orig"))
    (directory / "ab" / "notes.py.orig").write_text("mine")
    mine = {n: facts for n, facts in content(directory).items() if n.endswith(".orig")}
    assert len(mine) == 6
    assert act("restore")[:2] == (0, "restored 2 wrappers\n")
    assert bytes_of(directory) == before | {n: facts[:3] for n, facts in mine.items()}
    assert act("status")[0] == 0


def test_no_link_is_followed(act: Act, directory: Path, tmp_path: Path) -> None:
    """What a link leads to is in no cache, be it a wrapper, a folder or a part of the cache."""
    outside = make(tmp_path / "outside")
    put_probes(outside)
    text = (outside / CPP).read_bytes()
    for name in ("czz1.main.cpp", f".czz1.py.x{TEMPORARY}"):
        (outside / "ab" / name).write_bytes(text)
    (outside / "fxgraph" / "zz" / "entry").write_bytes(text)
    (outside / ".rewriter-run.json").write_text("{")
    (outside / "locks" / "czz2.lock").touch()
    shutil.rmtree(directory / "fxgraph")
    (directory / "fxgraph").symlink_to(outside / "fxgraph")
    (directory / "aotautograd").mkdir()
    (directory / "aotautograd" / "yy").symlink_to(outside / "fxgraph" / "zz")
    (directory / "aotautograd" / "entry").symlink_to(outside / "fxgraph" / "zz" / "entry")
    (directory / "ij").symlink_to(outside / "ab")
    (directory / MLP).unlink()
    (directory / MLP).symlink_to(outside / MLP)
    (directory / "zz").mkdir()
    (directory / "zz" / "czz3.main.cpp").symlink_to(outside / "ab" / "czz1.main.cpp")
    (directory / ".rewriter-run.json").symlink_to(outside / ".rewriter-run.json")
    shutil.rmtree(directory / "locks")
    (directory / "locks").symlink_to(outside / "locks")
    (directory / "zz" / "czz2.main.cpp").write_bytes(text)  # a build of ours
    before = content(directory), content(outside)
    assert MLP not in states(directory)
    code, out, _ = act("status")
    assert code == 0
    assert "1 build of" in out
    assert "stopped" not in out
    removed = "restored 0 wrappers, removed 1 build of instrumented C++\n"
    assert act("restore")[:2] == (0, removed)
    del before[0]["zz/czz2.main.cpp"]
    assert (content(directory), content(outside)) == before


def test_what_is_no_file_does_not_hang(directory: Path) -> None:
    """A pipe has no end to be read to, wherever a file of an earlier version could be."""
    put_probes(directory, names=[MLP])
    places = (
        ".rewriter-run.json", ".rewriter-run.json.77", "ab/cabpipe.py", "ab/cabpipe.main.cpp",
        f"ab/.cabpipe.py.x{TEMPORARY}", "fxgraph/zz/pipe", f"{CPP}.orig", "locks/czz1.lock",
    )  # fmt: skip
    for place in places:
        os.mkfifo(directory / place)
    (directory / "zz").mkdir()
    (directory / "zz" / "czz1.main.cpp").write_bytes((directory / MLP).read_bytes())
    done = [cache(action, "--dir", directory, timeout=60) for action in ("list", "status")]
    done.append(cache("restore", "--dir", directory, timeout=60))
    assert [one.returncode for one in done] == [0, 1, 0], [one.stderr for one in done]
    assert all((directory / place).exists() for place in places)
    assert not (directory / "zz" / "czz1.main.cpp").exists()


def test_a_full_disk_is_an_error(
    act: Act, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wrapper that was not restored is as it was, and the next command restores it."""
    before = bytes_of(directory)
    put_probes(directory, names=[MLP])
    (directory / (MLP + ".orig")).unlink()
    probed = content(directory)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fchmod", full)
        code, _, err = act("restore")
    assert code == 2
    assert "error[unwritable]" in err
    assert "No space left" in err
    assert content(directory) == probed
    assert act("restore")[0] == 0
    assert bytes_of(directory) == before


def test_files_of_a_command_that_was_stopped(act: Act, directory: Path) -> None:
    """Whatever state they are in; one that another process holds stays."""
    before = content(directory)
    half = directory / "ab" / f".{Path(MLP).name}.x1{TEMPORARY}"
    half.write_text("half")
    journals = [directory / f".rewriter-run.json{end}" for end in ("", ".77", ".78")]
    for path, text in zip(journals, ("{}", "{", ""), strict=True):
        path.write_text(text)
    code, out, _ = act("status")
    assert code == 0
    assert "1 file of a command that was stopped" in out
    with journals[0].open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert act("restore")[0] == 0
        assert journals[0].exists()
    assert act("restore")[0] == 0
    assert content(directory) == before


def test_edited_since(act: Act, directory: Path) -> None:
    before = content(directory)
    path = directory / MLP
    plain = path.read_text()
    put_probes(directory)
    path.write_bytes(path.read_bytes().replace(b"assert_size_stride(", b"assert_size_stride (", 1))
    edited = path.read_bytes()
    assert states(directory)[MLP] == "edited"
    code, _, err = act("restore")
    assert code == 1
    assert "edited since" in err
    assert path.read_bytes() == edited
    assert cli.main(["strip", "--in-place", str(path)]) == 0  # as the message says
    assert path.read_text().replace("assert_size_stride (", "assert_size_stride(") == plain
    del before[MLP]
    assert {name: x for name, x in content(directory).items() if MLP not in name} == before


def test_builds_of_instrumented_cpp(act: Act, directory: Path) -> None:
    """Inductor writes the C++ of an instrumented wrapper into a file, and builds that."""
    before = content(directory)
    put_probes(directory)
    text = (directory / CPP).read_bytes()
    folder = directory / "zz"
    folder.mkdir()
    for name in ("czz1.main.cpp", "czz2.main.cpp"):
        (folder / name).write_bytes(text)
        (folder / name.replace(".cpp", ".so")).write_bytes(b"\x7fELF")
        (directory / "locks" / f"{name[:4]}.lock").touch()
    with (directory / "locks" / "czz2.lock").open() as building:
        fcntl.flock(building, fcntl.LOCK_EX)
        _, out, _ = act("restore")
        assert "removed 1 build of" in out
        assert (folder / "czz2.main.cpp").exists()
    stopped = folder / "czz2.main_CxxBuild"  # torch builds in it, and removes it at the end
    stopped.mkdir()
    (stopped / "half.o").write_bytes(b"")
    assert act("restore")[1] == "restored 0 wrappers, removed 1 build of instrumented C++\n"
    assert content(directory) == before


def test_only_what_was_built_is_removed(act: Act, directory: Path) -> None:
    """The names of files are no patterns, and no wrapper is a build."""
    put_probes(directory, names=[CPP])
    text = (directory / CPP).read_bytes()
    act("restore")
    mine = directory / "zz" / "czz1.py"
    mine.parent.mkdir()
    mine.write_bytes((directory / MLP).read_bytes())
    before = content(directory)
    for name in ("*.cpp", "czz1.cpp", "[a-z]*.main.cpp"):
        (directory / "zz" / name).write_bytes(text)
    (directory / "zz" / "czz1.so").write_bytes(b"")
    assert "removed 3 builds" in act("restore")[1]
    assert content(directory) == before


def test_graphs_with_an_instrumented_text(act: Act, directory: Path) -> None:
    """A program that compiles meanwhile keeps what it reads back from the wrapper."""
    before = content(directory)
    put_probes(directory)
    for folder in ("fxgraph", "aotautograd"):
        (directory / folder / "yy").mkdir(parents=True)
        entry = pickle.dumps({"source_code": (directory / MLP).read_text()})
        (directory / folder / "yy" / "entry").write_bytes(entry)
    assert "removed 2 compiled graphs with probes" in act("restore")[1]
    assert content(directory) == before


def test_the_default_directory_is_that_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.runtime import cache_dir_utils

    for name in ("me", "a/b:c", 'x"y'):
        monkeypatch.setenv("LOGNAME", name)
        monkeypatch.delenv(location.VARIABLE, raising=False)
        assert location.directory(None) == Path(cache_dir_utils.default_cache_dir())
    monkeypatch.setenv(location.VARIABLE, "relative")
    assert location.directory(None) == Path.cwd() / "relative"
    assert location.directory("given") == Path.cwd() / "given"


def test_nothing_heavy_is_imported(directory: Path) -> None:
    commands = ([action, "--dir", directory] for action in ("list", "status", "restore"))
    assert not {*HEAVY} & imported_by(*(["cache", *command] for command in commands))


def test_readers_see_whole_files(act: Act, directory: Path) -> None:
    """A program that starts meanwhile reads one version or the other."""
    path, stop = directory / MLP, threading.Event()
    seen: set[bytes] = set()
    versions = {path.read_bytes()}

    def read() -> None:
        while not stop.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(10):
        put_probes(directory, names=[MLP])
        versions.add(path.read_bytes())
        act("restore")
    stop.set()
    reader.join()
    assert seen <= versions


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("property") / "cache")


@examples(10)
def test_restore_gives_back_every_selection(draw: st.DataObject, shared: Path) -> None:
    probed = draw.draw(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(PROBES), min_size=1))
    before = content(shared)
    for name, probe in probed.items():
        put_probes(shared, probe, [name])
    assert cli.main(["cache", "restore", "--dir", str(shared)]) == 0
    assert content(shared) == before


def test_what_cannot_be_removed_is_named(
    act: Act, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wrappers are restored by then."""
    before = bytes_of(directory)
    put_probes(directory)
    journal = directory / ".rewriter-run.json"
    journal.write_text("{")

    def refuse(*_: object) -> bool:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with monkeypatch.context() as patched:
        patched.setattr(locks, "take", refuse)
        code, _, err = act("restore")
    assert code == 3
    assert f"error[left-behind]: the wrappers are as requested, but {journal} could not be" in err
    assert "removed: No locks available" in err
    journal.unlink()
    assert bytes_of(directory) == before


def test_restore_removes_nothing_that_only_quotes_a_header(directory: Path, act: Act) -> None:
    """Notes of a user, with a line of ours in them, and what lies beside them."""
    quoted = "// " + markers.header_line("0.1.0", ("names",), "0" * 64) + "  // rewriter:0123abcd\n"
    (directory / "ab/cabnotes.cpp").write_text(quoted)
    (directory / "ab/cabnotes.backup").mkdir()
    (directory / "ab/cabnotes.backup/notes").write_text("mine")
    (directory / "ab/cabnotes.txt").write_text("mine")
    (directory / "fxgraph/readme.txt").write_text(quoted)
    before = content(directory)
    assert act("restore")[0] == 0
    assert content(directory) == before
