"""What the locator finds in real C++ wrappers, against tables checked by reading the files."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sysconfig
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rewriter
from artifacts import CPP_FIXTURES, FIXTURES, Fixture, get, plain
from rewriter.artifact.types import Artifact, Wrapper
from rewriter.core import markers
from rewriter.core.source import Source
from rewriter.instrumentation.types import Selection
from rewriter.locate.cpp import embedded
from rewriter.locate.types import Launch
from sampling import one_in, sampled

pytestmark = pytest.mark.properties

all_fixtures = pytest.mark.parametrize("fixture", CPP_FIXTURES, ids=str)

# What is asked for; each is to be stripped exactly.
SELECTIONS: dict[str, dict[str, Any]] = {
    "all": {"probe": "names,print,save", "when": "both"},
    "upstream": {"probe": "print", "format": "upstream", "when": "both"},
    "names": {"probe": "names"},
    "print": {"probe": "print", "values": True},
    "save": {"probe": "save"},
    "before": {"probe": "print,save", "when": "before"},
    "after": {"probe": "names,print", "when": "after"},
    "one launch": {"probe": "names,save", "launches": [0]},
}


def opened(fixture: Fixture, data: bytes) -> Artifact:
    """Other bytes in the place of a fixture."""
    operators = plain(fixture).only.operators
    wrapper = Wrapper(fixture.path.name, data, "cpp", fixture.path, operators)
    return Artifact(fixture.path, (wrapper,))


def cpp(data: bytes) -> str:
    """The C++ of a wrapper, be it in a string or not."""
    return embedded.extract(Source("wrapper", data)).data.decode()


# --- A reader of its own, which knows lines and names only --------------------------------------

_HEAD = re.compile(
    r"\bAOTInductorModel\w*::(?:run_impl|_const_run_impl|run_impl_minimal_arrayref_interface\w*)\b"
    r"|^void inductor_entry_impl\(",
    re.MULTILINE,
)
_LITERAL = re.compile(r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAUNCH = re.compile(
    r"\b(?:call_\w+|cpp_fused\w*|launchKernel|callBoxed|PyObject_CallObject"
    r"|aoti_torch_(?:proxy_executor_call_function|call_dispatcher|index_put_out)"
    r"|aoti_torch_(?:cpu|cuda)_(?!view_dtype)\w+|aoti_torch_mps_(?:mm_out|run_command_block))\("
)


def _blank(match: re.Match[str]) -> str:
    """Strings and comments become blanks, but for our marks."""
    ours = match[0].startswith("//") and "rewriter:" in match[0]
    return "//ours" if ours else "\n".join(" " * len(line) for line in match[0].split("\n"))


def bodies(text: str) -> Iterator[list[tuple[int, str]]]:
    """The numbered lines of each entry's body, without strings and comments."""
    text = _LITERAL.sub(_blank, text)
    lines = text.split("\n")
    end = -1  # of the last one
    for head in _HEAD.finditer(text):
        number = text.count("\n", 0, head.start())
        if number <= end:
            continue
        while not lines[number].rstrip().endswith(("{", ";", "{}")):
            number += 1
        if lines[number].rstrip().endswith("{"):
            depth, body = 1, []
            while depth > 0:
                number += 1
                depth += lines[number].count("{") - lines[number].count("}")
                body.append((number + 1, lines[number]))
            yield body
        end = number


_DECLARED = re.compile(
    r"(?:^|[;{(])\s*(?:\[\[maybe_unused\]\]\s*)?(?:(?:static|thread_local|constexpr|const)\s+)*"
    r"(?P<type>decltype\(auto\)|[A-Za-z_][\w:]*(?:<[^;=()]*>)?)(?:\s*[&*]+\s*|\s+)\*?"
    r"(?P<name>\w+)\s*(?P<next>[;=({\[:])"
)
_READS = re.compile(r"_rw_*\.(?:before|after|inputs)\((.*)\);")
_NAME = re.compile(r"(?<![\w:.])([A-Za-z_]\w*)\b(?!\s*\(|::|<)")


class Names:
    """Which variables are visible on a line, and whether they hold anything."""

    def __init__(self) -> None:
        self._scopes: list[dict[str, str]] = [{}]

    def __getitem__(self, name: str) -> str:
        return next((s[name] for s in reversed(self._scopes) if name in s), "not visible")

    def __setitem__(self, name: str, state: str) -> None:
        for scope in reversed(self._scopes):
            if name in scope:
                scope[name] = state
                return

    def statement(self, line: str) -> None:
        if line.startswith("}"):
            self._scopes.pop()
            line = line[1:]
        for match in _DECLARED.finditer(line):
            empty = match["next"] == ";" and "Handle" in match["type"]
            if match["type"] not in ("return", "else", "throw", "new"):
                self._scopes[-1][match["name"]] = "empty" if empty else "there"
        gone = re.findall(r"\b(\w+)\.(?:reset|release)\(\)", line)
        if not line.lstrip().startswith("decltype(auto)"):  # it makes a reference
            gone += re.findall(r"std::move\((\w+)\)", line)
        gone += re.findall(r"RAIIAtenTensorHandle(?:\s+\w+)?\((\w+)\)", line)
        for name in gone:
            self[name] = "gone"
        filled = [name for name in re.findall(r"&(\w+)", line) if self[name] == "empty"]
        for name in filled + re.findall(r"(?:^|;)\s*(\w+) =(?!=)", line):
            self[name] = "there"
        if re.search(r"(?<![\w>])\{$", line.rstrip()):
            self._scopes.append({})


def unreadable(text: str) -> list[tuple[int, str, str]]:
    """`(line, name, state)` of what injected lines read and is not there."""
    found = []
    for body in bodies(text):
        names = Names()
        for number, line in body:
            if "//ours" not in line:
                names.statement(line.strip())
            elif match := _READS.search(line):
                found += [
                    (number, name, names[name])
                    for name in _NAME.findall(match[1])
                    if names[name] != "there"
                    and not name.startswith(("cached_torch_", "_rw"))
                    and name not in ("this", "true", "false")
                ]
    return found


def launch_lines(data: bytes) -> list[int]:
    """Lines of the file with calls that look like launches."""
    text, source = embedded.extract(Source("wrapper", data)), Source("wrapper", data)
    starts = [0, *(match.end() for match in re.finditer(b"\n", text.data))]
    return [
        source.line_of(text.position(starts[number - 1]))
        for body in bodies(text.data.decode())
        for number, line in body
        for _ in _LAUNCH.findall(line)
    ]


# --- What is found ------------------------------------------------------------------------------


@all_fixtures
def test_launches_are_in_file_order(fixture: Fixture) -> None:
    launches = plain(fixture).launches
    assert [launch.index for launch in launches] == list(range(len(launches)))
    assert [launch.line for launch in launches] == launch_lines(fixture.data)


# --- Beside the Python wrapper of the same model ------------------------------------------------

PYTHON = {(one.folder, one.model, one.graph): one for one in FIXTURES}
PAIRS = [one for one in CPP_FIXTURES if (one.folder, one.model, one.graph) in PYTHON]
# What the two compiles of one model do differently; kernels of C++, and of Python.
OTHER_KERNELS: dict[str, tuple[dict[str, int], dict[str, int]]] = {
    # One of them transposes a weight by itself.
    "cuda-torch2.11/gpt cpp_wrapper": ({"triton_poi_fused_mm_t_6": 1}, {}),
    "cuda-torch2.11/gpt_train cpp_wrapper 1": ({}, {"triton_poi_fused_mm_t_7": 1}),
    # Kernels are numbered otherwise.
    "cuda-torch2.15/gpt cpp_wrapper": (
        {"triton_per_fused_add_9": 1, "triton_poi_fused_add_10": 1},
        {"triton_per_fused_add_6": 1, "triton_poi_fused_add_9": 1},
    ),
    # Export lifts weights out, folds, decomposes and inlines subgraphs by itself.
    "cuda-torch2.11/cond aoti": (
        {
            "triton_poi_fused_1": 1,
            "triton_poi_fused_add_addmm_gt_relu_2": 1,
            "triton_poi_fused_gt_mul_sin_3": 1,
        },
        {"triton_poi_fused_add_addmm_gt_relu_1": 1, "triton_poi_fused_gt_mul_sin_2": 1},
    ),
    "cuda-torch2.11/conv aoti": (
        {
            "triton_poi_fused_convolution_relu_3": 1,
            "triton_poi_fused_convolution_relu_4": 1,
            "triton_per_fused_max_pool2d_with_indices_mean_relu_5": 1,
            "triton_poi_fused_6": 1,
        },
        {
            "triton_poi_fused__native_batch_norm_legit_no_training_convolution_relu_3": 1,
            "triton_poi_fused__native_batch_norm_legit_no_training_convolution_relu_4": 1,
            "triton_per_fused__native_batch_norm_legit_no_training_convolution_"
            "max_pool2d_with_indices_mean_relu_5": 1,
        },
    ),
    "cuda-torch2.11/mutate aoti": (
        {
            "triton_poi_fused_add_sum_0": 1,
            "triton_poi_fused_add_mul_1": 1,
            "triton_poi_fused_add_2": 1,
        },
        {
            "triton_poi_fused_add_copy__sum_0": 1,
            "triton_poi_fused_add_copy__mul_1": 1,
            "triton_poi_fused_add_copy__2": 1,
        },
    ),
    "cpu-torch2.13/subgraph aoti": ({"cpp_fused_add_relu_0": 2}, {}),
    # The whole body stands there twice.
    "cpu-torch2.13/dropout aoti-arrayref": (
        {"cpp_fused_add_native_dropout_rand_like_relu_0": 1},
        {},
    ),
    "cpu-torch2.13/dtypes aoti-arrayref": (
        {
            "cpp_fused__to_copy_0": 1,
            "cpp_fused__to_copy_1": 1,
            "cpp_fused__to_copy_bitwise_and_gt_mul_sum_2": 1,
        },
        {},
    ),
}
# Subgraphs stand where they are called, not above.
INLINED = ("cond", "while", "while_loop", "subgraph", "partition")


def kernels(fixture: Fixture) -> list[Launch]:
    """The launches of kernels that Inductor wrote, or somebody: these have names of their own."""
    return [
        launch
        for launch in plain(fixture).launches
        if launch.kind
        in ("triton", "triton_user", "triton_template", "combo", "multi_kernel", "cpp")
    ]


def tensors(launch: Launch) -> list[tuple[str, str]]:
    return [(one.role, one.name) for one in launch.args if one.type == "tensor"]


@pytest.mark.parametrize("fixture", PAIRS, ids=str)
def test_the_kernels_are_those_of_the_python_wrapper(fixture: Fixture) -> None:
    ours = [launch.kernel for launch in kernels(fixture)]
    theirs = [
        launch.kernel for launch in kernels(PYTHON[fixture.folder, fixture.model, fixture.graph])
    ]
    more, less = OTHER_KERNELS.get(str(fixture), ({}, {}))
    assert (Counter(ours) - Counter(theirs), Counter(theirs) - Counter(ours)) == (more, less)
    if fixture.model not in INLINED and not more and not less:
        assert ours == theirs


@pytest.mark.parametrize(
    "fixture",
    [one for one in PAIRS if one.kind == "cpp_wrapper" and str(one) not in OTHER_KERNELS],
    ids=str,
)
def test_the_kernels_read_and_write_what_the_python_wrapper_says(fixture: Fixture) -> None:
    """Just in time, buffers have the same names: roles and names agree, tensor by tensor."""
    ours = {launch.kernel: [] for launch in kernels(fixture)}  # type: ignore[var-annotated]
    theirs = {name: [] for name in ours}  # type: ignore[var-annotated]
    for launch in kernels(fixture):
        ours[launch.kernel].append(tensors(launch))
    for launch in kernels(PYTHON[fixture.folder, fixture.model, fixture.graph]):
        theirs[launch.kernel].append(tensors(launch))
    if fixture.folder == "cuda-torch2.6":
        # The C++ of 2.6 says nothing of a kernel's parameters: what may be written is `inout`.
        for name, launches in ours.items():
            for mine, other in zip(launches, theirs[name], strict=True):
                assert {n for _, n in mine} == {n for _, n in other}
                written = {n for role, n in mine if role != "in"}
                assert {n for role, n in other if role != "in"} <= written
    else:
        assert ours == theirs


def test_how_many_are_compared() -> None:
    launches = sum(len(kernels(fixture)) for fixture in PAIRS)
    print(f"{len(PAIRS)} C++ wrappers beside Python ones, {launches} launches of kernels")
    assert len(PAIRS) >= 60
    assert set(OTHER_KERNELS) <= {str(fixture) for fixture in PAIRS}


# --- Probes in, and out -------------------------------------------------------------------------


def check(fixture: Fixture, selection: Selection) -> None:
    """Everything that is promised of an instrumented file."""
    result = rewriter.instrument(plain(fixture), selection)
    assert result.plan.skipped == ()
    again = opened(fixture, result.source)
    stripped = rewriter.strip(again)
    assert stripped.source == fixture.data
    assert stripped.exact
    # Lines were added and nothing else: each launch is on the line that says so.
    before, after = markers.lines(fixture.data), markers.lines(result.source)
    assert stripped.removed == len(after) - len(before)
    for now, then in zip(again.launches, plain(fixture).launches, strict=True):
        assert (now.kernel, now.kind, now.scope) == (then.kernel, then.kind, then.scope)
        assert now.args == then.args
        assert after[now.line - 1] == before[then.line - 1]
    assert unreadable(cpp(result.source)) == []


@pytest.mark.parametrize(("fixture", "selection"), sampled(CPP_FIXTURES, list(SELECTIONS)))
def test_probes_in_and_out(fixture: Fixture, selection: str) -> None:
    check(fixture, rewriter.select(**SELECTIONS[selection]))


@pytest.mark.parametrize("fixture", one_in(2, CPP_FIXTURES))
def test_every_launch_is_between_its_lines(fixture: Fixture) -> None:
    result = rewriter.instrument(plain(fixture), rewriter.select("names", when="both"))
    marks = re.findall(r"_rw_*\.(before|after)\((\d+)\);  // rewriter:", result.source.decode())
    launches = plain(fixture).launches
    assert marks == [
        (phase, str(launch.index)) for launch in launches for phase in ("before", "after")
    ]


def test_the_reader_of_names_sees_what_is_gone() -> None:
    """It must be able to fail, or the tests above say nothing."""
    result = rewriter.instrument(get("cpu-torch2.13/nested aoti").path, rewriter.select("print"))
    text = cpp(result.source)
    assert unreadable(text) == []
    names = set(re.findall(r"^    (\w+)\.reset\(\);$", text, re.MULTILINE))
    names -= set(re.findall(r"^ *(\w+) = std::move", text, re.MULTILINE))
    assert names
    for name in names:
        line = f"    _rw.after(0, {name});  // rewriter:0123abcd\n"
        at = text.rindex("} // AOTInductorModel::run_impl")
        assert name in {found for _, found, _ in unreadable(text[:at] + line + text[at:])}


# --- To the compiler ----------------------------------------------------------------------------

CUDA = next(
    (
        folder
        for folder in (os.environ.get("CUDA_HOME", ""), "/usr/local/cuda")
        if folder and Path(folder, "include", "cuda.h").is_file()
    ),
    None,
)


def compiles(text: str, folder: Path, *flags: str) -> str:
    """What g++ says of C++, less warnings; nothing is generated."""
    found = importlib.util.find_spec("torch")  # it need not be among the packages of this Python
    assert found is not None
    assert found.origin is not None
    torch = Path(found.origin).parent / "include"
    source = folder / "wrapper.cpp"
    source.write_text(text)
    includes = [torch, torch / "torch/csrc/api/include", sysconfig.get_paths()["include"]]
    # Kernels just in time stand in the same text, and are written for a capability.
    command = ["g++", "-std=c++20", "-fsyntax-only", "-w", "-march=native", *flags]
    command.append("-DCPU_CAPABILITY_AVX2")
    done = subprocess.run(
        [*command, *(f"-I{include}" for include in includes), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    return "\n".join(line for line in done.stderr.split("\n") if "error" in line)


def _for_the_compiler() -> Iterator[Any]:
    """Every wrapper; the one that says most belongs to a plain run."""
    first = "cuda-torch2.11/cond aoti"
    for fixture in CPP_FIXTURES:
        marks = [] if str(fixture) == first else [pytest.mark.exhaustive]
        if fixture.folder.startswith("cuda"):
            marks.append(pytest.mark.skipif(CUDA is None, reason="no CUDA headers"))
        yield pytest.param(fixture, id=str(fixture), marks=marks)


@pytest.mark.parametrize("fixture", list(_for_the_compiler()))
def test_the_compiler_takes_it(fixture: Fixture, tmp_path: Path) -> None:
    """With the headers of the installed torch, where the plain wrapper fits them."""
    flags = ["-DUSE_CUDA", f"-I{CUDA}/include"] if fixture.folder.startswith("cuda") else []
    selection = rewriter.select("names,print,save", when="both")
    instrumented = cpp(rewriter.instrument(plain(fixture), selection).source)
    if said := compiles(instrumented, tmp_path, *flags):
        if before := compiles(cpp(fixture.data), tmp_path, *flags):
            pytest.skip(f"the installed torch does not take the plain one: {before[:200]}")
        raise AssertionError(said)


def test_an_output_that_is_returned_twice_has_the_same_buffer() -> None:
    fixture = get("cpu-torch2.13/mlp cpp_wrapper")
    data = fixture.path.read_bytes()
    (entry,) = plain(fixture).only.located.entries
    last = f"output_handles[{len(entry.outputs) - 1}]".encode()
    line = re.search(rb"^ *" + re.escape(last) + rb" = .*\n", data, re.M)
    assert line is not None
    again = b"    output_handles[%d] = %s;\n" % (len(entry.outputs), last)
    (more,) = opened(fixture, data.replace(line[0], line[0] + again)).only.located.entries
    assert more.outputs == (*entry.outputs, entry.outputs[-1])
    assert entry.outputs[-1]
