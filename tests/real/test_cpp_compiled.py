"""C++ wrappers compiled by this torch, here and now: probed runs equal plain ones bit for bit.

JIT C++ wrappers are imported as Python wrappers are. A wrapper of AOTInductor is compiled again and
linked with the kernels and constants of the plain one. All run in a process of their own.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

import rewriter
from artifacts import CPP_FIXTURES
from capture import Compiled, Exported, Packaged
from fingerprints import fingerprint
from harness import Apart, Outcome, Ran, call, frozen, rebuild_aoti, run_aoti, run_aoti_alone
from models import VARIANTS, models_for
from rewriter.comparison.dumps.compare import compare
from rewriter.locate.types import Launch
from rewriter.runtime import recorder_library

ALL = "hash,names,print,save,sync,time"
EACH = ["hash", "names", "print", "save"]
JIT = [name for name in models_for("cpp_wrapper") if name != "frozen"]
AOTI = list(models_for("aoti"))
# What a plain `pytest` runs has every form of a launch that the other models have, just in time
# here, and ahead of time in a package: `test_packages.py`. Every model runs as a Python wrapper in
# `test_compiled.py`.
FIRST = "every_form"
EXHAUSTIVE = pytest.mark.exhaustive
VARIANT_MODELS = [(kind, name) for kind, names in VARIANTS.items() for name in names]
# What a branch that the inputs of a model do not take has in its name, or in those of its kernels.
NOT_TAKEN = {"cond": "false_graph", "every_form": "_cos_"}
# What is laid out as oneDNN likes it can be named, and neither measured nor saved.
OPAQUE = re.compile(r"\[rewriter 0\] warning: .*: its layout is not strided\n")
LINE = re.compile(
    r"\[rewriter 0\] (?:(?:\w+ \S+ )?call \d+ )?#(\d+)(?:\.\d+)? (before|after ) (\S+)(  .*)?"
)
INPUT_LINE = re.compile(r"\[rewriter 0\] (?:(?:\w+ \S+ )?call \d+ )?inputs  in \S+  .*")


class Jit:
    """The graphs of one model, as `torch.compile` makes them."""

    suffix = ".py"
    _ran: ClassVar[dict[bytes, Mapping[str, str]]] = {}

    def __init__(self, compiled: Compiled, folder: Path, apart: Apart) -> None:
        self.sources = [graph.source.encode() for graph in compiled.graphs]
        self._graphs, self._folder, self._apart = compiled.graphs, folder, apart

    def run(self, number: int, source: bytes, environment: Mapping[str, str] = {}) -> Ran:
        # A process loads a library once, and that reads the environment once.
        if self._ran.setdefault(source, environment) != environment:
            self._apart.close()
            self._ran.clear()
            self._ran[source] = environment
        return self._apart(call, source, self.args(number), self._folder, environment=environment)

    def args(self, number: int) -> list[Any]:
        return self._graphs[number].args

    def run_plain(self, number: int) -> Outcome:
        """In this process, which has the library already."""
        return call(self.sources[number], self.args(number), self._folder)


class Ahead:
    """One model, as AOTInductor makes it."""

    suffix = ".cpp"

    def __init__(self, exported: Exported, folder: Path, apart: Apart) -> None:
        self.sources = [exported.source]
        self._exported, self._folder, self._apart = exported, folder, apart

    def run(self, number: int, source: bytes, environment: Mapping[str, str] = {}) -> Ran:
        # A library that is loaded already would be found in its stead.
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        so = rebuild_aoti(self._exported, source, folder)
        return self._apart(run_aoti, so, self.args(number), environment=environment)

    def args(self, number: int) -> list[Any]:
        return list(self._exported.inputs)

    def run_plain(self, number: int) -> Outcome:
        so = self._exported.so
        if so is None:
            outcome: Outcome = self.run(number, self.sources[number]).outcome
            return outcome
        return run_aoti(so, self.args(number))


Subject = Jit | Ahead


@pytest.fixture
def jit(
    compiled_cpp: Callable[[str], Compiled], tmp_path: Path, apart: Apart
) -> Callable[[str], Jit]:
    return lambda model: Jit(compiled_cpp(model), tmp_path, apart)


@pytest.fixture
def ahead(
    exported: Callable[[str, str], Exported], tmp_path: Path, apart: Apart
) -> Callable[..., Ahead]:
    return lambda model, kind="aoti": Ahead(exported(model, kind), tmp_path, apart)


def plain_of(subject: Subject, number: int, cache: dict[Any, Outcome] = {}) -> Outcome:  # noqa: B006
    """What the wrapper does without probes; run once in a session."""
    key = subject.sources[number]
    if key not in cache:
        cache[key] = subject.run_plain(number)
    return cache[key]


def written(subject: Subject, number: int, folder: Path) -> Path:
    path = folder / f"plain{number}{subject.suffix}"
    path.write_bytes(subject.sources[number])
    return path


def probed(
    subject: Subject, number: int, probes: str, folder: Path, **options: Any
) -> tuple[rewriter.Artifact, bytes]:
    path = written(subject, number, folder)
    artifact = rewriter.open(path)
    result = rewriter.instrument(artifact, rewriter.select(probes, **options))
    assert not result.plan.skipped
    assert not result.plan.unrecognised
    assert len(result.plan.probed) == len(artifact.launches) > 0
    return artifact, result.source


def check_equal_and_seen(subject: Subject, model: str, probes: str, folder: Path) -> None:
    """Run every graph plain and probed: nothing differs, and every launch was reported."""
    for number in range(len(subject.sources)):
        artifact, source = probed(subject, number, probes, folder)
        dump = folder / f"dump{number}"
        ran = subject.run(number, source, {"REWRITER_DUMP": str(dump)})
        plain = plain_of(subject, number)
        assert ran.outcome.outputs == plain.outputs
        assert ran.outcome.inputs == plain.inputs
        assert ran.outcome.random_state == plain.random_state
        assert "rewriter" not in (OPAQUE.sub("", ran.err) if model == "frozen" else ran.err)
        taken = taken_of(artifact.launches, model)
        if probes != "save":
            check_lines(ran.out, taken, probes)
        else:
            assert ran.out == ""
        rows = dumped(dump)
        if probes != "names":
            check_events(rows, taken, probes)
        if "save" in probes:
            check_inputs(rows, subject.args(number))


def taken_of(launches: Iterable[Launch], model: str) -> list[Launch]:
    """The launches that the inputs of a model lead to, from the entry that torch's runner takes."""
    branch = NOT_TAKEN.get(model, "\n")
    return [
        launch
        for launch in launches
        if branch not in f"{launch.scope} {launch.kernel}" and not launch.scope.endswith("_v2_raw")
    ]


def dumped(dump: Path) -> list[dict[str, Any]]:
    """Every event of a dump, with `path` where its file is."""
    return [
        {**row, "path": file.parent / row["file"]} if "file" in row else row
        for file in sorted(dump.glob("rank0/run*/events.jsonl"))
        for row in map(json.loads, file.read_text().splitlines())
    ]


def check_lines(out: str, taken: Sequence[Any], probes: str) -> None:
    timed = re.findall(
        r"^\[rewriter 0\] (?:(?:\w+ \S+ )?call \d+ )?#(\d+)\S* \S+  \d+\.\d us$", out, re.MULTILINE
    )
    assert ("time" in probes) == bool(timed)
    assert not timed or set(map(int, timed)) == {launch.index for launch in taken}
    every = [line for line in out.splitlines() if not line.endswith(" us")]
    lines = [LINE.fullmatch(line) for line in every if not INPUT_LINE.fullmatch(line)]
    assert all(lines), out
    seen = defaultdict(set)
    for line in lines:
        assert line
        seen[int(line[1])].add((line[2].strip(), bool(line[4])))
        assert line[3] == next(x.kernel for x in taken if x.index == int(line[1]))
    for launch in taken:
        if "names" in probes:
            assert ("before", False) in seen[launch.index], launch
        if "print" in probes or "hash" in probes:
            assert ("after", True) in seen[launch.index], launch


def check_events(rows: Sequence[Mapping[str, Any]], taken: Sequence[Any], probes: str) -> None:
    """Each launch left what it wrote; nothing was read before it was there."""
    for launch in taken:
        after = {
            row.get("arg")
            for row in rows
            if (row.get("launch"), row["phase"]) == (launch.index, "after")
        }
        assert {a.name for a in launch.args if a.type == "tensor" and a.role != "in"} <= after
    files = 0
    for row in rows:
        assert (row["phase"], row.get("role")) != ("before", "out")
        if "file" in row:
            files += 1
            saved = torch.load(row["path"], weights_only=True)
            assert list(saved.shape) == row["shape"]
            assert str(saved.dtype) == f"torch.{row['dtype']}"
        if "file" in row and "hash" in probes:
            assert row["fingerprint"] == fingerprint(saved)
    assert (files > 0) == ("save" in probes)
    assert any("fingerprint" in row for row in rows) == ("hash" in probes)


def check_inputs(rows: Sequence[Mapping[str, Any]], args: Sequence[Any]) -> None:
    """What came in is kept first, in order, untouched by launches that write to it."""
    saved = [row for row in rows if row["phase"] == "inputs" and "file" in row]
    given = [value for value in args if isinstance(value, torch.Tensor)]
    assert len(saved) == len(given)
    for row, value in zip(saved, given, strict=True):
        # A view is saved without what lies between its elements.
        left, right = torch.load(row["path"], weights_only=True).contiguous(), value.contiguous()
        assert frozen(left) == frozen(right)


@EXHAUSTIVE
def test_every_call_with_frozen_weights_is_recognised(
    jit: Callable[[str], Jit], tmp_path: Path
) -> None:
    """In a JIT wrapper they are attributes that only torch's loader sets: it cannot run alone."""
    artifact = rewriter.open(written(jit("frozen"), 0, tmp_path))
    assert len(artifact.launches) == 3
    assert artifact.unrecognised == ()


def models(names: Sequence[str], first: Collection[str] = ()) -> pytest.MarkDecorator:
    """All models; those that are not the first are left out of a plain `pytest`."""
    return pytest.mark.parametrize(
        "model", [pytest.param(name, marks=[] if name in first else EXHAUSTIVE) for name in names]
    )


def forms(artifact: rewriter.Artifact) -> set[object]:
    """What kinds of launches are in a wrapper, where, and with what arguments."""
    found: set[object] = set()
    for launch in artifact.launches:
        nested = "graph" in launch.scope or "const" in launch.scope
        found.add((launch.kind, nested, launch.repeats))
        found |= {(one.type, one.role) for one in launch.args}
    return found


def test_what_runs_first_has_every_form_of_a_launch(
    jit: Callable[[str], Jit], packaged: Callable[..., Packaged], tmp_path: Path
) -> None:
    """Of those in the recorded wrappers; `every_form` runs just in time, and in a package."""
    recorded: dict[str, dict[str, set[object]]] = {"cpp_wrapper": {}, "aoti": {}}
    for fixture in CPP_FIXTURES:
        if fixture.folder == "cpu-torch2.13" and fixture.kind in recorded:
            recorded[fixture.kind][fixture.model] = forms(rewriter.open(fixture.path))
    assert recorded["cpp_wrapper"].keys() | {"frozen"} == {*JIT, "frozen"}
    assert recorded["aoti"].keys() == set(AOTI)
    every = set().union(*(one for models in recorded.values() for one in models.values()))
    assert every - forms(rewriter.open(written(jit(FIRST), 0, tmp_path))) == set()
    assert every - forms(rewriter.open(packaged(FIRST).path)) == set()


@models([FIRST, *JIT], [FIRST])
def test_jit_outputs_are_bit_equal(model: str, jit: Callable[[str], Jit], tmp_path: Path) -> None:
    subject = jit(model)
    check_equal_and_seen(subject, model, ALL, tmp_path)
    # The next call of the process is a run of its own.
    source = probed(subject, 0, ALL, tmp_path)[1]
    subject.run(0, source, {"REWRITER_DUMP": str(tmp_path / "dump0")})
    assert len(list((tmp_path / "dump0/rank0").iterdir())) == 2
    assert (tmp_path / "dump0/manifest.json").is_file()


@EXHAUSTIVE
@pytest.mark.parametrize(("kind", "model"), [("aoti", x) for x in AOTI] + VARIANT_MODELS)
def test_aoti_outputs_are_bit_equal(
    kind: str, model: str, ahead: Callable[..., Ahead], tmp_path: Path
) -> None:
    check_equal_and_seen(ahead(model, kind), model, ALL, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("probes", EACH)
@pytest.mark.parametrize("model", JIT)
def test_each_probe_alone_in_every_jit_wrapper(
    model: str, probes: str, jit: Callable[[str], Jit], tmp_path: Path
) -> None:
    check_equal_and_seen(jit(model), model, probes, tmp_path)


Run = tuple[int, int]


def saved_writes(dump: Path) -> dict[Run, dict[str, torch.Tensor]]:
    """What each run of a launch left in buffers, by name, in the order of the runs."""
    writes: dict[Run, dict[str, torch.Tensor]] = defaultdict(dict)
    for row in dumped(dump):
        if row["phase"] == "after" and row.get("role") in ("out", "inout") and "file" in row:
            run = row["launch"], row.get("iteration", 0)
            writes[run][row["arg"]] = torch.load(row["path"], weights_only=True)
    return writes


@models(["mlp", "conv", "customop", "scatter", "cond", "while_loop"])
def test_saved_values_are_those_of_the_python_wrapper(
    model: str,
    compiled: Callable[[str], Compiled],
    jit: Callable[[str], Jit],
    apart: Apart,
    tmp_path: Path,
) -> None:
    """In a plain run, `mlp` in a package: `test_packages.py`."""
    dumps = {name: {"REWRITER_DUMP": str(tmp_path / name)} for name in ("python", "cpp")}
    graph = compiled(model).graphs[0]
    (tmp_path / "output_code.py").write_text(graph.source)
    selection = rewriter.select("save", when="after")
    source = rewriter.instrument(tmp_path / "output_code.py", selection).source
    apart(call, source, graph.args, tmp_path, environment=dumps["python"])
    subject = jit(model)
    subject.run(0, probed(subject, 0, "save", tmp_path)[1], dumps["cpp"])
    check_saved_alike(tmp_path / "python", tmp_path / "cpp")
    if model == "mlp":
        assert_compared_equal(tmp_path / "cpp", tmp_path / "python")


def check_saved_alike(python: Path, cpp: Path) -> None:
    """Launches ran in one order. Operators of the library have other names, buffers may."""
    expected, actual = saved_writes(python), saved_writes(cpp)
    assert len(expected) > 1
    for one, other in zip(expected.values(), actual.values(), strict=True):
        # An output that nobody reads has a name in C++ only.
        ours = [other.get(name) for name in one]
        ours = list(other.values()) if None in ours else ours
        for (name, theirs), tensor in zip(one.items(), ours, strict=True):
            assert tensor is not None
            assert tensor.stride() == theirs.stride()
            torch.testing.assert_close(tensor, theirs, msg=name)


def assert_compared_equal(cpp: Path, python: Path, *, weights_are_inputs: bool = False) -> None:
    """`compare` matches the launches of either language, and blames none; but one that is wrong.

    Where weights are inputs in Python alone, it says that of the inputs.
    """
    found = compare(cpp, python)
    assert found.equal != weights_are_inputs
    assert found.unmatched == ()
    assert {one.place.launch for one in found.culprits} == ({None} if weights_are_inputs else set())
    wrong = next(
        row["path"]
        for row in dumped(cpp)
        if (row.get("launch"), row["phase"]) == (1, "after") and "file" in row
    )
    tensor = torch.load(wrong, weights_only=True)
    wrong.unlink()  # other rows may have the same file
    torch.save(tensor * 1.5, wrong)
    launches = (one.place.launch for one in compare(cpp, python).culprits)
    assert next(launch for launch in launches if launch is not None) == 1


# --- Memory -------------------------------------------------------------------------------------

MEMORY = "bounds,poison,stale"


def test_a_wrapper_that_its_owner_compiles_finds_the_recorder(
    exported: Callable[[str, str], Exported], tmp_path: Path, apart: Apart
) -> None:
    """By the environment; without one it runs without probes."""
    made = exported("mlp", "aoti")
    expected = run_aoti(made.so, list(made.inputs)) if made.so else None

    def run(environment: Mapping[str, str] = {}) -> Ran:
        apart.close()  # a process that has loaded no recorder
        ran = apart(run_aoti_alone, so, list(made.inputs), environment=environment)
        assert expected in (None, ran.outcome)
        return ran

    (tmp_path / "plain.cpp").write_bytes(made.source)
    source = rewriter.instrument(tmp_path / "plain.cpp", rewriter.select("names")).source
    so = rebuild_aoti(made, source, tmp_path / "probed")
    without = run()
    assert without.out == ""
    (said,) = without.err.splitlines()
    assert said.startswith("[rewriter] no probes: ")
    assert "REWRITER_RECORDER" in said
    recorder = recorder_library.load()
    assert recorder is not None
    found = run({"REWRITER_RECORDER": recorder._name})
    assert (len(found.out.splitlines()), found.err) == (5, "")


@EXHAUSTIVE
def test_a_standalone_wrapper_needs_no_recorder(
    exported: Callable[[str, str], Exported], tmp_path: Path, apart: Apart
) -> None:
    """In a plain run, the compiler reads one in `test_cpp_runtime.py`, and the same text is in the
    driver of `cpp_driver.py`."""
    made = exported("mlp", "aoti")
    (tmp_path / "plain.cpp").write_bytes(made.source)
    probes = rewriter.select("names")
    source = rewriter.instrument(tmp_path / "plain.cpp", probes, standalone=True).source
    apart.close()  # a process that has loaded no recorder
    so = rebuild_aoti(made, source, tmp_path / "probed")
    ran = apart(run_aoti_alone, so, list(made.inputs))
    assert (len(ran.out.splitlines()), ran.err) == (5, "")


def check_memory(subject: Subject, folder: Path) -> None:
    """The probes of memory find nothing, and change nothing. What they find in C++ wrappers is in
    `benchmarks/tests/test_sanitizer_kinds.py`."""
    for number in range(len(subject.sources)):
        plain = plain_of(subject, number)
        made = rewriter.instrument(written(subject, number, folder), rewriter.select(MEMORY)).source
        for fill in (0, 1):
            dump = Path(tempfile.mkdtemp(dir=folder))
            ran = subject.run(
                number, made, {"REWRITER_DUMP": str(dump), "REWRITER_FILL": str(fill)}
            )
            assert (ran.outcome.outputs, ran.outcome.inputs) == (plain.outputs, plain.inputs)
            assert (ran.out, "rewriter" in ran.err) == ("", False)
            rows = (dump / "rank0/run0/memory.jsonl").read_text().splitlines()
            assert [json.loads(row)["event"] for row in rows] == ["coverage"] * 3


@models([one for one in (FIRST, *JIT) if one != "empty"])
def test_memory_probes_change_no_output_of_a_jit_wrapper(
    model: str, jit: Callable[[str], Jit], tmp_path: Path
) -> None:
    check_memory(jit(model), tmp_path)


@models([one for one in AOTI if one != "empty"])
def test_memory_probes_change_no_output_of_aoti(
    model: str, ahead: Callable[..., Ahead], tmp_path: Path
) -> None:
    check_memory(ahead(model), tmp_path)
