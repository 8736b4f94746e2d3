"""Ours prints what PyTorch's own printer prints in C++ wrappers, and the launches it leaves out.

Of AOTInductor packages only the text was kept that the printer, compiled into them, printed in a
run: `aoti-upstream-print/stdout.txt`. What ours prints is read off the lines that go into the plain
wrapper, and off the table that names their values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Literal, NamedTuple

import pytest

import rewriter
from artifacts import AOTI_UPSTREAM, CPP_FIXTURES, Fixture, get, plain
from rewriter.core.source import Source
from rewriter.locate.cpp import embedded
from sampling import one_in

pytestmark = pytest.mark.properties

upstream_fixtures = pytest.mark.parametrize("fixture", AOTI_UPSTREAM, ids=str)

Style = Literal["text", "upstream"]

_PRINTED = re.compile(r"^\[  (before|after)_launch - (\S+) - ([^\s:]+)(?:: .*)?  \]", re.MULTILINE)
_INPUT = re.compile(r"^\[  aoti_model_inputs - (\S+)  \]:$", re.MULTILINE)
_ROW = re.compile(r"^    \{(\"\d+\", \".*)\},$", re.MULTILINE)
_LABELS = re.compile(r"^Table wrapper\{options, rows, (nullptr|\".*\"), sizeof .*;$", re.MULTILINE)
_LINE = re.compile(r"^ *_rw_*\.(before|after)\((\d+)(?:, (.*))?\);  //", re.MULTILINE)


class Print(NamedTuple):
    """One value that is printed."""

    phase: str
    kernel: str
    argument: str


class Row(NamedTuple):
    """A row of the table, as far as it is of interest: labels by phase."""

    launch: int
    kernel: str
    scope: str
    labels: dict[str, list[str]]


# What upstream calls by another name than the function that is called.
RENAMED = {"at::_ops::topk::call": "aoti_torch_cuda_topk"}


@cache
def printed_by_upstream(fixture: Fixture) -> tuple[Print, ...]:
    """What upstream printed, in that order."""
    return tuple(
        Print(match[1], RENAMED.get(match[2], match[2]), match[3])
        for match in _PRINTED.finditer(fixture.upstream.read_text())
    )


@cache
def instrumented(fixture: Fixture, style: Style) -> str:
    """The C++ with probes that print everything, which upstream's format does unasked."""
    which: Literal["all"] | None = "all" if style == "text" else None
    selection = rewriter.select("print", args=which, format=style)
    source = rewriter.instrument(plain(fixture), selection).source
    return embedded.extract(Source(fixture.path.name, source)).data.decode()


def table(text: str) -> Iterator[Row]:
    for match in _ROW.finditer(text):
        launch, kernel, _, scope, *rest = json.loads(f"[{match[1]}]".replace("nullptr", "null"))
        before, after = ((labels or "").split("; ") for labels in rest[5:7])
        yield Row(int(launch), kernel, scope, {"before": before, "after": after})


@cache
def printed_by_us(fixture: Fixture, style: Style = "upstream") -> tuple[Print, ...]:
    """What ours prints, in the order of the file; `[role name expression]` say the labels."""
    return tuple(
        Print(phase, row.kernel, label.split(" ")[1])
        for row in table(instrumented(fixture, style))
        for phase, labels in row.labels.items()
        for label in filter(None, labels)
    )


def split(values: str) -> list[str]:
    """The values of an injected line: commas outside of brackets."""
    found, depth = [""], 0
    for character in values:
        depth += (character in "({[<") - (character in ")}]>")
        if character == "," and depth == 0:
            found.append("")
        else:
            found[-1] += character
    return [value.strip() for value in found if value.strip()]


def pure_outputs(fixture: Fixture) -> set[tuple[str, str]]:
    """`(kernel, argument)` where a launch is handed memory that holds nothing yet.

    Told from the text alone: a buffer is fresh from `aoti_torch_empty_strided` until the next line
    that names it; a buffer that another one's memory was taken over for is not in here.
    """
    result = set()
    allocated: set[str] = set()
    fresh: set[str] = set()
    launch = re.compile(r"\b(?:call_(?P<triton>\w+)|(?P<shim>aoti_torch_cuda_\w+|cpp_fused\w*))\(")
    for line in fixture.path.read_text().split("\n"):
        if "aoti_torch_empty_strided(" in line:
            allocated.update(re.findall(r"&(\w+)_handle", line))
        elif match := re.match(r" *RAIIAtenTensorHandle (\w+)\(\1_handle\);", line):
            fresh.update({match[1]} & allocated)
        else:
            for name in set(re.findall(r"\w+", line)) & fresh:
                if found := launch.search(line):
                    result.add((found["triton"] or found["shim"], name))
                fresh.discard(name)
    return result


def groups(fixture: Fixture) -> list[str]:
    """The kernels that upstream printed something of, launch by launch."""
    found: list[str] = []
    last = ("", "")
    for one in printed_by_upstream(fixture):
        # A launch begins with another kernel, or where "before" comes behind "after".
        if one.kernel != last[0] or (one.phase, last[1]) == ("before", "after"):
            found.append(one.kernel)
        last = (one.kernel, one.phase)
    return found


@upstream_fixtures
def test_each_line_hands_over_what_the_table_names(fixture: Fixture) -> None:
    styles: tuple[Style, ...] = ("text", "upstream")
    for style in styles:
        text = instrumented(fixture, style)
        rows = {row.launch: row for row in table(text)}
        lines = [match for match in _LINE.finditer(text) if int(match[2]) in rows]
        assert len(lines) == 2 * len(rows)
        for match in lines:
            labels = [label for label in rows[int(match[2])].labels[match[1]] if label]
            assert len(split(match[3] or "")) == len(labels)


_NORM = "triton_per_fused_add_addmm_native_layer_norm_view"
# What upstream printed and ours does not: outputs before their launch, which hold nothing.
HOLD_NOTHING = {
    "cuda-torch2.11/cond aoti": {("triton_per_fused_gt_sum_0", "buf1")},
    "cuda-torch2.11/conv aoti": {
        ("triton_poi_fused_convolution_0", "buf0"),
        ("triton_poi_fused_convolution_1", "buf1"),
        ("triton_poi_fused_convolution_relu_3", "buf7"),
    },
    "cuda-torch2.11/customop aoti": {
        ("triton_poi_fused_mul_0", "buf0"),
        ("triton_poi_fused_relu_scale_1", "buf3"),
        ("triton_per_fused_sum_2", "buf6"),
    },
    "cuda-torch2.11/gpt aoti": {
        *(("aoti_torch_cuda_mm_out", name) for name in ("buf10", "buf29", "buf48", "buf67")),
        *((f"{_NORM}_3", name) for name in ("buf22", "buf41", "buf60")),
        *((f"{_NORM}_4", name) for name in ("buf34", "buf53", "buf72")),
        ("triton_per_fused_add_addmm_arange_embedding_native_layer_norm_view_1", "buf15"),
        ("triton_per_fused_add_arange_embedding_native_layer_norm_0", "buf3"),
    },
    "cuda-torch2.11/mlp aoti": {
        ("aoti_torch_cuda_mm_out", "buf0"),
        (
            "triton_per_fused__softmax_exp_native_layer_norm_prepare_softmax_online_sub_1",
            "buf12",
        ),
    },
}


@upstream_fixtures
def test_upstream_format_prints_whatever_upstream_prints(fixture: Fixture) -> None:
    ours = set(printed_by_us(fixture))
    missing = {one for one in printed_by_upstream(fixture) if one not in ours}
    assert {one.phase for one in missing} == {"before"}
    told = {(one.kernel, one.argument) for one in missing}
    print(f"{fixture}: {len(told)} outputs before their launch are not printed: {sorted(told)}")
    assert told == HOLD_NOTHING[str(fixture)]


@upstream_fixtures
def test_what_is_left_out_is_memory_without_a_value(fixture: Fixture) -> None:
    """As the text of the wrapper has it, and not as the locator says."""
    fresh = pure_outputs(fixture)
    taken_over = HOLD_NOTHING[str(fixture)] - fresh
    text = fixture.path.read_text()
    for kernel, name in taken_over:
        # What a dead buffer left there.
        assert re.search(rf"auto {name} = .*// reuse$", text, re.MULTILINE), (kernel, name)
    for phase, kernel, argument in printed_by_us(fixture):
        assert phase == "after" or (kernel, argument) not in fresh


@upstream_fixtures
def test_text_format_prints_every_tensor_that_upstream_prints(fixture: Fixture) -> None:
    tensors = {a.name for one in plain(fixture).launches for a in one.args if a.buffer}
    wanted = {
        one
        for one in printed_by_upstream(fixture)
        if one.argument in tensors
        and not (one.phase == "before" and (one.kernel, one.argument) in HOLD_NOTHING[str(fixture)])
    }
    assert len(wanted) > 3
    assert wanted - set(printed_by_us(fixture, "text")) == set()


@upstream_fixtures
def test_the_inputs_of_the_model(fixture: Fixture) -> None:
    wanted = _INPUT.findall(fixture.upstream.read_text())
    assert wanted
    for style in ("text", "upstream"):
        text = instrumented(fixture, style)  # type: ignore[arg-type]
        assert [match[1] for match in _LABELS.finditer(text)] == [
            json.dumps("; ".join(f"in {name}" for name in wanted))
        ]
        assert f"_rw.inputs({', '.join(wanted)});  // rewriter:" in text


@pytest.mark.parametrize("fixture", one_in(3, CPP_FIXTURES))
def test_every_launch_is_printed(fixture: Fixture) -> None:
    launches = plain(fixture).launches
    printed = {row.launch: row.labels for row in table(instrumented(fixture, "text"))}
    assert sorted(printed) == [launch.index for launch in launches]
    for launch in launches:
        written = {a.name for a in launch.args if a.type == "tensor" and a.role != "in"}
        after = {label.split(" ")[1] for label in printed[launch.index]["after"] if label}
        assert written
        assert written <= after
        before = {label.split(" ")[0] for label in printed[launch.index]["before"] if label}
        assert "out" not in before


# --- What upstream never prints -----------------------------------------------------------------


NEVER = [
    # Library calls in a conditional, whose branch was taken.
    ("cuda-torch2.11/cond aoti", "both", "aoti_torch_cuda_mm_out", "true_graph_0_arg0_1"),
    ("cuda-torch2.11/cond aoti", "after", "aoti_torch_cuda_mm_out", "true_graph_0_buf0"),
    # C++ kernels in loops and conditionals.
    ("cpu-torch2.13/nested aoti", "after", "cpp_fused_lt_zeros_1", "while_loop_cond_graph_0_buf0"),
    ("cpu-torch2.13/nested aoti", "after", "aoti_torch_cpu_mm_out",
     "while_loop_body_graph_0_true_graph_0_buf1"),
    # Custom operators.
    ("cuda-torch2.11/customop aoti", "both", "torch.ops.corp.inc_.default", "buf0"),
    ("cuda-torch2.11/customop aoti", "after", "torch.ops.corp.scale.default", "buf5"),
    # Results of fallbacks, and scatters.
    ("cuda-torch2.11/mlp aoti", "after", "aoti_torch_cuda_topk", "buf8"),
    ("cuda-torch2.11/mlp aoti", "after", "aoti_torch_cuda_topk", "buf9"),
    ("cpu-torch2.13/scatter aoti", "both", "aoti_torch_cpu_scatter_reduce_two_out", "buf7"),
    # A weight, transposed, and one as it is.
    ("cuda-torch2.11/mlp aoti", "both", "aoti_torch_cuda_mm_out", "a_weight"),
    ("cuda-torch2.11/mlp aoti", "both", "aoti_torch_cuda_addmm_out", "b_bias"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "when", "kernel", "argument"), NEVER)
def test_what_upstream_never_prints(name: str, when: str, kernel: str, argument: str) -> None:
    fixture = get(name)
    for phase in ("before", "after") if when == "both" else (when,):
        one = Print(phase, kernel, argument)
        assert fixture not in AOTI_UPSTREAM or one not in printed_by_upstream(fixture)
        assert one in printed_by_us(fixture)


def test_a_branch_that_was_taken_and_custom_operators() -> None:
    taken = groups(get("cuda-torch2.11/cond aoti"))
    assert "triton_poi_fused_add_addmm_gt_relu_2" in taken
    assert "aoti_torch_cuda_mm_out" not in taken
    operators = groups(get("cuda-torch2.11/customop aoti"))
    assert not [kernel for kernel in operators if "corp" in kernel or "proxy" in kernel]


def test_backward_graphs() -> None:
    name = "cuda-torch2.11/gpt_train cpp_wrapper"
    printed = {one.argument for one in printed_by_us(get(name))}
    assert {"tangents_1", "primals_30", "getitem_10"} <= printed


# --- How many -----------------------------------------------------------------------------------


def test_share_of_launches_that_upstream_prints() -> None:
    reached = {}
    for fixture in AOTI_UPSTREAM:
        launches = plain(fixture).launches
        ours = {row.launch for row in table(instrumented(fixture, "text"))}
        reached[fixture.model] = (len(groups(fixture)), len(ours), len(launches))
    values = {
        fixture.model: (len(set(printed_by_upstream(fixture))), len(set(printed_by_us(fixture))))
        for fixture in AOTI_UPSTREAM
    }
    theirs, ours_, all_ = (sum(column) for column in zip(*reached.values(), strict=True))
    print(f"\nlaunches: upstream {theirs}, ours {ours_} of {all_}: {reached}")
    print(f"different values: upstream, ours: {values}")
    # Of `cond` one branch ran, whose library call is not printed, and one did not.
    assert reached == {
        "cond": (3, 5, 5),
        "conv": (10, 10, 10),
        "customop": (3, 5, 5),
        "gpt": (30, 34, 34),
        "mlp": (5, 5, 5),
    }
    assert (theirs, ours_, all_) == (51, 59, 59)
    assert [sum(column) for column in zip(*values.values(), strict=True)] == [240, 448]
