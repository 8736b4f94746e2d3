"""Which arguments of launches the probes show: each value once unless all are asked for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import rewriter
from artifacts import get
from command_lines import parsed
from rewriter.commands._selection import selection
from rewriter.core.errors import RewriterError
from rewriter.instrumentation import options_line, probe_check
from rewriter.instrumentation.probes import args_mode
from rewriter.instrumentation.types import Selection
from rewriter.runtime import attach
from tables import options as options_of
from tables import row


def lines(wrapper: str, *probes: str, **options: Any) -> list[str]:
    """The lines of probes, without those of the header."""
    made = rewriter.instrument(get(wrapper).path, rewriter.select(probes or ("print",), **options))
    text = (x.text.decode().partition("// rewriter:")[0] for x in made.plan.insertions[1:])
    return [line.partition("  #")[0].strip() for line in text]


def of(phase: str, found: Iterable[str]) -> list[str]:
    return [line for line in found if f".{phase}(" in line]


TRANSFORMER = "cpu-torch2.13/transformer"


def test_a_value_is_shown_where_it_is_made() -> None:
    found = lines(TRANSFORMER)
    assert of("before", found) == []
    assert len(of("inputs", found)) == 1
    assert of("after", found)[:3] == [
        "_rw.after(0, buf1, buf3, buf4)",
        "_rw.after(1, buf5)",
        "_rw.after(2, buf6[0], buf6[1])",
    ]


def test_when_after_is_the_default() -> None:
    assert lines(TRANSFORMER, when="after") == lines(TRANSFORMER)


@pytest.mark.parametrize("options", [{"args": "all"}, {"when": "both"}], ids=str)
def test_all_arguments_are_shown_on_both_sides(options: dict[str, Any]) -> None:
    found = lines(TRANSFORMER, **options)
    assert len(of("inputs", found)) == 1
    before, after = of("before", found), of("after", found)
    assert before[0] == "_rw.before(0, primals_1, primals_2, primals_3)"
    assert after[0] == "_rw.after(0, buf1, buf3, primals_1, primals_2, primals_3, buf4)"
    assert len(before) == len(after) == 9


def test_what_was_given_is_in_the_table() -> None:
    made = rewriter.instrument(get(TRANSFORMER).path, rewriter.select("print"))
    header = made.plan.insertions[0].text.decode()
    assert "'after': [['out', 'buf16']], 'reads': [['in', 'buf15']]" in header
    both = rewriter.instrument(get(TRANSFORMER).path, rewriter.select("print", args="all"))
    assert "'reads'" not in both.plan.insertions[0].text.decode()


@pytest.mark.parametrize("chosen", [{"roles": "in"}, {"tensors": "buf4"}], ids=str)
def test_who_chooses_arguments_chooses_among_all(chosen: dict[str, Any]) -> None:
    assert lines(TRANSFORMER, **chosen) == lines(TRANSFORMER, **chosen, args="all")


def test_some_launches_show_what_nobody_else_does() -> None:
    """What launches without probes wrote is shown where it is read."""
    assert of("after", lines(TRANSFORMER, launches=[5, 6])) == [
        "_rw.after(5, primals_11, reinterpret_tensor(buf14, (12, 16), (16, 1), 0), "
        "reinterpret_tensor(primals_10, (16, 32), (1, 16), 0), buf15)",
        "_rw.after(6, buf16)",
    ]


@pytest.mark.parametrize(
    ("wrapper", "shown"),
    [
        ("cpu-torch2.13/frozen", "_frozen_param17"),
        ("cpu-torch2.13/subgraph", "repeated_subgraph0_arg0_1"),
        ("cpu-torch2.13/cond", "true_graph_0_arg0_1"),
        ("cpu-torch2.13/mlp aoti", "up_bias"),
    ],
)
def test_what_no_launch_wrote_and_no_call_was_given(wrapper: str, shown: str) -> None:
    found = lines(wrapper)
    assert of("before", found) == []
    assert any(shown in line for line in of("after", found))


def test_what_may_be_written_is_shown() -> None:
    """Nobody says what a custom operator writes, if it returns something."""
    after = of("after", lines("cpu-torch2.13/customop"))
    launches = rewriter.open(get("cpu-torch2.13/customop").path).launches
    custom = [launch for launch in launches if launch.kind == "custom_op"]
    assert custom
    for launch in custom:
        (line,) = (x for x in after if x.startswith(f"_rw.after({launch.index},"))
        tensors = [x.expr for x in launch.args if x.type == "tensor"]
        assert all(expr in line for expr in tensors), line


@pytest.mark.parametrize(
    ("probes", "options", "shows"),
    [
        ("print", {}, "written"),
        ("save", {"when": "after"}, "written"),
        ("hash", {"when": "before"}, "all"),
        ("print", {"when": "both"}, "all"),
        ("print", {"when": "both", "args": "written"}, "written"),
        ("names,print", {}, "written"),
        ("print,sync", {}, "all"),
        ("print,sync", {"args": "written"}, "written"),
        ("print", {"kernels": "*"}, "written"),
        ("print", {"roles": "out"}, "all"),
        ("print", {"format": "upstream"}, "all"),
    ],
)
def test_which_arguments(probes: str, options: dict[str, Any], shows: str) -> None:
    assert args_mode(rewriter.select(probes, **options)) == shows


def test_names_sync_and_time_stay_where_they_are() -> None:
    def phases(*probes: str, **options: Any) -> set[str]:
        found = lines(TRANSFORMER, *probes, **options)
        return {phase for phase in ("inputs", "before", "after") if of(phase, found)}

    assert phases("names") == {"before"}
    assert phases("time") == {"before", "after"}
    assert phases("sync") == {"inputs", "before", "after"}
    assert phases("names", "print") == {"inputs", "before", "after"}
    assert "_rw.before(0)" in lines(TRANSFORMER, "names", "print")


@pytest.mark.parametrize("wrapper", [TRANSFORMER, "cpu-torch2.13/mlp aoti"])
def test_the_choice_is_recorded_in_the_file(wrapper: str, tmp_path: Path) -> None:
    selection = rewriter.select("print", args="all")
    made = rewriter.instrument(get(wrapper).path, selection)
    path = tmp_path / made.path.name
    path.write_bytes(made.source)
    (opened,) = rewriter.open(path).wrappers
    assert opened.probes is not None
    recorded = options_line.read(made.source, opened.probes.tag, ("print",))
    assert recorded is not None
    assert recorded[1] == Selection(("print",), args="all")
    assert probe_check.check(opened) == probe_check.ProbeCheck("verified")
    assert rewriter.strip(path).source == get(wrapper).data


@pytest.mark.parametrize(
    ("options", "before"),
    [({}, 1), ({"args": "all"}, 1), ({"args": "written"}, 0)],
    ids=["a file of an earlier version", "all", "written"],
)
def test_where_the_runtime_acts(
    options: dict[str, str], before: int, capsys: pytest.CaptureFixture[str]
) -> None:
    table = [row(before=[["in", "x"]], after=[["out", "y"]])]
    recorder = attach(options_of("print", **options), table, ["given"])
    recorder.begin()
    recorder.inputs(1)
    recorder.before(0, 2)
    recorder.after(0, 3)
    recorder.end()
    found = [line.split()[-1] for line in capsys.readouterr().out.splitlines()]
    assert found == ["1", *["2"] * before, "3"]


def test_args_is_a_file_of_inputs_and_a_choice() -> None:
    both = parsed("run", "x.py", "--args", "in.pt", "--args", "all", "--probe", "print")
    assert (both.args, both.which) == ("in.pt", "all")
    assert (parsed("run", "x.py").args, parsed("run", "x.py").which) == (None, None)
    assert parsed("run", "x.py", "--args", "./all").args == "./all"
    assert parsed("triage", "x.py", "--args", "in.pt").args == "in.pt"
    for command in (["instrument", "x.py"], ["run", "x.py"]):
        made = selection(parsed(*command, "--probe", "print", "--args", "all"))
        assert made is not None
        assert made.args == "all"
    with pytest.raises(RewriterError, match="--args 'other': expected one of written, all"):
        parsed("instrument", "x.py", "--args", "other")


def test_a_choice_without_a_probe_is_an_error() -> None:
    with pytest.raises(RewriterError, match="no probe") as error:
        selection(parsed("run", "x.py", "--args=all"))
    assert error.value.slug == "no-probes"
