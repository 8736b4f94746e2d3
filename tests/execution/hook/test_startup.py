"""The start-up module by itself, in programs that import no torch."""

from __future__ import annotations

import ast
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from socketserver import StreamRequestHandler, UnixStreamServer
from typing import Any

import pytest

from loading import search_path, write_torch
from rewriter.execution.hook import STARTUP
from rewriter.execution.hook.startup import sitecustomize

Done = subprocess.CompletedProcess[str]
WRAPPER = "from_torch = 'AsyncCompile'\nx = 1\n"
OTHER = {"text": "x = 2\n", "lines": [1, 2, 3]}
MODULES = "import sys; print(*sorted(sys.modules))"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "wrapper.py").write_text(WRAPPER)
    (tmp_path / "kernel.py").write_text("y = 1\n")
    return write_torch(tmp_path)


def python(
    folder: Path, code: str, *arguments: str, path: str = "", variable: str = "REWRITER_HOOK"
) -> Done:
    """Run code in a new Python with the start-up module, in a folder, which asks the server whose
    socket is there."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("REWRITER_")}
    environment |= {"PYTHONPATH": path or search_path(folder), variable: str(folder / "socket")}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def answered(
    folder: Path, answer: dict[str, Any] | str, code: str, *arguments: str, path: str = ""
) -> tuple[Done, list[tuple[dict[str, Any], str]]]:
    """Run code where a server gives each question the same answer; with the questions."""
    text = answer if isinstance(answer, str) else json.dumps(answer)
    questions = []

    class Answer(StreamRequestHandler):
        def handle(self) -> None:
            questions.append((json.loads(self.rfile.readline()), self.rfile.read().decode()))
            self.wfile.write(text.encode())

    with UnixStreamServer(str(folder / "socket"), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            return python(folder, code, *arguments, path=path), questions
        finally:
            server.shutdown()
            thread.join()


LOAD = """
import sys
from torch._inductor import codecache
from torch._inductor.runtime import compile_tasks
for path in sys.argv[1:]:
    print(compile_tasks._reload_python_module("key", path).get("x"))
"""


def test_it_hands_over_to_the_module_that_it_displaces(folder: Path) -> None:
    (folder / "sitecustomize.py").write_text("print('other')\n")
    code = "import sys, sitecustomize; print(sitecustomize.__file__, *sys.path, sep='\\n')"
    done = python(folder, code)
    first, file, *places = done.stdout.splitlines()
    assert (first, file) == ("other", str(folder / "sitecustomize.py"))
    assert str(folder) in places
    assert str(STARTUP) not in places
    assert done.stderr == ""


@pytest.mark.parametrize("variable", ["REWRITER_HOOK", "REWRITER_NOTHING"])
def test_a_program_without_torch_has_the_same_modules(variable: str, folder: Path) -> None:
    plain = python(folder, MODULES, path=str(folder), variable="REWRITER_NOTHING")
    hooked = python(folder, MODULES, variable=variable)
    assert hooked.stdout == plain.stdout
    assert hooked.stderr == plain.stderr == ""


def test_without_a_variable_nothing_is_changed(folder: Path) -> None:
    code = LOAD + "print(*map(type, sys.meta_path))"
    done = python(folder, code, "wrapper.py", variable="REWRITER_NOTHING")
    first, finders = done.stdout.splitlines()
    assert first == "1"
    assert "Waiting" not in finders


def test_what_a_wrapper_is_compiled_from(folder: Path) -> None:
    """The text with probes, of a wrapper alone; the file stays as it is."""
    answer = {"text": "p = 0\n" + WRAPPER.replace("1", "2"), "lines": [1, 1, 2, 3]}
    (folder / "model.bin").touch()
    (folder / "notes.txt").touch()
    code = f"open('model.bin').close(); open('notes.txt').close()\n{LOAD}"
    # What a process has written is known, too, if it is killed then.
    code += "\nopen('artifact', 'w').close(); sys.stdout.flush()"
    code += "\nimport os; os.kill(os.getpid(), 9)"
    done, questions = answered(folder, answer, code, "kernel.py", "wrapper.py")
    assert done.stdout.split() == ["None", "2"], done.stderr
    assert done.stderr == ""
    ((question, text),) = questions
    assert text == WRAPPER == (folder / "wrapper.py").read_text()
    assert question["path"] == "wrapper.py"
    assert question["process"] == ""
    (noted,) = folder.glob("files-*.txt")
    names = noted.read_text().split("\0")
    assert {str(folder / "model.bin"), str(folder / "artifact")} < {*names}
    assert str(folder / "notes.txt") not in names
    assert not (folder / sitecustomize.PLAIN).exists()


def test_a_process_that_was_forked_notes_what_it_reads_again(folder: Path) -> None:
    (folder / "model.bin").touch()
    code = f"open('model.bin').close()\n{LOAD}\nimport os\nchild = os.fork()\n"
    code += "open('model.bin').close()\nif child: os.waitpid(child, 0)"
    done, _ = answered(folder, {}, code, "wrapper.py")
    assert done.stderr == ""
    noted = [file.read_text().split("\0") for file in folder.glob("files-*.txt")]
    assert [names.count(str(folder / "model.bin")) for names in noted] == [1, 1]


def test_a_wrapper_that_is_to_have_no_probes(folder: Path) -> None:
    done, questions = answered(folder, {}, LOAD, "wrapper.py", "wrapper.py")
    assert (done.stdout.split(), done.stderr) == (["1", "1"], "")
    assert len(questions) == 2


def test_cpp_with_probes_is_built_elsewhere(folder: Path) -> None:
    """While that wrapper is executed, and no longer."""
    text = "from torch._inductor import codecache\nx = codecache.cache_dir()\n"
    answer = {"text": text, "lines": [1, 2, 3], "build": "ours"}
    done, _ = answered(folder, answer, LOAD + "print(codecache.cache_dir())", "wrapper.py")
    assert done.stdout.splitlines() == ["ours", "of torch"], done.stderr


def test_cpp_is_built_elsewhere_in_a_process_that_had_imported_torch(folder: Path) -> None:
    (folder / "sitecustomize.py").touch()
    begun = f"""
import os, runpy
from torch._inductor import codecache
os.environ["REWRITER_HOOK"] = "socket"
runpy.run_path({sitecustomize.__file__!r}, run_name="sitecustomize")
print(codecache._reload_python_module("key", "wrapper.py")["x"], codecache.cache_dir())
"""
    text = "from torch._inductor import codecache\nx = codecache.cache_dir()\n"
    answer = {"text": text, "lines": [1, 2, 3], "build": "ours"}
    done, _ = answered(folder, answer, begun, path=str(folder))
    assert done.stdout.splitlines() == ["ours of torch"], done.stderr


def test_cpp_that_does_not_compile_with_our_lines_is_noted(folder: Path) -> None:
    text = "class CppCompileError(RuntimeError): pass\nraise CppCompileError\n"
    for build, noted in ("", False), ("ours", True):
        answer = {"text": text, "lines": [1, 2, 3], "build": build}
        done, _ = answered(folder, answer, LOAD, "wrapper.py")
        assert done.stderr.endswith("\nCppCompileError\n")
        assert ("does not compile with lines of ours" in done.stderr) == noted
        assert (folder / sitecustomize.PLAIN).exists() == noted
        (folder / "socket").unlink()


def test_tracebacks_have_the_lines_of_the_file(folder: Path) -> None:
    (folder / "wrapper.py").write_text("# AsyncCompile\n\nx = 1 / 0\n")
    text = "# AsyncCompile\np = 0\nq = 0\n\nx = 1 / 0\n"
    answer = {"text": text, "lines": [1, 2, 2, 2, 3, 4]}
    done, _ = answered(folder, answer, LOAD, "wrapper.py")
    assert 'File "wrapper.py", line 3, in <module>\n    x = 1 / 0\n' in done.stderr


@pytest.mark.parametrize("also", ["", "os.environ.clear()", "sys.stderr = None"])
def test_nobody_answers(also: str, folder: Path) -> None:
    """The wrapper runs as it is, which is said wherever something can be said."""
    code = f"import os, sys\n{also}\n{LOAD}"
    done = python(folder, code, "wrapper.py")
    assert done.stdout.split() == ["1"], done.stderr
    assert done.returncode == 0
    if also != "sys.stderr = None":
        assert done.stderr.startswith("rewriter: wrapper.py runs without probes: FileNotFoundError")
    if not also:
        row = ast.literal_eval((folder / sitecustomize.PLAIN).read_text())
        assert row["path"] == "wrapper.py"
        assert row["reason"].startswith("FileNotFoundError: ")


@pytest.mark.parametrize("answer", ["", "{", "[]", '{"text": "x = (", "lines": [1, 2, 3]}'])
def test_an_answer_that_cannot_be_used(answer: str, folder: Path) -> None:
    done, _ = answered(folder, answer, LOAD, "wrapper.py")
    if answer == "[]":
        assert done.stderr == ""
    else:
        assert "rewriter: wrapper.py runs without probes: " in done.stderr
    assert done.stdout.split() == ["1"]


def test_a_process_that_has_imported_the_compiler_already(folder: Path) -> None:
    """One that was forked from a server, such as that of `multiprocessing`."""
    code = (
        "import sys\nfrom torch._inductor.runtime import compile_tasks\n"
        f"sys.path.insert(0, {str(STARTUP)!r})\n"
        f"try:\n    import sitecustomize\nexcept ImportError:\n    pass\n{LOAD}"
    )
    done, _ = answered(folder, OTHER, code, "wrapper.py", path=str(folder))
    assert done.stdout.split() == ["2"], done.stderr


def test_a_folder_that_is_gone_disturbs_no_call(folder: Path) -> None:
    """The audit hook sees every file that is opened, also where names cannot be resolved."""
    (folder / "gone").mkdir()
    code = (
        "import os, shutil\n"
        f"os.makedirs({str(folder / 'data/x')!r})\n"
        f"open({str(folder / 'data/x/model.bin')!r}, 'w').close()\n"
        f"os.chdir({str(folder / 'gone')!r}); os.rmdir({str(folder / 'gone')!r})\n"
        f"shutil.rmtree({str(folder / 'data')!r}); print('ran')"
    )
    done = python(folder, code)
    assert (done.stdout, done.stderr) == ("ran\n", "")


def test_a_module_that_is_only_looked_for_is_found_again(folder: Path) -> None:
    looks = "import importlib.util as u; u.find_spec('torch._inductor.runtime.compile_tasks')\n"
    done, _ = answered(folder, OTHER, looks + LOAD, "wrapper.py")
    assert done.stdout == "2\n", done.stderr


def test_after_a_failure_nothing_waits_again(folder: Path) -> None:
    (folder / "second.py").write_text(WRAPPER)
    done = python(folder, LOAD, "wrapper.py", "second.py")
    assert done.stdout.split() == ["1", "1"]
    first, second = done.stderr.splitlines()
    assert "FileNotFoundError" in first
    assert second.endswith("of an earlier wrapper")


def test_an_exception_of_a_signal_handler_is_the_program_s(folder: Path) -> None:
    code = (
        "import signal\n"
        "class Mine(Exception): pass\n"
        "def handle(*_): raise Mine('mine')\n"
        "signal.signal(signal.SIGALRM, handle); signal.setitimer(signal.ITIMER_REAL, 0.5)\n"
    )
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(folder / "socket"))
        silent.listen()
        done = python(folder, code + LOAD, "wrapper.py")
    assert "Mine: mine" in done.stderr
    assert done.returncode == 1


def test_a_failure_is_noted_through_no_link(folder: Path) -> None:
    victim = folder / "victim"
    victim.write_text("as it was")
    (folder / sitecustomize.PLAIN).symlink_to(victim)
    done = python(folder, LOAD, "wrapper.py")
    assert done.stdout.split() == ["1"]
    assert victim.read_text() == "as it was"
