"""`rewriter diff`: what it says of two wrappers, in text, as JSON, and from Python."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import rewriter
from artifacts import CPP_FIXTURES, FIXTURES, UPSTREAM, Fixture, get
from imports import HEAVY, imported_by
from rewriter.cli import main
from rewriter.comparison.artifacts import files
from rewriter.comparison.artifacts.types import Difference, WrapperDifference
from rewriter.core.errors import BAD_INPUT, DIFFERS, OK, RewriterError
from sampling import one_in

pytestmark = pytest.mark.properties

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def edited(tmp_path: Path) -> Callable[..., WrapperDifference]:
    """`edited(fixture, (old, new), …)` compares a wrapper with itself after these replacements."""

    def compare(name: str, *changes: tuple[str, str], count: int = 1) -> WrapperDifference:
        fixture = get(name)
        text = fixture.data.decode()
        for old, new in changes:
            assert text.count(old) >= 1, old
            text = text.replace(old, new, count)
        path = tmp_path / fixture.path.name
        path.write_bytes(text.encode())
        found = rewriter.diff(fixture.path, path)
        assert found.verdict == "different"
        return found.wrappers[0]

    return compare


def instrumented(fixture: Fixture, probes: str, folder: Path) -> Path:
    path = folder / f"{probes.replace(',', '_')}{fixture.path.suffix}"
    path.write_bytes(rewriter.instrument(fixture.path, rewriter.select(probes)).source)
    if (operators := fixture.path.with_suffix(".json")).is_file():
        shutil.copyfile(operators, folder / operators.name)
    return path


@pytest.mark.parametrize("fixture", one_in(16, FIXTURES + CPP_FIXTURES))
def test_probes_are_no_difference(fixture: Fixture, tmp_path: Path) -> None:
    names, several = (instrumented(fixture, p, tmp_path) for p in ("names", "print,save"))
    for a, b in ((fixture.path, names), (several, fixture.path), (names, several)):
        found = rewriter.diff(a, b)
        assert found.verdict == "instrumented"
        (wrapper,) = found.wrappers
        assert wrapper.notes == ()
        for side, probing in ((a, wrapper.probing_a), (b, wrapper.probing_b)):
            if side == fixture.path:
                assert probing is None
            else:
                assert probing is not None
                assert "_".join(probing.probes) == side.stem
                assert probing.exact
                assert probing.launches == wrapper.count_a == wrapper.count_b
    assert rewriter.diff(fixture.path, fixture.path).verdict == "identical"


@pytest.mark.parametrize("fixture", UPSTREAM, ids=str)
def test_the_printer_of_torch_changes_no_launch(fixture: Fixture) -> None:
    (wrapper,) = rewriter.diff(fixture.path, fixture.upstream).wrappers
    assert wrapper.count_a == wrapper.count_b
    assert (wrapper.launches, wrapper.renamed, wrapper.kernels, wrapper.names) == ((), (), (), ())
    assert wrapper.lines
    assert all("_print_debugging_tensor_value_info" in line.text for line in wrapper.lines)
    assert {line.side for line in wrapper.lines} == {"b"}


# --- What is said of one change -----------------------------------------------------------------

MLP = "cuda-torch2.11/mlp"
AOTI = "cuda-torch2.11/mlp aoti"


def renumber(first: int) -> Callable[[re.Match[str]], str]:
    return lambda match: f"buf{int(match[1]) + (int(match[1]) >= first)}"


def test_renumbered_buffers_change_no_launch(tmp_path: Path) -> None:
    for name in (MLP, AOTI, "cpu-torch2.13/transformer", "cpu-torch2.13/mlp cpp_wrapper"):
        fixture = get(name)
        path = tmp_path / fixture.path.name
        text = re.sub(r"\bbuf(\d+)(?=\b|_handle)", renumber(2), fixture.data.decode())
        path.write_text(text)
        (wrapper,) = rewriter.diff(fixture.path, path).wrappers
        assert wrapper.verdict == "different"
        assert wrapper.launches == ()
        assert len(wrapper.names) > 5


def test_an_inserted_launch_is_all_that_changes(tmp_path: Path) -> None:
    fixture = get(MLP)
    path = tmp_path / "output_code.py"
    text = re.sub(r"\bbuf(\d+)\b", renumber(2), fixture.data.decode())
    place = "            # Topologically Sorted Source Nodes: [, h, linear_1], "
    assert text.count(place) == 1
    text = text.replace(place, f"            buf2 = torch.ops.aten.relu.default(buf1)\n{place}")
    path.write_text(text.replace("addmm(arg4_1, buf1,", "addmm(arg4_1, buf2,"))
    (wrapper,) = rewriter.diff(fixture.path, path).wrappers
    inserted, reader = wrapper.launches
    assert inserted.a is None
    assert inserted.b is not None
    assert (inserted.b.kernel, inserted.b.index) == ("torch.ops.aten.relu.default", 2)
    # What read the buffer reads the result of the new launch.
    assert reader.changes == ("arguments",)
    assert reader.details == ("argument 2: buf1 of #1 -> buf2 of #2",)
    # Comments name buffers that no launch does.
    assert all(line.text.startswith("#   ") for line in wrapper.lines)


def test_a_swapped_operand_is_an_argument(edited: Callable[..., WrapperDifference]) -> None:
    old = "triton_per_fused__softmax_exp_native_layer_norm_prepare_softmax_online_sub_1"
    for name, before, after in (
        (MLP, f"{old}.run(buf6, arg5_1, arg6_1", f"{old}.run(buf6, arg6_1, arg5_1"),
        (AOTI, f" call_{old}(buf6, ln_weight, ln_bias", f" call_{old}(buf6, ln_bias, ln_weight"),
    ):
        (change,) = edited(name, (before, after)).launches
        assert change.changes == ("arguments",)
        assert len(change.details) == 2
        assert change.launch.index == 3


def test_another_scalar_is_an_argument(edited: Callable[..., WrapperDifference]) -> None:
    for name, old, new in (
        (MLP, "(buf1, arg1_1, 512,", "(buf1, arg1_1, 511,"),
        (AOTI, "(buf1, a_bias, 512L,", "(buf1, a_bias, 511L,"),
    ):
        (change,) = edited(name, (old, new)).launches
        assert (change.changes, change.details) == (("arguments",), ("argument 3: 512 -> 511",))


def test_another_view_is_an_argument(edited: Callable[..., WrapperDifference]) -> None:
    (python,) = edited(MLP, ("arg0_1, (32, 64), (1, 32)", "arg0_1, (32, 64), (1, 16)")).launches
    # In C++ sizes have names, which are constants of the file.
    wrapper = edited(AOTI, ("int_array_3[] = {1L, 32L}", "int_array_3[] = {1L, 16L}"))
    (cpp,) = wrapper.launches
    assert python.changes == cpp.changes == ("arguments",)
    for change in (python, cpp):
        assert "(1, 32), 0) -> reinterpret_tensor" in change.details[0]
    # The declaration is a line of its own.
    assert {line.text.strip()[:40] for line in wrapper.lines} == {
        "static constexpr int64_t int_array_3[] =",
    }


def test_renamed_arrays_of_sizes_change_no_launch(
    edited: Callable[..., WrapperDifference],
) -> None:
    wrapper = edited(AOTI, ("int_array_3", "int_array_33"), count=-1)
    assert wrapper.launches == wrapper.lines == ()
    assert len(wrapper.names) == 2


def test_a_renamed_kernel_is_no_other_kernel(edited: Callable[..., WrapperDifference]) -> None:
    for name in (MLP, AOTI):
        wrapper = edited(name, ("addmm_gelu_0", "addmm_gelu_7"), count=-1)
        assert (wrapper.launches, wrapper.kernels, wrapper.lines) == ((), (), ())
        ((a, b),) = wrapper.renamed
        assert (a.kernel, b.kernel) == (
            "triton_poi_fused_addmm_gelu_0",
            "triton_poi_fused_addmm_gelu_7",
        )


@pytest.mark.parametrize(
    ("change", "part", "lines"),
    [
        (("tmp2 * tmp3", "tmp3 * tmp3"), "code", (1, 1)),
        (("min_elem_per_thread=0", "min_elem_per_thread=2"), "metadata", (1, 1)),
    ],
)
def test_a_changed_source_is_said_of_the_kernel(
    change: tuple[str, str],
    part: str,
    lines: tuple[int, int],
    edited: Callable[..., WrapperDifference],
) -> None:
    for name in (MLP, AOTI):
        wrapper = edited(name, change)
        assert (wrapper.launches, wrapper.lines, wrapper.names) == ((), (), ())
        (kernel,) = wrapper.kernels
        assert kernel.a == kernel.b == "triton_poi_fused_addmm_gelu_0"
        assert (kernel.part, (kernel.removed, kernel.added)) == (part, lines)
        assert change[0] in kernel.diff
        assert change[1] in kernel.diff


def test_the_call_around_a_changed_source_is_named(
    edited: Callable[..., WrapperDifference],
) -> None:
    name = "triton_poi_fused_addmm_gelu_0"
    text = get(MLP).data.decode()
    end = text.index("''', device_str='cuda')", text.index(f"{name} = async_compile"))
    line = text[:end].count("\n") + 1
    before = text[text.rindex("\n", 0, end - 1) + 1 : end]
    wrapper = edited(
        MLP,
        ("tmp2 * tmp3", "tmp3 * tmp3"),
        (f"{before}''', device_str='cuda')", f"{before}''', device_str='xpu')"),
    )
    (kernel,) = wrapper.kernels
    assert (kernel.a, kernel.removed, kernel.added) == (name, 1, 1)
    assert [(one.side, one.number, one.text) for one in wrapper.lines] == [
        ("a", line, "''', device_str='cuda')"),
        ("b", line, "''', device_str='xpu')"),
    ]


def test_another_kernel(edited: Callable[..., WrapperDifference]) -> None:
    (change,) = edited(MLP, ("extern_kernels.mm(", "extern_kernels.bmm(")).launches
    assert change.changes == ("kernel",)
    assert change.details == ("kernel extern_kernels.mm -> extern_kernels.bmm",)


def test_a_keyword_is_told_by_the_launch(edited: Callable[..., WrapperDifference]) -> None:
    wrapper = edited(MLP, ("alpha=1", "alphb=1"))
    (change,) = wrapper.launches
    assert (change.changes, change.launch.index) == (("text",), 2)
    assert wrapper.lines == ()


def test_launches_in_another_order(tmp_path: Path) -> None:
    lines = get("cuda-torch2.11/gpt").data.decode().splitlines(keepends=True)
    calls = [i for i, line in enumerate(lines) if line.lstrip().startswith("extern_kernels.")]
    first, second = calls[2], calls[5]
    lines[first], lines[second] = lines[second], lines[first]
    path = tmp_path / "output_code.py"
    path.write_text("".join(lines))
    (wrapper,) = rewriter.diff(get("cuda-torch2.11/gpt").path, path).wrappers
    assert wrapper.launches
    assert wrapper.count_a == wrapper.count_b
    touched = {change.launch.index for change in wrapper.launches}
    located = rewriter.open(path).launches
    moved = {launch.index for launch in located if launch.line in (first + 1, second + 1)}
    assert moved <= touched


def test_lines_that_belong_to_nothing_else(edited: Callable[..., WrapperDifference]) -> None:
    wrapper = edited(
        MLP, ("assert_size_stride(arg1_1, (64, )", "assert_size_stride(arg1_1, (65, )")
    )
    assert (wrapper.launches, wrapper.kernels) == ((), ())
    assert [line.side for line in wrapper.lines] == ["a", "b"]
    text = get(MLP).path.read_text().splitlines()
    assert text[wrapper.lines[0].number - 1] == wrapper.lines[0].text


@pytest.mark.parametrize("name", [MLP, AOTI])
def test_marked_lines_that_instrument_did_not_write(name: str, tmp_path: Path) -> None:
    fixture = get(name)
    path = instrumented(fixture, "print", tmp_path)
    header = rewriter.open(path).only.probes
    assert header is not None
    sign = b"#" if fixture.path.suffix == ".py" else b"//"
    mark = b"  " + sign + b" rewriter:" + header.tag.encode() + b"\n"
    path.write_bytes(path.read_bytes() + b"_rw.before(7)" + mark + b"launch_missiles()" + mark)
    (wrapper,) = rewriter.diff(fixture.path, path).wrappers
    assert wrapper.verdict == "different"
    assert wrapper.notes == ("B has a marked line that instrument did not write",)
    assert wrapper.probing_b is not None
    assert wrapper.probing_b.launches == wrapper.count_b == 5


# --- Two releases of torch ----------------------------------------------------------------------

MLPS = [f"cpu-torch{version}/mlp" for version in ("2.6", "2.8", "2.13", "2.15")]


@pytest.mark.parametrize("kind", ["", " aoti", " cpp_wrapper"])
def test_releases_of_torch_launch_the_same(kind: str) -> None:
    for one, other in itertools.pairwise(MLPS):
        (wrapper,) = rewriter.diff(get(one + kind).path, get(other + kind).path).wrappers
        assert wrapper.count_a == wrapper.count_b == 5
        assert all(change.a and change.b for change in wrapper.launches)
        kernels = {change.a.kernel for change in wrapper.launches if change.a}
        # The inputs, the products and what reads them stand for each other.
        assert not any("order" in change.changes for change in wrapper.launches), kernels


def test_the_attention_of_another_release_is_other_launches() -> None:
    found = rewriter.diff(get("cuda-torch2.8/gpt").path, get("cuda-torch2.11/gpt").path)
    (wrapper,) = found.wrappers
    new = {change.b.kernel for change in wrapper.launches if change.a is None and change.b}
    assert "torch.ops.aten._scaled_dot_product_efficient_attention.default" in new
    gone = {change.a.kernel for change in wrapper.launches if change.b is None and change.a}
    assert "extern_kernels.bmm" in gone


# --- The command --------------------------------------------------------------------------------


def run(capsys: Capture, *words: object) -> tuple[int, str]:
    code = main(["diff", *map(str, words)])
    return code, capsys.readouterr().out


def test_the_verdict_and_the_exit_code(tmp_path: Path, capsys: Capture) -> None:
    fixture = get(MLP)
    probed = instrumented(fixture, "print", tmp_path)
    assert run(capsys, fixture.path, fixture.path) == (OK, "identical: 5 launches\n")
    code, out = run(capsys, fixture.path, probed)
    assert code == OK
    assert out == (
        "instrumented: the same without the probes\n  B has print around 5 of 5 launches\n"
    )
    probed.write_bytes(probed.read_bytes().replace(b"(buf1, arg1_1, 512,", b"(buf1, arg1_1, 4,"))
    lines = probed.read_text().splitlines()
    [line] = (number for number, one in enumerate(lines, 1) if "(buf1, arg1_1, 4," in one)
    code, out = run(capsys, fixture.path, probed)
    assert code == DIFFERS
    assert out.splitlines() == [
        "different: 1 of 5 launches",
        "  B has print around 5 of 5 launches; it was edited since",
        f"  ~ #1 -> #1 triton_poi_fused_addmm_gelu_0 (line {line})  argument 3: 512 -> 4  [h]",
    ]


def test_output_for_a_pipe_is_ascii(capsys: Capture) -> None:
    for one, other in itertools.pairwise(MLPS):
        _, out = run(capsys, get(one).path, get(other).path, "--all")
        assert out.isascii()


def test_long_lists_are_cut(capsys: Capture) -> None:
    paths = get("cuda-torch2.6/gpt").path, get("cuda-torch2.11/gpt").path
    _, short = run(capsys, *paths)
    _, long = run(capsys, *paths, "--all")
    assert "more launches; --all shows them" in short
    assert "--all shows them" not in long
    assert len(short.splitlines()) < 60 < len(long.splitlines())


def test_the_unified_difference_leaves_probes_out(tmp_path: Path, capsys: Capture) -> None:
    fixture = get(MLP)
    probed = instrumented(fixture, "print", tmp_path)
    assert "@@" not in run(capsys, "-u", fixture.path, probed)[1]
    probed.write_bytes(probed.read_bytes().replace(b"(buf1, arg1_1, 512,", b"(buf1, arg1_1, 4,"))
    _, out = run(capsys, "-u", fixture.path, probed)
    assert re.findall(r"^[-+] .*", out, re.MULTILINE) == [
        "-            triton_poi_fused_addmm_gelu_0.run(buf1, arg1_1, 512, stream=stream0)",
        "+            triton_poi_fused_addmm_gelu_0.run(buf1, arg1_1, 4, stream=stream0)",
    ]
    assert "@@" in json.loads(run(capsys, "-u", fixture.path, probed, "--json")[1])["unified"]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (MLP, MLP),
        (MLP, "cuda-torch2.15/mlp"),
        ("cuda-torch2.6/gpt", "cuda-torch2.11/gpt"),
        ("cpu-torch2.6/mlp aoti", "cpu-torch2.15/mlp aoti"),
        ("cpu-torch2.8/mlp cpp_wrapper", "cpu-torch2.13/mlp cpp_wrapper"),
    ],
)
def test_json_has_the_verdict(a: str, b: str, capsys: Capture) -> None:
    code, out = run(capsys, get(a).path, get(b).path, "--json")
    assert json.loads(out)["verdict"] == ("identical" if a == b else "different")
    assert code == (OK if a == b else DIFFERS)


# --- Directories, and what cannot be compared ---------------------------------------------------


def test_directories_are_paired_by_names(tmp_path: Path, capsys: Capture) -> None:
    for side in "ab":
        for name in ("one", "two"):
            (tmp_path / side / name).mkdir(parents=True)
            (tmp_path / side / name / "output_code.py").write_bytes(get(MLP).data)
    a, b = tmp_path / "a", tmp_path / "b"
    assert run(capsys, a, b) == (
        OK,
        "identical: 2 wrappers, 10 launches\none/output_code.py: identical\n"
        f"two/output_code.py: identical\n  note: {files.OTHERS}\n",
    )
    (b / "two/output_code.py").rename(b / "two/other.py")
    found: Difference = rewriter.diff(a, b)
    assert (found.verdict, found.only_a, found.only_b) == (
        "different",
        ("two/output_code.py",),
        ("two/other.py",),
    )
    (b / "one/output_code.py").rename(b / "one/other.py")
    with pytest.raises(RewriterError) as caught:
        rewriter.diff(a, b)
    assert caught.value.slug == "no-common-wrappers"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (MLP, AOTI),
        (AOTI, MLP),
        (MLP, "cuda-torch2.11/mlp cpp_wrapper"),
        ("cpu-torch2.13/mlp", "cpu-torch2.13/mlp cpp_wrapper"),
        (AOTI, "cuda-torch2.11/mlp cpp_wrapper"),
    ],
)
def test_two_kinds_are_refused(a: str, b: str, capsys: Capture) -> None:
    assert main(["diff", str(get(a).path), str(get(b).path)]) == BAD_INPUT
    assert "error[different-kinds]" in capsys.readouterr().err


@pytest.mark.parametrize("name", [MLP, AOTI, "cpu-torch2.13/mlp cpp_wrapper"])
def test_torch_is_not_imported(name: str, tmp_path: Path) -> None:
    fixture = get(name)
    changed = tmp_path / fixture.path.name
    changed.write_bytes(fixture.data.replace(b"512", b"511"))
    options: tuple[list[str], ...] = ([], ["-u", "--all"], ["--json"])
    commands = (["diff", *some, fixture.path, changed] for some in options)
    assert imported_by(*commands, code=1).isdisjoint(HEAVY)
