"""`rewriter cache list`, `instrument`, `status` and `restore`: nothing of a cache is lost."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from caches import BACKWARD, CPP, CUDA, FORWARD, MLP, NAMES, bytes_of, cache, content, make
from examples import examples
from rewriter import cli
from rewriter.cache import journal, location, mutate
from rewriter.cache.held import HeldCaches
from rewriter.cache.journal import Journal
from rewriter.cache.slots import TEMPORARY, scan
from rewriter.core.errors import RewriterError

pytestmark = pytest.mark.properties

HEAVY = ("torch", "numpy", "triton")


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
        (["instrument", "--dir", "nothing"], "no-cache"),
        (["restore", "--dir", "file"], "no-cache"),
        (["instrument", "--dir", "empty"], "no-wrapper-matches"),
        (["instrument", "--dir", "cache", "zz*"], "no-wrapper-matches"),
        (["list", "--dir", "cache", "zz*"], "no-wrapper-matches"),
        (["restore", "--dir", "cache", "zz*"], "no-wrapper-matches"),
        (["instrument", "--dir", "cache", "--kernels", "nosuch"], "no-wrapper-matches"),
        (["instrument", "--dir", "cache", "--launches", "4711"], "no-launch-matches"),
        (["instrument", "--dir", "cache", "--since", "10"], "bad-since"),
        (["list", "--dir", "cache", "--since", "-1h"], "bad-since"),
        (["list", "--dir", "cache", "--newest", "0"], "bad-number"),
        (["instrument", "--dir", "cache", "--probe", "pint"], "unknown-probe"),
        (["run", "--dir", "file", "--", "true"], "no-cache"),
        (["run", "--dir", "cache"], "no-program"),
        (["run", "--dir", "cache", "--", "no-such-program"], "no-program"),
        (["run", "--dir", "cache", "--", "train.py"], "no-program"),
        (["run", "--dir", "cache", "-d", "file", "--", "true"], "exists"),
        (["run", "--dir", "cache", "--kernels", "nosuch", "--", "true"], "no-wrapper-matches"),
        (["run", "--dir", "empty", "--", "true"], "nothing-compiled"),
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
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    before = content(tmp_path)
    options = [word.replace("-1h", "=-1h") for word in arguments]
    if "=-1h" in options:
        options[-2:] = ["--since=-1h"]
    assert cli.main(["cache", *options]) == 2
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
    assert (found["format"], found["kernel_files"], found["foreign"]) == (
        "rewriter.cache-list",
        1,
        [],
    )
    rows = {row["wrapper"]: row for row in found["wrappers"]}
    assert {name: row["graph"] for name, row in rows.items()} == {
        MLP: "inference",
        FORWARD: "forward",
        BACKWARD: "backward",
        CPP: "inference",
        CUDA: "inference",
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
        (["--newest", "2"], [CUDA, CPP]),
        (["--newest", "9"], list(reversed(NAMES))),
        (["--newest", "1", "--kernels", "cpp_fused_*"], [CPP]),
        (["--kernels", "triton_*"], [CUDA]),
        (["--kernels", "triton_*,*backward*"], [CUDA, BACKWARD]),
        (["--since", "2d"], []),
        (["--since", "36500d"], list(reversed(NAMES))),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_choice(arguments: list[str], names: list[str], act: Act, directory: Path) -> None:
    if names:
        assert [row["wrapper"] for row in listed(act, *arguments)["wrappers"]] == names
    else:
        assert act("list", *arguments)[0] == 2


def test_recent(act: Act, directory: Path) -> None:
    os.utime(directory / MLP)
    assert [row["wrapper"] for row in listed(act, "--since", "10m")["wrappers"]] == [MLP]


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
    code, _, err = act("instrument")
    assert code == 0
    assert "warning: ab/broken.py cannot be read" in err
    assert len([state for state in states(directory).values() if state == "instrumented"]) == 5
    assert act("restore")[0] == 0


def test_instrument_and_restore(act: Act, directory: Path) -> None:
    before = content(directory)
    assert act("status")[0] == 0
    code, out, _ = act("instrument", "--probe", "names")
    assert code == 0
    assert "names around" in out
    assert set(states(directory).values()) == {"instrumented"}
    # The backup is the very file, with its age.
    kept = (directory / MLP).with_name(Path(MLP).name + ".orig")
    assert (kept.stat().st_ino, kept.stat().st_mtime_ns) == before[MLP][-1:] + before[MLP][-2:-1]
    assert (directory / MLP).stat().st_mode == kept.stat().st_mode
    code, out, _ = act("status")
    assert code == 1
    assert out.count("instrumented") == 5
    code, out, _ = act("restore")
    assert (code, out) == (0, "restored 5 wrappers\n")
    assert content(directory) == before


def test_standalone_always(act: Act, directory: Path) -> None:
    """The program may run in an environment without this package."""
    act("instrument")
    for name in NAMES:
        assert b"from rewriter" not in (directory / name).read_bytes(), name


def test_twice_exchanges_the_probes(act: Act, directory: Path) -> None:
    before = content(directory)
    act("instrument", "--probe", "names")
    kept = content(directory)[MLP + ".orig"]
    assert act("instrument", "--probe", "hash", "cabmlp*")[0] == 0
    rows = {row["wrapper"]: row["probes"] for row in listed(act)["wrappers"]}
    assert rows == {**{name: ["names"] for name in NAMES}, MLP: ["hash"]}
    assert content(directory)[MLP + ".orig"] == kept
    assert act("restore", "cabmlp*")[0] == 0
    assert states(directory) == {**dict.fromkeys(NAMES, "instrumented"), MLP: "plain"}
    act("restore")
    assert content(directory) == before


def test_restoring_what_is_plain_changes_nothing(act: Act, directory: Path) -> None:
    before = content(directory)
    assert act("restore")[0] == 0
    assert content(directory) == before


def test_a_backup_without_probes_is_cleared(act: Act, directory: Path) -> None:
    """A command was stopped after it made the backup: the same file, or a copy of it."""
    before = content(directory)
    os.link(directory / MLP, directory / (MLP + ".orig"))
    shutil.copy2(directory / CPP, directory / (CPP + ".orig"))
    assert {states(directory)[name] for name in (MLP, CPP)} == {"leftover"}
    assert act("status")[0] == 0
    act("restore")
    assert content(directory) == before
    # Or the wrapper is instrumented after all.
    os.link(directory / MLP, directory / (MLP + ".orig"))
    act("instrument")
    act("restore")
    assert content(directory) == before


def test_instrumented_without_a_backup(act: Act, directory: Path) -> None:
    before = bytes_of(directory)
    act("instrument")
    (directory / (MLP + ".orig")).unlink()
    assert states(directory)[MLP] == "instrumented"
    act("instrument", "--probe", "names", "cabmlp*")
    assert (directory / (MLP + ".orig")).read_bytes()
    act("restore")
    assert bytes_of(directory) == before
    act("instrument")
    (directory / (MLP + ".orig")).unlink()
    act("restore")
    assert bytes_of(directory) == before


def test_edited_since(act: Act, directory: Path) -> None:
    before = content(directory)
    act("instrument")
    path = directory / MLP
    path.write_bytes(path.read_bytes().replace(b"assert_size_stride(", b"assert_size_stride (", 1))
    edited = path.read_bytes()
    assert states(directory)[MLP] == "edited"
    code, _, err = act("restore")
    assert code == 1
    assert "edited since" in err
    assert path.read_bytes() == edited
    assert act("restore", "--overwrite")[0] == 0
    assert content(directory) == before


def test_edited_and_without_a_backup_keeps_the_edit(act: Act, directory: Path) -> None:
    path = directory / MLP
    plain = path.read_bytes()
    act("instrument", "cabmlp*")
    path.write_bytes(path.read_bytes() + b"# mine\n")
    (directory / (MLP + ".orig")).unlink()
    code, out, _ = act("restore", "--overwrite")
    assert code == 0
    assert "keep other edits" in out
    assert path.read_bytes() == plain + b"# mine\n"


def test_a_wrapper_that_is_gone_is_put_back(act: Act, directory: Path) -> None:
    before = content(directory)
    act("instrument")
    (directory / MLP).unlink()
    assert states(directory)[MLP] == "missing"
    act("restore")
    assert content(directory) == before


def test_a_backup_of_somebody_else(act: Act, directory: Path) -> None:
    other = directory / (MLP + ".orig")
    other.write_text("mine")
    (directory / "ab" / "notes.py.orig").write_text("mine")
    before = content(directory)
    code, _, err = act("instrument")
    assert code == 0
    assert f"warning: {MLP} is not instrumented" in err
    assert states(directory)[MLP] == "plain"
    act("restore")
    assert content(directory) == before
    act("instrument", "--overwrite")
    act("restore")
    after = content(directory)
    assert after.pop(MLP)[:3] == before[MLP][:3]
    assert after == {
        name: facts for name, facts in before.items() if name not in (MLP, MLP + ".orig")
    }


def test_a_link_is_put_back_as_a_link(act: Act, directory: Path, tmp_path: Path) -> None:
    target = tmp_path / "target.py"
    (directory / MLP).rename(target)
    (directory / MLP).symlink_to(target)
    before = content(directory), target.read_bytes()
    act("instrument")
    assert not (directory / MLP).is_symlink()
    assert target.read_bytes() == before[1]
    act("restore")
    assert (content(directory), target.read_bytes()) == before


def test_without_hard_links(act: Act, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the backup is a copy, of the same age."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    before = content(directory)
    monkeypatch.setattr(os, "link", refuse)
    act("instrument")
    act("restore")
    assert {n: f[:-1] for n, f in content(directory).items() if n in NAMES} == {
        name: facts[:-1] for name, facts in before.items() if name in NAMES
    }
    assert bytes_of(directory).keys() == before.keys()


@pytest.mark.parametrize("failing", range(1, 6))
def test_a_full_disk_changes_nothing(
    failing: int, act: Act, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Probes are in all the wrappers of a command or in none."""
    before = content(directory)
    replace, count = mutate._replace, iter(range(1, 100))

    def fill(path: Path, data: bytes, like: Path) -> None:
        if next(count) == failing:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(path, data, like)

    monkeypatch.setattr(mutate, "_replace", fill)
    code, _, err = act("instrument")
    assert code == 2
    assert "error[unwritable]" in err
    assert "No space left" in err
    assert content(directory) == before


def test_a_failed_exchange_leaves_the_probes(
    act: Act, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    act("instrument", "--probe", "names")
    before = bytes_of(directory)
    replace, count = mutate._replace, iter(range(100))

    def fill(path: Path, data: bytes, like: Path) -> None:
        if next(count) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(path, data, like)

    monkeypatch.setattr(mutate, "_replace", fill)
    assert act("instrument", "--probe", "hash")[0] == 2
    assert bytes_of(directory) == before


def test_removed_between(directory: Path) -> None:
    """A wrapper that somebody removes after it was found stops nothing."""
    from rewriter.instrumentation.select import select

    slots = scan(directory).slots
    (directory / MLP).unlink()
    placed, refused = mutate.instrument(slots, select("names"))
    assert len(placed) == 4
    assert [(one.slot.name, one.error.slug) for one in refused] == [(MLP, "unreadable")]


def test_files_of_a_command_that_was_stopped(act: Act, directory: Path) -> None:
    before = content(directory)
    (directory / "ab" / f".{Path(MLP).name}.x1{TEMPORARY}").write_text("half")
    (directory / f"{journal.NAME}.77").write_text("{")
    code, out, _ = act("status")
    assert code == 0
    assert "1 file of a command that was stopped" in out
    act("restore")
    assert content(directory) == before


def test_builds_of_instrumented_cpp(act: Act, directory: Path) -> None:
    """Inductor writes the C++ of an instrumented wrapper into a file, and builds that."""
    before = content(directory)
    act("instrument")
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


def test_graphs_with_an_instrumented_text(act: Act, directory: Path) -> None:
    """A program that compiles meanwhile keeps what it reads back from the wrapper."""
    before = content(directory)
    act("instrument")
    for folder in ("fxgraph", "aotautograd"):
        (directory / folder / "yy").mkdir(parents=True)
        entry = pickle.dumps({"source_code": (directory / MLP).read_text()})
        (directory / folder / "yy" / "entry").write_bytes(entry)
    assert "removed 2 compiled graphs with probes" in act("restore")[1]
    assert content(directory) == before


def test_one_command_at_a_time(act: Act, directory: Path) -> None:
    before = content(directory)
    descriptor = os.open(directory, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    for action in (["instrument"], ["restore"], ["run", "--", "true"]):
        code, _, err = act(*action) if len(action) == 1 else act("run", "--", "true")
        assert code == 2
        assert "error[cache-busy]" in err
    assert len(listed(act)["wrappers"]) == 5
    os.close(descriptor)
    assert content(directory) == before


def test_who_has_results_already_waits_for_another_command(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    told: list[str] = []
    with ExitStack() as stack:
        caches = HeldCaches(stack, "rewriter triage", told.append, lambda: False, patience=60)
        with pytest.raises(KeyboardInterrupt):
            caches.hold(directory)

        def is_asked() -> bool:
            os.close(descriptor)  # the other command ends
            return True

        caches = HeldCaches(stack, "rewriter triage", told.append, is_asked, patience=60)
        assert len(caches.hold(directory).slots) == 5
        caches.close()
    assert told == [f"another command is at work in {directory}: waiting for it, 60 s at most"] * 2


def test_a_new_cache_is_mentioned(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    new = tmp_path / "typo"
    assert cli.main(["run", "--dir", str(new), "--", "true"]) == 2
    err = capfd.readouterr().err
    assert f"note: {new} did not exist: the program starts with a new, empty cache" in err
    assert not new.exists()


def test_a_run_in_progress_is_shown(act: Act, directory: Path) -> None:
    mine = Journal(directory, "rewriter cache run -- python train.py")
    mine.write([MLP])
    code, _, err = act("status")
    assert code == 0
    assert "in progress since" in err
    assert f"process {os.getpid()}" in err
    found = listed(act)["running"]
    assert (found["pid"], found["wrappers"]) == (os.getpid(), [MLP])
    mine.remove()
    assert listed(act)["running"] is None
    assert not (directory / journal.NAME).exists()


def test_a_disk_that_is_full(act: Act, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No journal is left that says nothing."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = content(directory)
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(RewriterError, match="No space left"):
        Journal(directory, "rewriter cache run -- python train.py").write([MLP])
    assert content(directory) == before


@pytest.mark.parametrize("written", ["whole", "cut", "list"])
def test_what_a_dead_run_left_is_restored(written: str, act: Act, directory: Path) -> None:
    """Whatever state its journal is in."""
    before = content(directory)
    act("instrument")
    text = json.dumps(
        {"pid": 1, "host": "h", "started": 1.0, "command": "c", "wrappers": list(NAMES)}
    )
    (directory / journal.NAME).write_text({"whole": text, "cut": text[:40], "list": "[]"}[written])
    code, _, err = act("list")
    assert code == 0
    assert "restored 5 wrappers that an interrupted `cache run` left" in err
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
    tail = (
        "import sys; from rewriter.cli import main\n"
        "for action in (['list'], ['instrument'], ['status'], ['restore']):\n"
        "    main(['cache', *action, '--dir', sys.argv[1]])\n"
        f"assert not [x for x in {HEAVY!r} if x in sys.modules]"
    )
    done = subprocess.run(
        [sys.executable, "-c", tail, str(directory)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_readers_see_whole_files(act: Act, directory: Path) -> None:
    """A program that starts meanwhile reads one version or the other."""
    watch = (
        "import sys, hashlib, pathlib\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "seen = set()\n"
        "print('ready', flush=True)\n"
        "while not pathlib.Path(sys.argv[2]).exists():\n"
        "    seen.add(hashlib.sha256(path.read_bytes()).hexdigest())\n"
        "print(*seen)\n"
    )
    stop = directory.parent / "stop"

    def digest() -> str:
        return hashlib.sha256((directory / MLP).read_bytes()).hexdigest()

    allowed = {digest()}
    with subprocess.Popen(
        [sys.executable, "-c", watch, str(directory / MLP), str(stop)],
        stdout=subprocess.PIPE,
        text=True,
    ) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        for _ in range(10):
            act("instrument", "cabmlp*")
            allowed.add(digest())
            act("restore")
        stop.touch()
        seen = set(reader.stdout.read().split())
    assert reader.returncode == 0
    assert seen <= allowed


_SELECTIONS = st.fixed_dictionaries(
    {
        "--probe": st.sampled_from(["names", "print", "save", "hash", "names,print"]),
        "--when": st.sampled_from(["before", "after", "both"]),
    },
    optional={
        "--kernels": st.sampled_from(["*addmm*", "cpp_fused_*", "triton_*"]),
        "--newest": st.sampled_from(["1", "2", "3"]),
        "globs": st.sampled_from(["cab*", "c[ae]*", "cd/*", "*"]),
    },
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("property") / "cache")


@examples(10)
def test_restore_gives_back_every_selection(draw: st.DataObject, shared: Path) -> None:
    steps = draw.draw(st.lists(_SELECTIONS, min_size=1, max_size=3))
    before = content(shared)
    for step in steps:
        globs = [step.pop("globs")] if "globs" in step else []
        words = [word for option in step.items() for word in option]
        code = cli.main(["cache", "instrument", "--dir", str(shared), *words, *globs])
        assert code in (0, 2)
        step.update({"globs": globs[0]} if globs else {})
    assert cli.main(["cache", "restore", "--dir", str(shared)]) == 0
    assert content(shared) == before


def test_in_a_process_of_its_own(directory: Path) -> None:
    before = content(directory)
    assert cache("instrument", "--dir", directory, "--probe", "save").returncode == 0
    assert cache("status", "--dir", directory).returncode == 1
    assert cache("restore", "--dir", directory, "--json").returncode == 0
    assert content(directory) == before
