"""Logs of `TORCH_LOGS=output_code`, fragments as in issues, kernels alone, and old wrappers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import dumps
import rewriter
from artifacts import ARTIFACTS, FIXTURES
from rewriter.artifact.opening import open_artifact
from rewriter.artifact.posted import missing
from rewriter.cli import main
from rewriter.core.errors import BAD_INPUT, DIFFERS, OK, RewriterError
from rewriter.diagnosis.by_text import examine_text

pytestmark = pytest.mark.properties

POSTED = ARTIFACTS.parent / "posted"
LOG = POSTED / "output-code.log"
ISSUE = POSTED / "issue.md"
GRAPHS = ["0_0_0/forward.py", "0_0_0/backward.py", "0_1_0/forward.py", "0_1_0/backward.py"]
PYTHON = [fixture for fixture in FIXTURES if fixture.kind == "python"]
# Its events stand above its kernels: see tests/diagnosis/test_races.py.
RACES = "streams"

BODY = """\
        arg0_1, = args
        buf0 = empty_strided_cpu((4, ), (1, ), torch.float32)
        cpp_fused_sin_0(arg0_1, buf0)
        del arg0_1
        return (buf0, )
"""
CALL = "    def call(self, args):\n" + BODY


def opened(tmp_path: Path, text: str, name: str = "post.md") -> rewriter.Artifact:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8", newline="")
    return open_artifact(path)


# --- What is none ---------------------------------------------------------------------------------

NONE = {
    "a program that calls torch.compile": (
        "train.py",
        "import torch\n\n\n@torch.compile\ndef f(x):\n    return extern_kernels.mm(x, x)\n",
    ),
    "a program that runs others": (
        "tool.py",
        "import subprocess\n\n\ndef call(args):\n    return subprocess.run(args, check=True)\n",
    ),
    "calls by a table": ("table.py", "for name in names:\n    handlers[name](name)\n"),
    "an operator in a program": ("op.py", "import torch\n\ny = torch.ops.aten.add(x, x)\n"),
    "a page without code": ("README.md", "# Title\n\nIt calls extern_kernels.mm, they say.\n"),
    "a page with other code": ("README.md", "Do this:\n\n```console\n$ make test\n```\n"),
    "a log of something else": (
        "run.log",
        "V1127 10:00:00.000000 12 torch/graph.py:1] [0/0] [__graph_code] def call(args):\n",
    ),
    "a traceback": (
        "post.md",
        '```\nTraceback (most recent call last):\n  File "x.py", line 3, in call\n'
        "    k.run(buf0, stream=stream0)\n```\n",
    ),
    "a name of the log in a program": (
        "logs.py",
        'PREFIX = "[__output_code]"\nprint(PREFIX)\n',
    ),
    "C++ that is no kernel": ("main.cpp", 'extern "C" int main() {\n    return 0;\n}\n'),
    "a word in a fence of its own": (
        "README.md",
        "Call it ```mm```\n\nextern_kernels.mm is it\n\n```console\n$ make test\n```\n",
    ),
    "sentences in a quotation": ("post.md", "> It calls extern_kernels.mm, they say.\n>\n> Why?\n"),
}


@pytest.mark.parametrize("name", NONE)
def test_other_texts_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(RewriterError) as refused:
        opened(tmp_path, NONE[name][1], NONE[name][0])
    assert refused.value.slug in ("not-a-wrapper", "no-artifacts", "syntax-error")


# --- Logs -----------------------------------------------------------------------------------------


def test_a_log_holds_each_wrapper_byte_for_byte() -> None:
    prefix = re.compile(r"^V.*?\[__output_code\] ", re.MULTILINE)
    lines = [line for line in LOG.read_text().splitlines() if not line.startswith("I")]
    codes = re.split(r"\n?Output code(?: written to: .*|: )\n?", prefix.sub("", "\n".join(lines)))
    artifact = open_artifact(LOG)
    assert [wrapper.name for wrapper in artifact.wrappers] == GRAPHS
    assert [x.source.decode() for x in artifact.wrappers] == [code for code in codes if code]
    assert len(artifact.launches) == 16
    assert not artifact.unrecognised


def _prefixed(lines: list[str], prefix: str) -> str:
    return "".join(f"{prefix}{line}" for line in lines)


PREFIXES = {
    "glog": "V1127 10:00:00.000000 12 site-packages/torch/_inductor/graph.py:1683] [0/0]"
    " [__output_code] ",
    "a thread's number": "V1101 08:30:10.503000 139697423578944 torch/_inductor/graph.py:16]"
    " [0/0] [__output_code] ",
    "a time before it": "2024-11-27T10:00:00.1Z V1127 10:00:00.000000 12 torch/graph.py:1]"
    " [0/0] [__output_code] ",
    "torch 2.1": "[2023-10-04 19:12:26,123] [0/0] torch._inductor.graph.__output_code: [DEBUG] ",
}


@pytest.mark.parametrize("kind", PREFIXES)
def test_prefixes_of_releases_and_launchers(kind: str, tmp_path: Path) -> None:
    wrapper = PYTHON[0].data.decode()
    lines = ["Output code: \n", *wrapper.splitlines(keepends=True)]
    text = "loading\n" + _prefixed(lines, PREFIXES[kind]) + "done\n"
    (found,) = opened(tmp_path, text, "run.log").wrappers
    assert found.source.decode() == wrapper


def test_a_code_without_prefixes_behind_its_head(tmp_path: Path) -> None:
    """As torch 2.0 logs it."""
    wrapper = PYTHON[0].data.decode()
    (found,) = opened(tmp_path, f"{PREFIXES['torch 2.1']}Output code: \n{wrapper}").wrappers
    assert found.source.decode() == wrapper


def test_ranks_whose_lines_are_mixed(tmp_path: Path) -> None:
    lines = ["Output code: \n", *PYTHON[0].data.decode().splitlines(keepends=True)]
    ranks = [f"[rank{rank}]:{PREFIXES['glog'].replace(' 12 ', f' {rank} ')}" for rank in (0, 1)]
    mixed = "".join(f"{ranks[0]}{line}{ranks[1]}{line}" for line in lines)
    found = {x.name: x.source for x in opened(tmp_path, mixed, "run.log").wrappers}
    assert sorted(found) == ["rank_0/0_0_0/inference.py", "rank_1/0_0_0/inference.py"]
    assert set(found.values()) == {PYTHON[0].data}


def test_a_log_that_begins_inside_of_a_kernel(tmp_path: Path) -> None:
    wrapper = POSTED / "torch2.0-gpu.py"
    lines = wrapper.read_text().splitlines(keepends=True)[30:]
    (found,) = opened(tmp_path, _prefixed(lines, PREFIXES["glog"]), "run.log").wrappers
    assert [launch.kernel for launch in found.launches] == [
        "extern_kernels.mm", "triton_fused_add_0",
    ]  # fmt: skip
    assert missing(found) == ("no source of triton_fused_add_0",)


def test_a_log_that_is_cut_off_at_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = LOG.read_text().splitlines(keepends=True)
    launches = [n for n, line in enumerate(lines) if "extern_kernels.mm(" in line]
    path = tmp_path / "run.log"
    path.write_text("".join(lines[: launches[0] + 1]))
    assert [missing(x) for x in open_artifact(path).wrappers] == [(), ("no return",)]
    for command in (["list"], ["diagnose", "--text"]):
        assert main([*command, str(path)]) == OK
        said = capsys.readouterr()
        assert "0_0_0/backward.py: a part: no return\n" in said.out + said.err


@pytest.mark.parametrize("name", GRAPHS[:2])
def test_a_log_may_end_behind_any_line(name: str, tmp_path: Path) -> None:
    """A part says so, unless only what follows the function is missing."""
    wrapper = next(x for x in open_artifact(LOG).wrappers if x.name == name).source.decode()
    lines = wrapper.splitlines(keepends=True)
    returns = next(n for n, line in enumerate(lines) if line.startswith("        return ("))
    for end in range(len(lines)):
        text = _prefixed(["Output code: \n", *lines[:end]], PREFIXES["glog"])
        try:
            (found,) = opened(tmp_path, text, "run.log").wrappers
        except RewriterError:  # no kernel is in it, or it ends inside of a statement
            continue
        assert bool(missing(found)) == (end <= returns)
        assert _findings(found) == []


def test_wrappers_of_a_log_are_written_and_restored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "run.log"
    log.write_bytes(LOG.read_bytes())
    assert main(["instrument", str(log), "-o", str(tmp_path / "probed")]) == OK
    assert main(["strip", str(tmp_path / "probed"), "-o", str(tmp_path / "plain")]) == OK
    for wrapper in open_artifact(log).wrappers:
        assert (tmp_path / "plain" / wrapper.name).read_bytes() == wrapper.source
    assert main(["diff", str(log), str(tmp_path / "probed")]) == OK
    for option in ([], ["--in-place"]):
        assert main(["instrument", str(log), *option]) == BAD_INPUT
        assert "read-only-trace" in capsys.readouterr().err
    assert log.read_bytes() == LOG.read_bytes()


# --- Fragments ------------------------------------------------------------------------------------

LACKS = ("no source of cpp_fused_sin_0",)


def _quoted(text: str, mark: str = "> ") -> str:
    return "".join(f"{mark}{line}\n" for line in text.splitlines())


# Not sentences, though they are words: a piece of code stays one.
CODE = """\
def call(args):
    arg0_1, = args
    buf0 = empty_strided_cpu((4, ), (1, ), torch.float32)
    cpp_fused_sin_0(arg0_1, buf0)
    return (buf0, )
global first, second
while first is second:
    pass
if first:
    pass
elif first is second:
    raise first from second
raise first from second
"""
KERNEL = """\
cpp_fused_sin_0 = async_compile.cpp_pybinding(['float*', 'float*'], r'''
inline void helper(int n)
extern "C" void kernel(const float* in_ptr0, float* out_ptr0)
{
    out_ptr0[0] = in_ptr0[0];
}
''')
"""

SENTENCE = "One sentence right here:\n"
FORMS = {
    "quoted code with words": (_quoted(CODE), LACKS),
    "a quoted kernel with words": (_quoted(KERNEL + CODE), ()),
    "fenced code with words in a quotation": (_quoted(f"```\n{CODE}```"), LACKS),
    "a fence in one line of a page": (f"Call it ```f```\n\n```\n{CALL}```\nWhy?\n", LACKS),
    "quoted with a sentence": (_quoted(f"{SENTENCE}{CALL}"), LACKS),
    "quoted with sentences and empty lines": (
        _quoted(f"{SENTENCE}\n{CALL}\nWhy is that so?"),
        LACKS,
    ),
    "quoted twice with a sentence": (_quoted(f"{SENTENCE}{CALL}", "> > "), LACKS),
    "quoted below a sentence": (f"{SENTENCE}{_quoted(CALL, '>> ')}", LACKS),
    "quoted below a quoted sentence": (f"> {SENTENCE}{_quoted(CALL, '>> ')}", LACKS),
    "a fence behind words": (f"Here's it: ```\n{CALL}```\nWhy?\n", LACKS),
    "a fence with a language behind words": (f"# Bug\n\nHere's it: ```python\n{CALL}```\n", LACKS),
    "a call": (CALL, LACKS),
    "its body": (BODY, ("no head of a function", *LACKS)),
    "copied from the middle of a line": (BODY.lstrip(), ("no head of a function", *LACKS)),
    "quoted": (_quoted(CALL), LACKS),
    "fenced": (f"# Bug\n\n```python\n{CALL}```\nWhy?\n", LACKS),
    "between sentences": (f"I see this in the log:\n\n{CALL}\nWhat is it?\n", LACKS),
    "without its end": (CALL.partition("        return")[0], ("no return", *LACKS)),
    "with lines left out": (
        CALL.replace("        del arg0_1", "  <... snip ...>\n            del arg0_1"),
        (*LACKS, "lines left out at line 5"),
    ),
    "the end of a block": (
        f"            cpp_fused_sin_0(arg0_1, buf0)\n{BODY.splitlines()[-1]}\n",
        ("no head of a function", *LACKS),
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_fragments(form: str, tmp_path: Path) -> None:
    text, lacking = FORMS[form]
    (found,) = opened(tmp_path, text).wrappers
    assert found.is_fragment
    assert [launch.kernel for launch in found.launches] == ["cpp_fused_sin_0"]
    assert missing(found) == lacking
    assert _findings(found) == []


def test_a_fragment_is_instrumented_and_restored(tmp_path: Path) -> None:
    assert main(["instrument", str(ISSUE), "-o", str(tmp_path / "probed")]) == OK
    names = ["at_line_21.py", "at_line_4.py"]
    assert sorted(x.name for x in (tmp_path / "probed").iterdir()) == names
    assert main(["strip", str(tmp_path / "probed"), "-o", str(tmp_path / "plain")]) == OK
    for wrapper in open_artifact(ISSUE).wrappers:
        assert (tmp_path / "plain" / wrapper.name).read_bytes() == wrapper.source


def test_a_file_that_is_a_fragment_stays_one_file(tmp_path: Path) -> None:
    path = tmp_path / "call.py"
    path.write_text("def call(args):\n" + BODY.replace("        ", "    "))
    assert main(["instrument", str(path)]) == OK
    assert main(["strip", str(tmp_path / "call.instrumented.py"), "-o", str(tmp_path / "x")]) == OK
    assert (tmp_path / "x").read_bytes() == path.read_bytes()


def test_a_fragment_is_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "call.py"
    path.write_text("print('it ran')\n" + CALL.replace("    def", "def"))
    assert main(["run", str(path)]) == BAD_INPUT
    assert main(["diagnose", str(path)]) == OK
    said = capsys.readouterr()
    assert "it ran" not in said.out
    assert "error[not-a-wrapper]" in said.err


def test_list_says_what_a_fragment_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", str(ISSUE)]) == OK
    said = capsys.readouterr().err
    assert "at_line_4.py: a part: no source of triton_poi_fused_add_0\n" in said
    assert "at_line_21.py: a part: no head of a function, no return, lines left out" in said


# --- Kernels --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("triton-kernel.py", "7     triton_poi_fused_sin_0  in_ptr0  out_ptr0  xnumel"),
        ("kernel.cpp", "2     cpp_fused_sin_0  in_ptr0  out_ptr0"),
    ],
)
def test_a_kernel_alone(name: str, row: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(POSTED / name)
    assert main(["list", path]) == OK
    said = capsys.readouterr()
    assert row in said.out
    assert f"{name}: a part: no launch" in said.err
    assert main(["diagnose", path]) == OK
    assert "nothing wrong is shown; there is no launch" in capsys.readouterr().out
    assert main(["instrument", path]) == BAD_INPUT
    assert "error[not-a-wrapper]" in capsys.readouterr().err


def test_kernels_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "triton-kernel.py"
    other.write_text((POSTED / "triton-kernel.py").read_text().replace("tl.sin", "tl.cos"))
    assert main(["diff", str(POSTED / "triton-kernel.py"), str(other)]) == DIFFERS
    assert "source of triton_poi_fused_sin_0: -1 +1 lines" in capsys.readouterr().out


def test_a_program_that_launches_a_kernel_itself() -> None:
    (launch,) = open_artifact(POSTED / "grid.py").launches
    assert (launch.kernel, launch.kind) == ("add_kernel", "triton_user")
    tensors = [(x.role, x.name) for x in launch.args if x.type == "tensor"]
    assert tensors == [("in", "x"), ("in", "y"), ("out", "out")]


def test_a_program_with_a_function_lacks_nothing(tmp_path: Path) -> None:
    text = (POSTED / "grid.py").read_text()
    text = re.sub(r"^(?=x = |y = |out = |grid = |add_kernel\[|print)", "    ", text, flags=re.M)
    text = text.replace("    x = ", "def main(args):\n    x = ")
    (found,) = opened(tmp_path, text, "grid.py").wrappers
    assert missing(found) == ()


def test_strides_are_no_pointers(tmp_path: Path) -> None:
    text = (POSTED / "grid.py").read_text()
    text = text.replace("out_ptr, n, BLOCK", "out_ptr, n, step, BLOCK")
    text = text.replace("x_ptr + at", "x_ptr + at * step").replace("out, 1000,", "out, 1000, 1,")
    (launch,) = opened(tmp_path, text, "grid.py").launches
    assert [x.role for x in launch.args if x.type == "tensor"] == ["in", "in", "out"]


# --- Wrappers of torch 2.0 to 2.5 -----------------------------------------------------------------

OLD = {
    "torch2.0-cpu.py": [
        ("extern_kernels.mm", "in arg0_1, in arg1_1, out buf0"),
        ("kernel_cpp_0", "inout buf1, in arg1_1, out buf2"),
        ("aten.sort", "in buf2, out buf4"),
    ],
    "torch2.0-gpu.py": [
        ("extern_kernels.mm", "in arg0_1, in arg1_1, out buf0"),
        ("triton_fused_add_0", "inout buf1, in arg1_1, out buf2"),
    ],
    "kernels-inlined.py": [("triton_poi_fused_relu_0", "in arg0_1, out buf0")],
    "torch2.3-cpu.py": [("cpp_fused_add_0", "in arg0_1, out buf0")],
    "torch2.4-gpu.py": [
        ("extern_kernels.mm", "in arg0_1, in arg1_1, out buf0"),
        ("triton_fused_add_0", "inout buf1, in arg1_1, out buf2"),
    ],
}


@pytest.mark.parametrize("name", OLD)
def test_old_wrappers(name: str, tmp_path: Path) -> None:
    artifact = open_artifact(POSTED / name)
    assert not artifact.only.is_fragment
    assert not artifact.unrecognised
    found = []
    for launch in artifact.launches:
        tensors = [f"{x.role} {x.name}" for x in launch.args if x.type == "tensor"]
        found.append((launch.kernel, ", ".join(tensors)))
    assert found == OLD[name]
    probed = tmp_path / name
    assert main(["instrument", str(POSTED / name), "-o", str(probed)]) == OK
    assert main(["strip", str(probed), "-o", str(tmp_path / "plain.py")]) == OK
    assert (tmp_path / "plain.py").read_bytes() == (POSTED / name).read_bytes()


# --- What the text shows --------------------------------------------------------------------------


def _findings(wrapper: rewriter.Wrapper) -> list[str]:
    return [finding.headline for one in examine_text(wrapper) for finding in one.findings]


def _cuts(text: str) -> Iterator[str]:
    """A wrapper as people post it: its functions, their bodies, parts of these, and logs of it."""
    lines = text.splitlines(keepends=True)
    for at, line in enumerate(lines):
        if not re.match(r"\s*def (call|partition_\d+|\w*graph\w*)\((self, )?args\)", line):
            continue
        indent = len(line) - len(line.lstrip())
        inside = (n for n in range(at + 1, len(lines)) if lines[n].strip())
        end = next((n for n in inside if len(lines[n]) - len(lines[n].lstrip()) <= indent), at)
        function = lines[at : end if end > at else len(lines)]
        body, third = function[1:], len(function) // 3
        yield "".join(function)
        yield "".join(body)
        yield "".join(f"> {x}" for x in function)
        yield "".join(f"    {x}" for x in function)
        yield from map("".join, (body[:third], body[third : 2 * third], body[2 * third :]))
        yield "".join([*body[:third], " " * (indent + 4), "...\n", *body[2 * third :]])
    yield _prefixed(lines[len(lines) // 2 :], PREFIXES["glog"])
    yield f"```\n{''.join(lines[: len(lines) * 2 // 3])}```\n"


@pytest.mark.parametrize("fixture", PYTHON, ids=str)
def test_nothing_recorded_is_accused(fixture: object, tmp_path: Path) -> None:
    data = fixture.data.decode()  # type: ignore[attr-defined]
    launches = 0
    for number, text in enumerate(_cuts(data)):
        try:
            artifact = opened(tmp_path, text, f"{number}.md")
        except RewriterError:  # no launch is in it, or it ends inside of a statement
            continue
        launches += len(artifact.launches)
        for wrapper in artifact.wrappers:
            found = _findings(wrapper)
            assert [x for x in found if "no event between" not in x] == []
            assert RACES in str(fixture) or not found
    assert launches or not rewriter.open(fixture.path).launches  # type: ignore[attr-defined]


@pytest.mark.programs
@pytest.mark.usefixtures("warm_python")
def test_a_wrapper_without_its_device_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("the device is here")
    monkeypatch.chdir(tmp_path)
    path = str(POSTED / "torch2.4-gpu.py")
    for command in ("diagnose", "sanitize"):
        assert main([command, path]) == OK
        said = capfd.readouterr().out
        assert "nothing wrong is shown; the memory of 2 of 2 launches (100%) was followed" in said
        assert "nothing was run (the wrapper runs on cuda, and there is none here)" in said
        assert main([command, path, "--strict"]) == DIFFERS
    assert main(["diagnose", path, "--against", path]) == BAD_INPUT  # only a run can tell
    assert "error[no-device]" in capfd.readouterr().err


SAMPLE = (POSTED / "torch2.4-gpu.py").read_text()
FAULTS = {
    "stale": (
        ("triton_fused_add_0.run(buf1,", "triton_fused_add_0.run(buf0,"),
        "reads buf0, which is deleted before it",
    ),
    "unwritten": (
        ("        extern_kernels.mm(arg0_1, arg1_1, out=buf0)\n", ""),
        "reads buf1, which nothing has written",
    ),
    "source and target": (
        (
            "extern_kernels.mm(arg0_1, arg1_1, out=buf0)",
            "extern_kernels.mm(buf0, arg1_1, out=buf0)",
        ),
        "is given buf0 as an operand and as its target",
    ),
    "a name that is not there": (
        ("triton_fused_add_0.run(buf1, arg1_1,", "triton_fused_add_0.run(buf1, arg7_1,"),
        "uses arg7_1, which call does not have",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_that_the_text_shows(
    fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, says = FAULTS[fault]
    assert SAMPLE.count(change[0]) == 1
    path = tmp_path / "output_code.py"
    path.write_text(SAMPLE.replace(*change))
    for command in ("diagnose", "sanitize"):
        assert main([command, str(path), "--text", "--json"]) == DIFFERS
        document = json.loads(capsys.readouterr().out)
        assert any(says in finding["headline"] for finding in document["findings"]), document


def test_a_name_that_a_partition_does_not_have(tmp_path: Path) -> None:
    fixture = next(x for x in PYTHON if x.model == "partition" and "cuda" in x.folder)
    data = fixture.data.decode()
    head, _, rest = data.partition("def partition_0(args):\n    arg0_1, = args\n")
    assert rest
    text = f"{head}def partition_0(args):\n    other_1, = args\n{rest}"
    (found,) = opened(tmp_path, text, "output_code.py").wrappers
    assert any("uses arg0_1, which partition_0 does not have" in x for x in _findings(found))


@pytest.mark.parametrize(
    "call",
    [
        "extern_kernels.addmm(buf0, arg0_1, arg1_1, alpha=1, beta=1, out=buf0)",  # adds to it
        "extern_kernels.mm(reinterpret_tensor(buf0, (2, 2), (4, 1), 0), arg1_1, "
        "out=reinterpret_tensor(buf0, (2, 2), (4, 1), 2))",  # other elements
        "aten.add.out(buf0, arg1_1, out=buf0)",  # element by element
        "extern_kernels.mm(arg0_1, arg0_1, out=view(buf0))",  # what that is, is not known
        "extern_kernels.mm(1, 2, out=3)",
    ],
)
def test_targets_that_may_be_sources(call: str, tmp_path: Path) -> None:
    body = f"arg0_1, arg1_1, buf0 = args\n{call}\nreturn (buf0, )\n"
    (found,) = opened(tmp_path, body, "body.py").wrappers
    assert _findings(found) == []


def test_what_a_part_deletes_is_gone_though_it_does_not_make_it(tmp_path: Path) -> None:
    body = "del buf0\nextern_kernels.mm(buf0, arg1_1, out=buf1)\ndel buf1\nbuf1 = buf2\n"
    body += "extern_kernels.mm(buf1, arg1_1, out=buf3)\n"
    (found,) = opened(tmp_path, body, "body.py").wrappers
    (one,) = _findings(found)
    assert "reads buf0, which is deleted before it" in one


def test_options_of_a_run_are_refused_with_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(LOG), "--text", "--args", "x.pt"]) == BAD_INPUT
    assert "--args given, but with --text nothing is run" in capsys.readouterr().err
    assert main(["diagnose", str(LOG), "--text"]) == OK
    assert "the memory of 16 of 16 launches (100%) was followed" in capsys.readouterr().out


def test_a_dump_has_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = dumps.write(tmp_path / "dump", [dumps.launch(0, "k", [dumps.value("buf0")])])
    assert main(["diagnose", str(dump), "--text"]) == BAD_INPUT
    said = capsys.readouterr().err
    assert "error[idle-options]: --text given, but a dump is diagnosed by its values" in said
