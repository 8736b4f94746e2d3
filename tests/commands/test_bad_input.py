"""Bad input: a clear error, exit code 2, and nothing written."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from rewriter.artifact.recognise import unreadable
from rewriter.cli import main
from rewriter.commands._options import CheckOptions
from rewriter.commands._selection import nothing_recorded

SAMPLE = Path(__file__).parents[2] / "fixtures/artifacts/cuda-torch2.11/mlp/python/output_code.py"
UPSTREAM = SAMPLE.parent.parent / "python-upstream-print/output_code.py"


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    path = tmp_path / "output_code.py"
    path.write_bytes(SAMPLE.read_bytes())
    return path


def _cut(marker: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data[: data.index(marker)]


# What Inductor writes to measure one kernel (`codegen_kernel_benchmark` in codegen/triton.py).
MEASURED = b"""
import torch._inductor.runtime.triton_heuristics
@triton.jit
def triton_(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    pass


def call(args):
    with torch.cuda._DeviceGuard(0):
        stream0 = get_raw_stream(0)
        triton_.run(*args, stream=stream0)
"""
DAMAGED = {
    "empty": (lambda data: b"", "empty-file", "Copy it again"),
    "blank": (lambda data: b"\n \n", "empty-file", "empty"),
    "binary": (lambda data: data[:200] + b"\0\1\2" + data[200:], "binary-file", "offset 200"),
    "elf": (lambda data: b"\x7fELF" + data, "unsupported-artifact", "shared object"),
    "zip": (lambda data: b"PK\3\4" + data, "corrupt-package", "the zip file is damaged"),
    "latin-1": (lambda data: data + b"# caf\xe9\n", "not-utf8", "0xe9"),
    "utf-16": (lambda data: data.decode().encode("utf-16"), "binary-file", "zero byte"),
    "cut in a kernel": (lambda data: data[:9000], "syntax-error", "does not end"),
    "cut in a call": (_cut(b"            del arg0_1"), "truncated", "never returns"),
    "cut after the class": (_cut(b"runner = Runner"), "truncated", "`call`"),
    "cut before the class": (_cut(b"class Runner"), "not-a-wrapper", "no function `call`"),
    "syntax": (lambda data: data.replace(b"args.clear()", b"args.clear("), "syntax-error", "^"),
    "not read by libcst": (
        lambda data: b"x = [*y for(x)in y]\ndef f(): yield*x\n" + data,
        "syntax-error",
        "libcst",
    ),
    "indentation": (lambda data: b"  x = 1\n" + data, "syntax-error", "indent"),
    "not a wrapper": (lambda data: b"print('hello')\n", "not-a-wrapper", "torch._inductor"),
    "a Triton kernel": (
        lambda data: b"import torch._inductor\n@triton.jit\ndef k(x): pass\n",
        "not-a-wrapper",
        "it holds one kernel",
    ),
    "what measures a Triton kernel": (
        lambda data: MEASURED,
        "not-a-wrapper",
        "it holds one kernel",
    ),
}

# `list` shows their parameters; there is no launch that could get probes.
KERNELS = {"a Triton kernel", "what measures a Triton kernel", "the kernels of a CPU wrapper"}


def test_what_measures_a_kernel_is_no_wrapper_of_a_directory(
    plain: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain.with_name("measured.py").write_bytes(MEASURED)
    assert main(["list", str(plain.parent)]) == 0
    assert "measured.py" not in "".join(capsys.readouterr())


@pytest.mark.parametrize("command", ["list", "instrument", "strip", "run", "doctor"])
def test_a_package_that_is_no_zip_file_is_refused(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.pt2"
    path.write_bytes(b"version https://git-lfs")
    _refused(command, path, "corrupt-package", "begins with b'version '", capsys)


@pytest.mark.parametrize("command", ["list", "instrument", "strip", "run", "doctor"])
@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_files_are_refused(
    damage: str, command: str, plain: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, slug, says = DAMAGED[damage]
    if damage == "elf" and command == "list":
        slug = "bad-library"  # of a library it says what can be said
    plain.write_bytes(change(plain.read_bytes()))
    if damage in KERNELS and command == "list":
        assert main([command, str(plain)]) == 0
        return
    _refused(command, plain, slug, says, capsys)


@pytest.mark.parametrize("command", ["list", "instrument", "strip", "run", "doctor"])
def test_a_program_is_told_how_it_is_recorded(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "train.py"
    program.write_text("import torch\n\n\n@torch.compile\ndef f(x):\n    return x.half()\n")
    _refused(command, program, "not-a-wrapper", f"rewriter run -- python {program}", capsys)


# --- C++ ----------------------------------------------------------------------------------------

CPP = SAMPLE.parent.parent / "aoti/wrapper.cpp"
EMBEDDED = SAMPLE.parent.parent / "cpp_wrapper/output_code.py"
_ENTRY = b"void AOTInductorModel::run_impl("
_LAUNCH = b"aoti_torch_cuda_mm_out("


def _cut_in(marker: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data[: data.index(marker) + len(marker)]


DAMAGED_CPP = {
    "empty": (lambda data: b"", "empty-file", "empty"),
    "binary": (lambda data: data[:200] + b"\0" + data[200:], "binary-file", "offset 200"),
    "latin-1": (lambda data: data + b"// caf\xe9\n", "not-utf8", "0xe9"),
    "cut before the entry": (_cut(_ENTRY), "not-a-wrapper", "run_impl"),
    "cut in the entry's head": (_cut_in(_ENTRY), "truncated", "run_impl"),
    "cut in a launch": (_cut_in(_LAUNCH), "truncated", "ends too early"),
    "cut behind a launch": (_cut(b"output_handles[0] ="), "truncated", "ends too early"),
    "cut before the last brace": (_cut(b"} // AOTInductorModel::run_impl"), "truncated", "early"),
    "a parenthesis too many": (
        lambda data: data.replace(_LAUNCH, _LAUNCH + b"(", 1),
        "syntax-error",
        "aoti_torch_cuda_mm_out((",
    ),
    "no operator": (
        lambda data: data.replace(b"stream, kernels,", b"stream kernels,"),
        "syntax-error",
        "as C++",
    ),
    "its kernels": (
        lambda data: (CPP.parent / "kernel.cpp").read_bytes(),
        "not-a-wrapper",
        "no AOTInductorModel::run_impl",
    ),
    "the kernels of a CPU wrapper": (
        lambda data: b'extern "C" void cpp_fused_relu_0(const float* x, float* y)\n{\n}\n',
        "not-a-wrapper",
        "the kernels of a wrapper",
    ),
    "another program": (lambda data: b"int main() {}\n", "not-a-wrapper", "run_impl"),
}


@pytest.mark.parametrize("command", ["list", "instrument", "strip"])
@pytest.mark.parametrize("damage", DAMAGED_CPP)
def test_damaged_cpp_is_refused(
    damage: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, slug, says = DAMAGED_CPP[damage]
    path = tmp_path / "model.wrapper.cpp"
    path.write_bytes(change(CPP.read_bytes()))
    if damage in KERNELS and command == "list":
        assert main([command, str(path)]) == 0
        return
    _refused(command, path, slug, says, capsys)


DAMAGED_EMBEDDED = {
    "cut in the C++": (_cut(b"output_handles[0] ="), "syntax-error", "does not end"),
    "no entry in it": (
        lambda data: data.replace(b"inductor_entry_impl", b"other_impl"),
        "truncated",
        "inductor_entry_impl",
    ),
    "nothing in it": (
        lambda data: b"cpp_wrapper_src = (r'''x''')\ncall = f\n",
        "truncated",
        "no run_impl",
    ),
    "no string": (lambda data: b"cpp_wrapper_src = 3\n", "not-a-wrapper", "is no string"),
    "a parenthesis too many": (
        lambda data: data.replace(_LAUNCH, _LAUNCH + b"(", 1),
        "syntax-error",
        "output_code.py:369",
    ),
}


@pytest.mark.parametrize("command", ["list", "instrument", "strip"])
@pytest.mark.parametrize("damage", DAMAGED_EMBEDDED)
def test_damaged_cpp_in_a_string_is_refused(
    damage: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, slug, says = DAMAGED_EMBEDDED[damage]
    path = tmp_path / "output_code.py"
    path.write_bytes(change(EMBEDDED.read_bytes()))
    _refused(command, path, slug, says, capsys)


def _refused(
    command: str, path: Path, slug: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = path.read_bytes()
    code = main([command, str(path)])
    output = capsys.readouterr()
    assert code == 2
    assert f"error[{slug}]: {path}" in output.err
    assert says in output.err
    assert output.out == ""
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("command", ["list", "instrument", "strip"])
def test_python_around_the_cpp_that_does_not_parse_is_refused(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "output_code.py"
    path.write_bytes(EMBEDDED.read_bytes().replace(b"inductor_entry = ", b"inductor_entry = = "))
    _refused(command, path, "syntax-error", "invalid syntax", capsys)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"nodes": 3}', '{"other": []}', "\udcff"])
def test_a_broken_file_of_operators_is_named(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.wrapper.cpp"
    path.write_bytes(CPP.read_bytes())
    beside = tmp_path / "model.wrapper.json"
    beside.write_bytes(text.encode("utf-8", "surrogateescape"))
    for command in ("list", "instrument", "strip"):
        assert main([command, str(path)]) == 2
        error = capsys.readouterr().err
        assert f"error[bad-operators-file]: {beside}" in error
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([path.name, beside.name])


def test_a_directory_names_the_wrappers_of_both_languages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, source in {
        "a/output_code.py": SAMPLE,
        "b/output_code.py": EMBEDDED,
        "c/model.wrapper.cpp": CPP,
        "c/model.kernel.cpp": CPP.parent / "kernel.cpp",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(source.read_bytes())
    assert main(["instrument", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "error[several-wrappers]" in error
    assert "holds 3 wrappers:" in error
    for name in ("a/output_code.py", "b/output_code.py", "c/model.wrapper.cpp"):
        assert f"\n    {name}" in error


def test_an_instrumented_cpp_wrapper_is_refused_where_a_plain_one_is_needed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for source in (CPP, EMBEDDED):
        plain = tmp_path / source.name
        plain.write_bytes(source.read_bytes())
        probed = plain.with_name(f"{plain.stem}.instrumented{plain.suffix}")
        assert main(["instrument", str(plain)]) == 0
        assert main(["instrument", str(probed), "-o", str(tmp_path / "twice")]) == 2
        assert "error[already-instrumented]" in capsys.readouterr().err
        assert not (tmp_path / "twice").exists()
        # Whatever happened to the rest of it, the probes come out.
        cut = probed.read_bytes()[: probed.read_bytes().index(b"output_handles[0] =")]
        probed.write_bytes(cut)
        back = tmp_path / f"back{plain.suffix}"
        assert main(["strip", str(probed), "-o", str(back)]) == 0
        assert "was edited" in capsys.readouterr().err
        assert source.read_bytes().startswith(back.read_bytes())


@pytest.mark.parametrize(
    ("given", "says"),
    [({}, "Does torch.compile compile"), ({"calls": "7"}, "Check --calls:")],
)
def test_why_nothing_was_recorded(
    given: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AOT_INDUCTOR_FILTERED_KERNELS_TO_PRINT", raising=False)
    assert says in nothing_recorded(CheckOptions(**given)).hint


def test_check_says_what_strip_would_do(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    probed = tmp_path / "probed.py"
    assert main(["instrument", str(plain), "-o", str(probed)]) == 0
    capsys.readouterr()
    assert main(["strip", str(probed), "--check"]) == 1
    assert capsys.readouterr().err.startswith("would take out ")


def test_a_syntax_error_shows_line_and_caret(
    plain: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain.write_bytes(plain.read_bytes().replace(b"        args.clear()", b"\targs.clear(("))
    assert main(["list", str(plain)]) == 2
    _, line, caret, *_ = capsys.readouterr().err.splitlines()
    assert line.strip()
    assert caret.rstrip().endswith("^")
    assert caret.index("^") < len(line) + 4


REQUESTS = {
    "a missing file": (["list", "nowhere.py"], "unreadable", "nowhere.py"),
    "a directory without artifacts": (["list", "{folder}"], "no-artifacts", "output_code.py"),
    "a model of what is no package": (
        ["list", "{plain}", "--model", "m"],
        "idle-options",
        "is no package",
    ),
    "a program without dashes": (
        ["run", "python", "x.py"],
        "no-program",
        "rewriter run -- python x.py",
    ),
    "an unknown probe": (["instrument", "{plain}", "--probe", "prnt"], "unknown-probe", "'print'"),
    "a kernel that is not there": (
        ["instrument", "{plain}", "--kernels", "triton_poi_fused_addmm_gelu_1"],
        "no-launch-matches",
        "triton_poi_fused_addmm_gelu_0",
    ),
    "a launch that is not there": (
        ["instrument", "{plain}", "--launches", "5"],
        "no-launch-matches",
        "0 to 4",
    ),
    "a range backwards": (["instrument", "{plain}", "--launches", "3-1"], "bad-launches", "3-1"),
    "no number": (["instrument", "{plain}", "--launches", "x"], "bad-launches", "'x'"),
    "no folder to write to": (["instrument", "{plain}", "-o", "no/x.py"], "unwritable", "no/x.py"),
    "a directory to write to": (["instrument", "{plain}", "-o", "{folder}"], "unwritable", "-o"),
    "an output that exists": (["instrument", "{plain}", "-o", "{other}"], "exists", "--overwrite"),
    "a filter without a probe": (["run", "{plain}", "--when", "after"], "no-probes", "--when"),
    "a format without a probe": (
        ["run", "{plain}", "--format", "upstream"],
        "no-probes",
        "--format",
    ),
    "level 0 leaves no probe": (["instrument", "{plain}", "--level", "0"], "no-probes", "Pass one"),
    "an args file that is not there": (["run", "{plain}", "--args", "a.pt"], "unreadable", "a.pt"),
}


@pytest.mark.parametrize("request_", REQUESTS)
def test_wrong_requests_are_refused(
    request_: str,
    plain: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command, slug, says = REQUESTS[request_]
    folder, other = tmp_path / "folder", tmp_path / "other.py"
    folder.mkdir()
    other.write_text("something dear")
    monkeypatch.chdir(tmp_path)
    places = {"plain": plain, "folder": folder, "other": other}
    before = sorted(tmp_path.rglob("*"))
    assert main([part.format(**places) for part in command]) == 2
    error = capsys.readouterr().err
    assert f"error[{slug}]" in error
    assert says in error
    assert sorted(tmp_path.rglob("*")) == before
    assert other.read_text() == "something dear"


def test_an_instrumented_file_is_refused_where_a_plain_one_is_needed(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["instrument", str(plain)]) == 0
    probed = tmp_path / "output_code.instrumented.py"
    before = probed.read_bytes()
    assert main(["instrument", str(probed), "-o", str(tmp_path / "twice.py")]) == 2
    assert "error[already-instrumented]" in capsys.readouterr().err
    assert not (tmp_path / "twice.py").exists()
    assert main(["instrument", str(probed), "--replace", "--probe", "names", "--in-place"]) == 0
    assert probed.read_bytes() != before
    assert b" with names, " in probed.read_bytes()
    assert main(["strip", str(probed), "-o", str(tmp_path / "plain.py")]) == 0
    assert (tmp_path / "plain.py").read_bytes() == plain.read_bytes()


def test_an_instrumented_file_that_was_edited_is_not_replaced(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["instrument", str(plain)])
    probed = tmp_path / "output_code.instrumented.py"
    probed.write_bytes(probed.read_bytes().replace(b"(8, 64)", b"(8, 65)", 1))
    assert main(["instrument", str(probed), "--replace", "--overwrite", "-o", str(probed)]) == 2
    assert "error[edited-since]" in capsys.readouterr().err
    assert main(["strip", str(probed), "-o", str(tmp_path / "x.py")]) == 0
    assert "was edited" in capsys.readouterr().err
    expected = plain.read_bytes().replace(b"(8, 64)", b"(8, 65)", 1)
    assert (tmp_path / "x.py").read_bytes() == expected


@pytest.mark.parametrize("encoding", ["bom", "crlf", "bom and crlf", "no final newline", "tabs"])
def test_other_layouts_work(encoding: str, plain: Path, tmp_path: Path) -> None:
    data = plain.read_bytes()
    if "crlf" in encoding:
        data = data.replace(b"\n", b"\r\n")
    if "bom" in encoding:
        data = b"\xef\xbb\xbf" + data
    if encoding == "no final newline":
        data = data.rstrip()
    if encoding == "tabs":
        data = data.replace(b"    ", b"\t")
    plain.write_bytes(data)
    probed, back = tmp_path / "probed.py", tmp_path / "back.py"
    assert main(["instrument", str(plain), "--probe", "names,print,save", "-o", str(probed)]) == 0
    compile(probed.read_bytes(), "probed.py", "exec")
    if "crlf" in encoding:
        assert b"\n" not in probed.read_bytes().replace(b"\r\n", b"")
    assert main(["strip", str(probed), "-o", str(back)]) == 0
    assert back.read_bytes() == data


def test_a_wrapper_without_launches_is_fine_and_says_so(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain.write_text(
        "import torch\nfrom torch._inductor.select_algorithm import extern_kernels\n\n\n"
        "def call(args):\n    arg0_1, = args\n    args.clear()\n    return (arg0_1, )\n"
    )
    assert main(["list", str(plain)]) == 0
    assert "0 launches" in capsys.readouterr().err
    assert main(["instrument", str(plain)]) == 0
    assert "0 launches" in capsys.readouterr().err
    probed = tmp_path / "output_code.instrumented.py"
    assert main(["strip", str(probed), "-o", str(tmp_path / "back.py")]) == 0
    assert (tmp_path / "back.py").read_bytes() == plain.read_bytes()


def test_upstream_instrumented_files_are_plain_to_us(tmp_path: Path) -> None:
    """Upstream's printer leaves calls of its own, which are no launches and stay."""
    probed = tmp_path / "probed.py"
    assert main(["instrument", str(UPSTREAM), "-o", str(probed)]) == 0
    assert main(["strip", str(probed), "-o", str(tmp_path / "back.py")]) == 0
    assert (tmp_path / "back.py").read_bytes() == UPSTREAM.read_bytes()


def test_what_may_not_be_read_asks_for_permissions() -> None:
    denied = unreadable(Path("x.py"), PermissionError(errno.EACCES, "Permission denied"))
    assert (denied.message, denied.hint) == (
        "cannot read x.py: Permission denied",
        "Check its permissions, and those of the folders that it is in.",
    )
    missing = unreadable(Path("x.py"), FileNotFoundError(errno.ENOENT, "No such file or directory"))
    assert "Expected the path of an artifact" in missing.hint
