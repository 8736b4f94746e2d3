"""Bad input: a clear error, exit code 2, and nothing written."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import NamedTuple

import pytest

from rewriter.artifact.recognise import unreadable
from rewriter.cli import main
from rewriter.commands._options import CheckOptions
from rewriter.commands._selection import nothing_recorded

SAMPLE = Path(__file__).parents[2] / "fixtures/artifacts/cuda-torch2.11/mlp/python/output_code.py"
UPSTREAM = SAMPLE.parent.parent / "python-upstream-print/output_code.py"
CPP = SAMPLE.parent.parent / "aoti/wrapper.cpp"
EMBEDDED = SAMPLE.parent.parent / "cpp_wrapper/output_code.py"


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    path = tmp_path / "output_code.py"
    path.write_bytes(SAMPLE.read_bytes())
    return path


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
TRAINS = b"import torch\n\n\n@torch.compile\ndef f(x):\n    return x.half()\n"
KERNEL = b"import torch._inductor\n@triton.jit\ndef k(x): pass\n"
CPU_KERNEL = b'extern "C" void cpp_fused_relu_0(const float* x, float* y)\n{\n}\n'
ODD = b"x = [*y for(x)in y]\ndef f(): yield*x\n"
ENTRY = b"void AOTInductorModel::run_impl("
LAUNCH = b"aoti_torch_cuda_mm_out("
END = b"} // AOTInductorModel::run_impl"


class File(NamedTuple):
    """What is damaged, and what the file is called."""

    data: bytes
    name: str = "output_code.py"

    def before(self, marker: bytes) -> bytes:
        return self.data[: self.data.index(marker)]

    def with_(self, new: bytes, old: bytes) -> bytes:
        assert old in self.data
        return self.data.replace(old, new, 1)


PY, IN_PY = File(SAMPLE.read_bytes()), File(EMBEDDED.read_bytes())
IN_CPP = File(CPP.read_bytes(), "model.wrapper.cpp")
PROGRAM, NO_ZIP = File(TRAINS, "train.py"), File(b"version https://git-lfs", "model.pt2")
NO_ENTRY = IN_PY.data.replace(b"inductor_entry_impl", b"other_impl")
NOTHING = b"cpp_wrapper_src = (r'''x''')\ncall = f\n"
KERNELS_CPP = (CPP.parent / "kernel.cpp").read_bytes()
# What is damaged, the bytes of the file, the error, and what it says.
DAMAGED = {
    "empty": (PY, b"", "empty-file", "Copy it again"),
    "blank": (PY, b"\n \n", "empty-file", "empty"),
    "binary": (PY, PY.data[:200] + b"\0\1\2" + PY.data[200:], "binary-file", "offset 200"),
    "elf": (PY, b"\x7fELF" + PY.data, "unsupported-artifact", "shared object"),
    "zip": (PY, b"PK\3\4" + PY.data, "corrupt-package", "the zip file is damaged"),
    "no zip": (NO_ZIP, NO_ZIP.data, "corrupt-package", "begins with b'version '"),
    "latin-1": (PY, PY.data + b"# caf\xe9\n", "not-utf8", "0xe9"),
    "utf-16": (PY, PY.data.decode().encode("utf-16"), "binary-file", "zero byte"),
    "cut in a kernel": (PY, PY.data[:9000], "syntax-error", "does not end"),
    "cut in a call": (PY, PY.before(b"            del arg0_1"), "truncated", "never returns"),
    "cut after the class": (PY, PY.before(b"runner = Runner"), "truncated", "`call`"),
    "cut before it": (PY, PY.before(b"class Runner"), "not-a-wrapper", "no function `call`"),
    "syntax": (PY, PY.with_(b"args.clear(", b"args.clear()"), "syntax-error", "^"),
    "not read by libcst": (PY, ODD + PY.data, "syntax-error", "libcst"),
    "indentation": (PY, b"  x = 1\n" + PY.data, "syntax-error", "indent"),
    "not a wrapper": (PY, b"print('hello')\n", "not-a-wrapper", "torch._inductor"),
    "a program": (PROGRAM, PROGRAM.data, "not-a-wrapper", "rewriter run -- python {path}"),
    "a Triton kernel": (PY, KERNEL, "not-a-wrapper", "it holds one kernel"),
    "what measures a Triton kernel": (PY, MEASURED, "not-a-wrapper", "it holds one kernel"),
}
DAMAGED_CPP = {
    "empty": (IN_CPP, b"", "empty-file", "empty"),
    "binary": (IN_CPP, IN_CPP.data[:200] + b"\0", "binary-file", "offset 200"),
    "latin-1": (IN_CPP, IN_CPP.data + b"// caf\xe9\n", "not-utf8", "0xe9"),
    "cut before the entry": (IN_CPP, IN_CPP.before(ENTRY), "not-a-wrapper", "run_impl"),
    "cut in its head": (IN_CPP, IN_CPP.before(ENTRY) + ENTRY, "truncated", "run_impl"),
    "cut in a launch": (IN_CPP, IN_CPP.before(LAUNCH) + LAUNCH, "truncated", "too early"),
    "cut behind it": (IN_CPP, IN_CPP.before(b"output_handles[0] ="), "truncated", "too early"),
    "cut before the last brace": (IN_CPP, IN_CPP.before(END), "truncated", "early"),
    "( too many": (IN_CPP, IN_CPP.with_(LAUNCH + b"(", LAUNCH), "syntax-error", "mm_out(("),
    "no comma": (IN_CPP, IN_CPP.with_(b"m kernels,", b"m, kernels,"), "syntax-error", "as C++"),
    "its kernels": (IN_CPP, KERNELS_CPP, "not-a-wrapper", "no AOTInductorModel::run_impl"),
    "the kernels of a CPU wrapper": (IN_CPP, CPU_KERNEL, "not-a-wrapper", "kernels of a wrapper"),
    "another program": (IN_CPP, b"int main() {}\n", "not-a-wrapper", "run_impl"),
    "cut in a string": (IN_PY, IN_PY.before(b"output_handles["), "syntax-error", "does not end"),
    "no entry in it": (IN_PY, NO_ENTRY, "truncated", "inductor_entry_impl"),
    "nothing in it": (IN_PY, NOTHING, "truncated", "no run_impl"),
    "no string": (IN_PY, b"cpp_wrapper_src = 3\n", "not-a-wrapper", "is no string"),
    "( in it": (IN_PY, IN_PY.with_(LAUNCH + b"(", LAUNCH), "syntax-error", "output_code.py:369"),
    "around it": (IN_PY, IN_PY.with_(b"try = = ", b"try = "), "syntax-error", "invalid syntax"),
}
COMMANDS = ("list", "instrument", "strip", "run", "doctor")
# `list` shows their parameters; there is no launch that could get probes.
KERNELS = {"a Triton kernel", "what measures a Triton kernel", "the kernels of a CPU wrapper"}


@pytest.mark.parametrize(
    ("command", "damage", "row"),
    [
        *((command, id_, row) for id_, row in DAMAGED.items() for command in COMMANDS),
        *((command, id_, row) for id_, row in DAMAGED_CPP.items() for command in COMMANDS[:3]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_damaged_files_are_refused(
    command: str,
    damage: str,
    row: tuple[File, bytes, str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file, data, slug, says = row
    path = tmp_path / file.name
    path.write_bytes(data)
    code = main([command, str(path)])
    output = capsys.readouterr()
    assert path.read_bytes() == data
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    if damage in KERNELS and command == "list":
        assert code == 0
        return
    assert code == 2
    if damage == "elf" and command == "list":
        slug = "bad-library"  # of a library it says what can be said
    assert f"error[{slug}]: {path}" in output.err
    assert says.format(path=path) in output.err
    assert output.out == ""


def test_what_measures_a_kernel_is_no_wrapper_of_a_directory(
    plain: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain.with_name("measured.py").write_bytes(MEASURED)
    assert main(["list", str(plain.parent)]) == 0
    assert "measured.py" not in "".join(capsys.readouterr())


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
