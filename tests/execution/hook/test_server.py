"""What a program that loads a wrapper is answered."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import rewriter
from artifacts import get
from caches import BACKWARD, CPP, CUDA, MLP, NAMES, content, make
from rewriter.core.edit import line_origins
from rewriter.execution.hook import server as module
from rewriter.execution.hook.server import Process, Server
from rewriter.execution.hook.startup.sitecustomize import Hook
from rewriter.instrumentation.instrument import instrument_wrapper
from rewriter.instrumentation.select import select

PLAIN = get("cpu-torch2.13/mlp").data


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return make(tmp_path / "cache")


def ask(server: Server, path: Path, text: bytes | None = None, **more: Any) -> Any:
    """The answer to a process that loads a file."""
    question = {"path": str(path), "pid": 7, "process": "", **more}
    return server.answer(question, path.read_bytes() if text is None else text)


def test_a_wrapper_gets_probes(directory: Path, tmp_path: Path) -> None:
    before = content(directory)
    server = Server(select("names"), _folder=tmp_path)
    answer = ask(server, directory / MLP, process="Worker")
    (tmp_path / "files-7.txt").write_bytes(b"/m/model.bin\0/m/cut")  # it was killed meanwhile
    probed = tmp_path / "probed.py"
    probed.write_text(answer["text"])
    assert rewriter.strip(probed).source == PLAIN
    assert "from rewriter.runtime import attach" in answer["text"]  # the hook exchanges the name
    assert "build" not in answer
    (one,) = server.loaded
    assert one.path == directory / MLP
    assert one.short.startswith("cabmlp0000")
    assert one.error is None
    assert one.result is not None
    assert len(one.result.plan.probed) == 5
    lines = line_origins(one.wrapper.plain, one.result.plan.insertions)
    assert answer["lines"] == [number for number, _ in lines]
    read = (Path("/m/model.bin"),)
    assert server.processes == {7: Process(7, "Worker", (directory / MLP,), read)}
    assert content(directory) == before


def test_cpp_is_built_in_a_folder_of_ours(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWRITER_CACHE_DIR", str(tmp_path / "own"))
    assert ask(Server(select("names")), directory / CPP)["build"] == str(tmp_path / "own/wrappers")
    monkeypatch.setenv("REWRITER_CACHE_DIR", "off")
    server = Server(select("names"))
    with server.listening(tmp_path):
        assert ask(server, directory / CPP)["build"] == str(tmp_path / "wrappers")


@pytest.mark.parametrize(
    ("options", "globs", "chosen"),
    [
        pytest.param({}, ("nosuch*",), [], id="no name"),
        pytest.param({}, ("cab",), [], id="too short to stand for a hash"),
        pytest.param({"kernels": "nosuch*"}, (), [], id="no kernel"),
        pytest.param({"kernels": "triton_*"}, ("cabmlp*",), [], id="one of two"),
        pytest.param({}, (), list(NAMES), id="all"),
        pytest.param({}, ("cabmlp*",), [MLP], id="a name"),
        pytest.param({}, ("backward", "cabmlp0"), [MLP, BACKWARD], id="a kind of graph"),
        pytest.param({"kernels": "triton_*"}, (), [CUDA], id="a kernel"),
    ],
)
def test_what_is_not_chosen_runs_as_it_is(
    options: dict[str, str], globs: tuple[str, ...], chosen: list[str], directory: Path
) -> None:
    server = Server(select("names", **options), globs)
    answered = [name for name in NAMES if ask(server, directory / name)]
    assert answered == chosen
    loaded = {str(one.path.relative_to(directory)): one for one in server.loaded}
    assert list(loaded) == list(NAMES)
    assert [name for name, one in loaded.items() if one.result is not None] == chosen
    assert not any(one.error for one in loaded.values())


def test_what_is_no_wrapper(directory: Path, tmp_path: Path) -> None:
    """It is not loaded; what else the process read is noted."""
    server = Server(select("names"), _folder=tmp_path)
    (tmp_path / "files-7.txt").write_bytes(b"/m/a\0/m/b\0/m/a\0")
    assert ask(server, directory / "ab/cabkernel.py") == {}
    assert ask(server, directory / "ab/cabkernel.py") == {}
    assert server.loaded == ()
    assert server.processes == {7: Process(7, "", (), (Path("/m/a"), Path("/m/b")))}


@pytest.mark.parametrize("kernels", [None, "*"])
def test_what_cannot_have_probes_is_refused(kernels: str | None, directory: Path) -> None:
    broken = PLAIN.replace(b"def call(", b"def call((", 1)
    server = Server(select("names", kernels=kernels))
    assert ask(server, directory / MLP, broken) == {}
    assert [one.error.slug if one.error else "" for one in server.loaded] == ["syntax-error"]
    other = Server(select("names", launches=[4711]))
    assert ask(other, directory / MLP) == {}
    assert [one.error.slug if one.error else "" for one in other.loaded] == ["no-launch-matches"]


def test_the_same_text_is_instrumented_once(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks have the same wrapper, in one cache or each in its own."""
    made = []

    def instrument(wrapper: Any, *arguments: Any, **options: Any) -> Any:
        made.append(wrapper.path)
        return instrument_wrapper(wrapper, *arguments, **options)

    monkeypatch.setattr(module, "instrument_wrapper", instrument)
    server = Server(select("names"))
    places = [directory / MLP, directory / MLP, make(tmp_path / "other", [MLP]) / MLP]
    answers = [ask(server, path, pid=number) for number, path in enumerate(places)]
    assert answers[0]["text"]
    assert answers == [answers[0]] * 3
    assert made == [directory / MLP]
    assert [one.path for one in server.loaded] == [places[0], places[2]]
    assert [one.wrappers for one in server.processes.values()] == [(path,) for path in places]
    # Another text at the same path, as after a change of the program, is another wrapper.
    assert ask(server, directory / MLP, PLAIN + b"# changed\n")["text"].endswith("# changed\n")


def test_several_ask_at_once(directory: Path, tmp_path: Path) -> None:
    """Each gets the answer to its question, through the socket."""
    server = Server(select("names"))
    answers: dict[str, Any] = {}
    with server.listening(tmp_path) as address:

        def load(name: str) -> None:
            path = directory / name
            answers[name] = Hook(str(address))._ask(path.read_text(), str(path))

        threads = [threading.Thread(target=load, args=(name,)) for name in NAMES]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(one.path for one in server.loaded) == sorted(directory / x for x in NAMES)
    again = Server(select("names"))
    assert answers == {name: ask(again, directory / name) for name in NAMES}
    with pytest.raises(OSError, match="refused"):
        Hook(str(address))._ask("", "x.py")
