"""What the locator finds in real wrappers, against tables checked by reading the files."""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections import Counter

import pytest

import shapes
from artifacts import ARTIFACTS, CPP_FIXTURES, FIXTURES, Fixture, get, plain
from rewriter.cli import main
from rewriter.locate.types import Launch
from rewriter.locate.vocabulary import vocabulary
from sampling import one_in

pytestmark = pytest.mark.properties

all_fixtures = pytest.mark.parametrize("fixture", FIXTURES + CPP_FIXTURES, ids=str)
python_fixtures = pytest.mark.parametrize("fixture", FIXTURES, ids=str)

KINDS_OF = shapes.table("kinds")
_VIEW = re.compile(r"wrap_with_raii_handle_if_needed\(reinterpret_tensor_wrapper\((.*?)\)\)")


def shown(launch: Launch, *, others: bool) -> list[str]:
    """The three lines of a launch in `shapes/real.txt`, those of C++ without `others`."""
    nodes = f"{' '.join(launch.source_nodes)} <- {' '.join(launch.origins)}"
    arguments = [shapes.argument(one) for one in launch.args if others or one.type != "other"]
    return [
        f"  #{launch.index} {launch.scope}:{launch.line} {launch.kind} {launch.kernel}"
        + (" (repeats)" if launch.repeats else ""),
        "    " + _VIEW.sub(r"view(\1)", " | ".join(arguments)),
        "    " + (nodes.rstrip() if launch.source_nodes or launch.origins else "-"),
    ]


def calls_by_text(fixture: Fixture) -> list[int]:
    """Lines of the calls that look like launches, told by nothing but their first words."""
    prefixes = (
        *("extern_kernels.", "torch.ops.", "aten.", "cpp_fused"),
        *("generated_kernel_", "halide_kernel_", "triton_unk_"),
    )
    found = []
    for function in ast.walk(ast.parse(fixture.data)):
        if isinstance(function, ast.FunctionDef) and "args" in [a.arg for a in function.args.args]:
            for node in ast.walk(function):
                if isinstance(node, ast.Call):
                    callee = ast.unparse(node.func)
                    if callee.startswith("torch.ops.streams."):
                        continue
                    if callee.endswith(".run") or callee.startswith(prefixes):
                        found.append(node.lineno)
    return sorted(found)


def test_every_fixture_is_in_the_table() -> None:
    assert {str(fixture) for fixture in FIXTURES + CPP_FIXTURES} == set(KINDS_OF)
    everywhere = {
        *(f"cpu-torch{version}" for version in ("2.6", "2.8", "2.13", "2.15")),
        *(f"cuda-torch{version}" for version in ("2.6", "2.11", "2.15")),
    }
    assert {fixture.folder for fixture in FIXTURES} >= everywhere | {"cuda-torch2.8"}
    assert {fixture.folder for fixture in CPP_FIXTURES} == everywhere | {"mps-torch2.15"}


@all_fixtures
def test_every_call_is_recognised(fixture: Fixture) -> None:
    assert plain(fixture).unrecognised == ()


@all_fixtures
def test_launches_per_kind(fixture: Fixture) -> None:
    launches = plain(fixture).launches
    assert Counter(launch.kind for launch in launches) == Counter(KINDS_OF[str(fixture)])
    assert {launch.kind for launch in launches} <= set(vocabulary().kinds)


@python_fixtures
def test_launches_are_in_file_order(fixture: Fixture) -> None:
    launches = plain(fixture).launches
    assert [launch.index for launch in launches] == list(range(len(launches)))
    assert [launch.line for launch in launches] == calls_by_text(fixture)


@python_fixtures
def test_a_launch_is_on_its_line(fixture: Fixture) -> None:
    lines = fixture.data.decode().split("\n")
    for launch in plain(fixture).launches:
        line = lines[launch.line - 1]
        assert re.search(rf"(?<![\w.]){re.escape(launch.kernel)}[.(]", line)
        # Positional arguments stand on the line as they are shown, results in what is assigned.
        for argument in launch.args:
            if not argument.expr.startswith(f"{line.split('=')[0].strip()}["):
                assert argument.expr in line


@all_fixtures
def test_nothing_stands_in_the_way_of_a_probe(fixture: Fixture) -> None:
    sites = [launch.insertion_point for launch in plain(fixture).launches]
    for site in sites:
        assert (site.obstacle, site.open_ended) == ("", "")
        lines = fixture.data[site.start : site.end]
        assert lines.endswith(b"\n")
        assert fixture.kind != "python" or lines.count(b"\n") == 1
    # The lines of one launch do not go between those of another.
    assert all(one.end <= other.start for one, other in itertools.pairwise(sites))


@all_fixtures
def test_every_launch_has_a_tensor(fixture: Fixture) -> None:
    for launch in plain(fixture).launches:
        assert any(argument.role != "in" for argument in launch.tensors), "it writes something"
        assert all(one.buffer and one.name and one.expr for one in launch.tensors)


@shapes.real_launches()
def test_golden(name: str, index: int, lines: list[str]) -> None:
    fixture = get(name)
    launch = plain(fixture).launches[index]
    assert shown(launch, others=fixture.kind == "python") == lines


@pytest.mark.parametrize("fixture", [*FIXTURES, *one_in(3, CPP_FIXTURES)], ids=str)
def test_list_json_has_the_schema_of_the_contract(
    fixture: Fixture, capsys: pytest.CaptureFixture[str]
) -> None:
    # Nothing held the events of that one in their places when it was made.
    races = str(fixture) == "cuda-torch2.15/streams"
    assert main(["list", "--json", "--strict", str(fixture.path)]) == races
    listed = json.loads(capsys.readouterr().out)
    assert list(listed) == [
        "format", "version", "launches", "unrecognised", "wrappers", "inputs", "damaged", "races"
    ]  # fmt: skip
    assert bool(listed["races"]) == races
    assert (listed["format"], listed["version"]) == ("rewriter.launches", 1)
    assert listed["unrecognised"] == []
    types = {
        "index": int, "scope": str, "kernel": str, "kind": str, "line": int, "args": list,
        "origins": list, "source_nodes": list, "lines": list, "computes": list, "wrapper": str,
    }  # fmt: skip
    argument_types = dict.fromkeys(("name", "expr", "buffer", "role", "type"), str)
    launches = plain(fixture).launches
    assert len(listed["launches"]) == len(launches)
    for shown_, launch in zip(listed["launches"], launches, strict=True):
        assert {key: type(value) for key, value in shown_.items()} == types
        assert shown_["wrapper"] == fixture.path.name
        for argument in shown_["args"]:
            assert {key: type(value) for key, value in argument.items()} == argument_types
            assert argument["role"] in ("in", "out", "inout")
            assert argument["type"] in ("tensor", "scalar", "other")
        texts = shown_["origins"] + shown_["source_nodes"] + shown_["computes"]
        assert all(type(text) is str for text in texts)
        # Only an entry of a cache tells them, and a wrapper by itself has none beside it.
        assert shown_["lines"] == []
        assert [a["name"] for a in shown_["args"]] == [a.name for a in launch.args]


def test_list_json_of_a_directory_names_each_wrapper(capsys: pytest.CaptureFixture[str]) -> None:
    folder = ARTIFACTS / "cuda-torch2.11" / "gpt_train"
    # A Python wrapper and a C++ one for each of its two graphs.
    assert main(["list", "--json", str(folder)]) == 0
    wrappers = Counter(
        launch["wrapper"] for launch in json.loads(capsys.readouterr().out)["launches"]
    )
    assert wrappers == {
        "cpp_wrapper/output_code.py": 46,
        "cpp_wrapper/output_code1.py": 19,
        "python/output_code.py": 46,
        "python/output_code1.py": 20,
    }
