"""Debug directories, logs of TORCH_TRACE and pages of tlparse: `list`, `instrument`, `strip`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rewriter
from artifacts import ARTIFACTS
from fuzzing import snapshot
from imports import HEAVY, imported
from rewriter.cli import main
from rewriter.core import files as write
from rewriter.core.errors import BAD_INPUT, DIFFERS, OK, RewriterError
from rewriter.core.transaction import Transaction

pytestmark = pytest.mark.properties

TRACES = ARTIFACTS.parent / "traces"
DEBUG = TRACES / "debug"
LOG = TRACES / "log-python"
GRAPHS = ["0_0_0/forward.py", "0_0_0/backward.py", "0_1_0/forward.py", "0_1_0/backward.py"]


def log_in(folder: Path) -> Path:
    (log,) = folder.glob("*.log")
    return log


def sources(folder: Path) -> dict[str, bytes]:
    return {wrapper.name: wrapper.source for wrapper in rewriter.open(folder).wrappers}


@pytest.fixture
def debug(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DEBUG, tmp_path / "torch_compile_debug"))


def in_debug(compilation: int, graph: str) -> bytes:
    (file,) = DEBUG.rglob(f"model__{compilation}_{graph}_*/output_code.py")
    return file.read_bytes()


@pytest.mark.parametrize(
    ("path", "graph"),
    [
        ("cpu-torch2.13/mlp/python/output_code.py", "inference"),
        ("cpu-torch2.13/mlp/cpp_wrapper/output_code.py", "inference"),
        ("cpu-torch2.13/dtypes/aoti-arrayref/wrapper.cpp", "inference"),
        ("cuda-torch2.6/gpt/python/output_code.py", "inference"),
        ("cuda-torch2.11/gpt_train/python/output_code.py", "backward"),
        ("cuda-torch2.11/gpt_train/python/output_code1.py", "forward"),
        ("cuda-torch2.11/gpt_train/cpp_wrapper/output_code.py", "backward"),
        ("cuda-torch2.11/gpt_train/cpp_wrapper/output_code1.py", "forward"),
        ("cpu-torch2.13/conv_train/cpp_wrapper/output_code.py", "forward"),
        ("cpu-torch2.13/conv_train/cpp_wrapper/output_code1.py", "backward"),
    ],
)
def test_graphs_are_told_apart(path: str, graph: str) -> None:
    wrapper = rewriter.open(ARTIFACTS / path).only
    assert wrapper.graph == graph
    assert "located" not in vars(wrapper)


def test_one_input_is_enough(tmp_path: Path) -> None:
    """Names of values in the body, in strings and in the benchmark say nothing."""
    path = tmp_path / "output_code.py"
    source = in_debug(0, "forward")
    inputs = b"primals_1, primals_2, primals_3, primals_4, primals_5 = args"
    assert inputs in source
    for written, graph in {
        b"arg0_1, = args": "inference",
        b"tangents_1, = args": "backward",
    }.items():
        path.write_bytes(source.replace(inputs, written))
        assert rewriter.open(path).only.graph == graph


def test_a_debug_directory_holds_its_wrappers_and_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["list", str(DEBUG)]) == OK
    said = capsys.readouterr()
    heads = [line for line in said.out.splitlines() if "output_code.py" in line]
    kinds = [head.partition(": ")[2].partition(", ") for head in heads]
    assert [kind for kind, _, _ in kinds] == ["backward", "forward"] * 2
    names = [head.partition(": ")[0] for head in heads]
    # Each names the other one of its compilation.
    others = [names[number ^ 1] for number in range(4)]
    assert [partner.rpartition(" is ")[2] for _, _, partner in kinds] == others
    assert "16 launches, 0 unrecognised calls; graphs: 2 forward, 2 backward" in said.err
    assert main(["list", str(DEBUG), "--json"]) == OK
    content = json.loads(capsys.readouterr().out)
    assert [one["launches"] for one in content["wrappers"]] == [5, 3, 5, 3]
    assert {one["graph"] for one in content["wrappers"]} == {"forward", "backward"}
    assert all(Path(one["file"]).is_file() for one in content["wrappers"])
    assert len(content["launches"]) == 16


def test_a_log_beside_a_debug_directory_is_the_same_wrappers(debug: Path) -> None:
    """As `TORCH_COMPILE_DEBUG` leaves it in torch 2.13, with probes in the files, too."""
    (debug / "tlparse").mkdir()
    shutil.copy(log_in(LOG), debug / "tlparse")
    assert sorted(sources(debug)) == sorted(sources(DEBUG))
    assert main(["instrument", str(debug), "--in-place", "--wrapper", "backward"]) == OK
    assert sorted(sources(debug)) == sorted(sources(DEBUG))


@pytest.mark.parametrize("path", [LOG, log_in(LOG)], ids=["directory", "file"])
def test_a_log_gives_every_wrapper_byte_for_byte(path: Path) -> None:
    found = sources(path)
    assert list(found) == GRAPHS
    for name, source in found.items():
        assert source == in_debug(int(name[2]), Path(name).stem)


@pytest.mark.parametrize("kind", ["pages", "pages-plain"])
def test_pages_give_every_wrapper_byte_for_byte(kind: str) -> None:
    found = sources(TRACES / kind)
    assert list(found) == GRAPHS[:2]
    assert list(found.values()) == [in_debug(0, "forward"), in_debug(0, "backward")]
    for page in (TRACES / kind).rglob("*_code_*"):
        assert rewriter.open(page).only.source in found.values()


def test_a_page_shows_cpp_as_it_was() -> None:
    log = sources(TRACES / "log-cpp")
    (page,) = rewriter.open(TRACES / "pages-cpp").wrappers
    assert (page.name, page.language) == ("0_0_0/forward.py", "cpp")
    assert page.source == log["0_0_0/forward.py"]
    assert b"&lt;" in next((TRACES / "pages-cpp").rglob("*.html")).read_bytes()
    assert [one.graph for one in rewriter.open(TRACES / "log-cpp").wrappers] == [
        "forward",
        "backward",
    ] * 2


def test_what_is_compiled_ahead_of_time_has_no_frame() -> None:
    (wrapper,) = rewriter.open(TRACES / "log-aoti").wrappers
    assert (wrapper.name, wrapper.language) == ("no_frame/inference.cpp", "cpp")
    assert [launch.kernel for launch in wrapper.launches] == [
        "aoti_torch_cpu_addmm_out",
        "cpp_fused_relu_0",
    ]


def test_ranks_and_processes_are_kept_apart(tmp_path: Path) -> None:
    text = log_in(LOG).read_bytes()
    for rank in (0, 1):
        name = f"dedicated_log_torch_trace_rank_{rank}_x.log"
        numbered = text.replace(b'"frame_id"', b'"rank": %d, "frame_id"' % rank)
        (tmp_path / name).write_bytes(numbered)
    assert list(sources(tmp_path)) == [f"rank_{rank}/{name}" for rank in (0, 1) for name in GRAPHS]
    (tmp_path / "again.log").write_bytes(text)
    (tmp_path / "once_more.log").write_bytes(text)
    unnumbered = [name for name in sources(tmp_path) if not name.startswith("rank_")]
    assert unnumbered == [f"{log}/{name}" for log in ("again", "once_more") for name in GRAPHS]


def test_graphs_of_one_compilation_are_numbered(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    text = log_in(LOG).read_bytes()
    log.write_bytes(text.replace(b'"frame_compile_id": 1', b'"frame_compile_id": 0'))
    assert list(sources(log)) == [
        "0_0_0/forward.py",
        "0_0_0/backward.py",
        "0_0_0/forward_2.py",
        "0_0_0/backward_2.py",
    ]
    log.write_bytes(text + text)
    assert list(sources(log)) == GRAPHS


def test_a_log_that_was_cut_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "x.log"
    log.write_bytes(log_in(LOG).read_bytes()[:-40])
    assert main(["list", str(log)]) == OK
    said = capsys.readouterr()
    assert (
        f"not read: 0_1_0/backward.py: {log}: 0_1_0/backward.py: its text was cut short" in said.err
    )
    assert "11 launches" in said.err
    out = tmp_path / "out"
    assert main(["instrument", str(log), "-o", str(out)]) == BAD_INPUT
    error = capsys.readouterr().err
    assert "error[damaged-trace]" in error
    assert "--wrapper takes the names of others" in error
    assert not out.exists()
    assert main(["instrument", str(log), "-o", str(out), "--wrapper", "backward"]) == BAD_INPUT
    assert main(["instrument", str(log), "-o", str(out), "--wrapper", "forward"]) == OK
    assert sorted(snapshot(out)) == ["0_0_0/forward.py", "0_1_0/forward.py"]


def test_an_entry_that_cannot_be_read_is_not_left_out(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    text = log_in(LOG).read_bytes()
    log.write_bytes(text.replace(b'"inductor_output_code": ', b'"inductor_output_code" ', 1))
    artifact = rewriter.open(log)
    assert len(artifact.wrappers) == len(rewriter.open(LOG).wrappers) - 1
    ((name, error),) = artifact.damaged
    assert (name, error.slug) == ("no_frame/forward.py", "damaged-trace")
    assert "the line before its text" in error.message


def test_a_page_that_was_cut_short(tmp_path: Path) -> None:
    pages = Path(shutil.copytree(TRACES / "pages", tmp_path / "pages"))
    page = next(pages.rglob("*_13.html"))
    page.write_bytes(page.read_bytes()[:-20])
    artifact = rewriter.open(pages)
    assert [wrapper.name for wrapper in artifact.wrappers] == ["0_0_0/backward.py"]
    assert [(name, error.slug) for name, error in artifact.damaged] == [
        ("0_0_0/forward.py", "damaged-trace")
    ]


def test_what_may_not_be_read_is_named_and_the_rest_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = Path(shutil.copytree(TRACES / "pages", tmp_path / "pages"))
    log = Path(shutil.copy(log_in(LOG), tmp_path / "own.log"))
    page = next(pages.rglob("*_13.html"))
    open_ = Path.open

    def refuse(self: Path, *args: Any, **options: Any) -> Any:
        if self in (log, page):
            raise PermissionError(13, "Permission denied")
        return open_(self, *args, **options)

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(Path, "read_bytes", lambda self: self.open("rb").read())
    monkeypatch.setattr("os.access", lambda path, mode: path not in (log, page))
    artifact = rewriter.open(tmp_path)
    assert [wrapper.graph for wrapper in artifact.wrappers] == ["backward"]
    assert artifact.unread == (("own.log", "a log that may not be read"),)
    ((name, error),) = artifact.damaged
    assert (name, error.slug) == (str(page.relative_to(tmp_path)), "unreadable")


def test_an_entry_without_its_text_names_the_file(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    heads = [line for line in log_in(LOG).read_bytes().splitlines(True) if line[:1] != b"\t"]
    log.write_bytes(b"".join(heads).replace(b'"has_payload"', b'"had_payload"'))
    with pytest.raises(RewriterError, match="no text of it; it was in /tmp/torchinductor_user"):
        rewriter.open(log)


@pytest.mark.parametrize(
    "text",
    [
        b"V1121 15:11:18.209000 11004 some.py:303] {\n",
        b'V1121 15:11:18.209000 11004 some.py:303] {"inductor_output_code": {}, "has_pay',
        b'V1121 15:11:18.209000 11004 some.py:303] {"str": ["inductor_output_code", 1]}\n\tx\n',
        b'V1121 15:11:18.209000 11004 some.py:303] {"graph_dump": {"name": "x_wrapper_code"}}\n',
    ],
    ids=["no-object", "cut-short", "a-string", "another-graph"],
)
def test_entries_that_are_no_wrappers(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.log").write_bytes(text)
    with pytest.raises(RewriterError) as caught:
        rewriter.open(tmp_path)
    assert caught.value.slug == "no-artifacts"


def test_choosing(capsys: pytest.CaptureFixture[str]) -> None:
    artifact = rewriter.open(LOG)
    with pytest.raises(RewriterError) as caught:
        artifact.choose(["0_0_0/*", "forwards"])
    assert caught.value.slug == "no-such-wrapper"
    assert "'forwards' matches nothing" in caught.value.message
    assert all(name in caught.value.message for name in GRAPHS)
    with pytest.raises(RewriterError, match="--wrapper"):
        _ = artifact.only
    assert artifact.choose([]) is artifact
    for patterns, names in [
        (["forward"], GRAPHS[::2]),
        (["0_1_0/*"], GRAPHS[2:]),
        (["*1*backward*", "0_0_0/forward.py"], [GRAPHS[0], GRAPHS[3]]),
    ]:
        assert [one.name for one in artifact.choose(patterns).wrappers] == names
    assert main(["list", str(DEBUG), "--wrapper", "*model__1_forward*"]) == OK
    assert "3 launches" in capsys.readouterr().err


def test_a_package_has_models_to_choose(capsys: pytest.CaptureFixture[str]) -> None:
    package = ARTIFACTS / "cuda-torch2.11" / "mlp" / "package" / "model.pt2"
    assert main(["list", str(package), "--wrapper", "forward"]) == BAD_INPUT
    assert "--model" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["debug", "log-python", "pages"])
def test_nothing_imports_torch(kind: str, tmp_path: Path) -> None:
    trace = TRACES / kind
    commands = [["list", trace], ["instrument", trace, "-o", tmp_path / "out"]]
    code = "import json, sys; from rewriter.cli import main\n"
    code += "for line in json.loads(sys.argv[1]): main(line); sys.stdout.flush()"
    words = [list(map(str, command)) for command in [*commands, ["diff", trace, LOG]]]
    done = imported(code, json.dumps(words))
    assert "rewriter" in done
    assert done.isdisjoint(HEAVY)


@pytest.mark.parametrize(
    ("options", "slug"),
    [
        ([], "read-only-trace"),
        (["--in-place"], "read-only-trace"),
        (["--in-place", "--wrapper", "0_0_0/forward.py"], "read-only-trace"),
        (["-o", "-"], "several-wrappers"),
        (["--wrapper", "nobody", "-o", "-"], "no-such-wrapper"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("command", ["instrument", "strip"])
def test_a_log_stays_as_it_is(
    command: str, options: list[str], slug: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(LOG, tmp_path / "log"))
    assert main([command, str(folder), *options]) == BAD_INPUT
    assert f"error[{slug}]" in capsys.readouterr().err
    assert snapshot(tmp_path) == {f"log/{name}": data for name, data in snapshot(LOG).items()}


@pytest.mark.parametrize("kind", ["log-python", "log-cpp", "log-aoti", "pages", "pages-plain"])
def test_a_mirror_holds_the_wrappers_with_probes(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = ["instrument", str(TRACES / kind), "-o", str(out), "--probe", "print", "--json"]
    assert main(command) == OK
    content = json.loads(capsys.readouterr().out)
    plain = sources(TRACES / kind)
    written = snapshot(out)
    assert list(written) != []
    assert sorted(written) == sorted(plain)
    assert [one["wrapper"] for one in content["wrappers"]] == list(plain)
    assert all(one["launches"] and not one["skipped"] for one in content["wrappers"])
    assert all(rewriter.open(out / name).only.probes for name in written)
    assert rewriter.diff(TRACES / kind, out).verdict == "instrumented"
    assert main(["strip", str(out), "--in-place"]) == OK
    assert snapshot(out) == plain


def test_one_wrapper_of_a_log_goes_to_a_file(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    target = tmp_path / "forward.py"
    one = ["--wrapper", "0_1_0/forward.py", "--probe", "names"]
    assert main(["instrument", str(LOG), *one, "-o", str(target)]) == OK
    assert rewriter.strip(target).source == in_debug(1, "forward")
    assert main(["instrument", str(LOG), *one, "-o", "-"]) == OK
    assert capfdbinary.readouterr().out == target.read_bytes()


def test_in_place_and_back(debug: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = snapshot(debug)
    command = ["instrument", str(debug), "--in-place", "--probe", "names"]
    assert main([*command, "--check"]) == DIFFERS
    assert main([*command[:2], "--probe", "names", "--diff"]) == OK
    assert capsys.readouterr().out.count("\n+++ b/run_") == 4
    assert snapshot(debug) == before
    assert main([*command, "--wrapper", "forward"]) == OK
    assert "2 wrappers changed in place, 2 originals kept" in capsys.readouterr().err
    assert len(list(debug.rglob("*.orig"))) == 2
    assert main(command) == BAD_INPUT
    assert "error[already-instrumented]" in capsys.readouterr().err
    assert len(list(debug.rglob("*.orig"))) == 2
    assert main([*command, "--replace", "--probe", "print"]) == OK
    backups = list(debug.rglob("*.orig"))
    assert len(backups) == 4
    backups[0].unlink()
    assert main([*command, "--replace", "--probe", "print"]) == OK
    assert "0 wrappers changed in place\n" in capsys.readouterr().err
    assert len(list(debug.rglob("*.orig"))) == 3  # what stays as it is needs none
    assert main(["strip", str(debug), "--check"]) == DIFFERS
    assert main(["strip", str(debug), "--in-place", "--json"]) == OK
    assert json.loads(capsys.readouterr().out)["exact"] is True
    assert snapshot(debug) == before
    assert main(["strip", str(debug), "--check"]) == OK


def test_a_wrapper_that_cannot_be_read_stops_all(
    debug: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = next(debug.rglob("model__1_backward*/output_code.py"))
    broken.write_bytes(
        broken.read_bytes().replace(b"def call(self, args):", b"def call(self, args:")
    )
    before = snapshot(debug)
    for where in (["--in-place"], ["-o", str(debug.parent / "out")]):
        assert main(["instrument", str(debug), *where]) == BAD_INPUT
        error = capsys.readouterr().err
        assert f"error[syntax-error]: {broken}" in error
        assert "--wrapper takes the names of others" in error
        assert snapshot(debug.parent) == {f"{debug.name}/{name}": before[name] for name in before}
    others = ["--wrapper", "forward", "--wrapper", "*model__0_*"]
    assert main(["instrument", str(debug), "--in-place", *others]) == OK
    assert len(list(debug.rglob("*.orig"))) == 3


def test_a_file_that_cannot_be_written_undoes_the_others(
    debug: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(debug)
    real: Callable[..., object] = write.put_in_place
    calls = []

    def failing(changes: Transaction, path: Path, *arguments: bytes, overwrite: bool) -> object:
        calls.append(path)
        if len(calls) == 3:
            raise RewriterError("unwritable", f"cannot write {path}: No space left on device")
        return real(changes, path, *arguments, overwrite=overwrite)

    monkeypatch.setattr(write, "put_in_place", failing)
    assert main(["instrument", str(debug), "--in-place"]) == BAD_INPUT
    assert len(calls) == 3
    assert snapshot(debug) == before


def test_a_mirror_is_written_whole_or_not_at_all(
    debug: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = debug.parent / "out"
    names = list(sources(debug))
    (out / names[2]).parent.mkdir(parents=True)
    (out / names[2]).write_text("somebody's")
    assert main(["instrument", str(debug), "-o", str(out)]) == BAD_INPUT
    assert "error[exists]" in capsys.readouterr().err
    assert snapshot(out) == {names[2]: b"somebody's"}
    assert main(["instrument", str(debug), "-o", str(out), "--overwrite"]) == OK
    assert sorted(snapshot(out)) == sorted(names)
    before = snapshot(debug)
    assert main(["instrument", str(debug), "-o", str(debug), "--overwrite"]) == BAD_INPUT
    assert "--in-place" in capsys.readouterr().err
    (debug.parent / "file").write_text("")
    assert main(["instrument", str(debug), "-o", str(debug.parent / "file")]) == BAD_INPUT
    assert snapshot(debug) == before


def test_operators_go_along(tmp_path: Path) -> None:
    customop = ARTIFACTS / "cpu-torch2.13" / "customop" / "aoti"
    folder = Path(shutil.copytree(customop, tmp_path / "a" / "customop"))
    shutil.copytree(ARTIFACTS / "cpu-torch2.13" / "mlp" / "aoti", tmp_path / "a" / "mlp")
    out = tmp_path / "out"
    assert main(["instrument", str(folder.parent), "-o", str(out)]) == OK
    assert sorted(snapshot(out)) == [
        "customop/wrapper.cpp",
        "customop/wrapper.json",
        "mlp/wrapper.cpp",
    ]
    kernels = {launch.kernel for launch in rewriter.open(out / "customop").launches}
    assert any("torch.ops." in kernel for kernel in kernels)


def test_names_of_folders_do_not_act_on_the_terminal(
    debug: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = next(debug.rglob("model__1_backward*"))
    odd.rename(odd.with_name("\x1b[31mred"))
    for command in (
        ["list", str(debug)],
        ["instrument", str(debug), "--check"],
        ["instrument", str(debug)],
    ):
        assert main(command) in (OK, DIFFERS, BAD_INPUT)
        said = "".join(capsys.readouterr())
        assert "\x1b" not in said
        assert "\\x1b[31mred/output_code.py" in said
