"""Packages that this torch compiled here and now: patched, loaded by torch, run, and stripped.

A patched package runs in a process of its own. Its outputs are those of the plain one bit for bit,
and every launch that ran was seen to run.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

import programs
import rewriter
from capture import Compiled, Packaged
from harness import Apart, call
from imports import HEAVY, imported_by
from packages import Ran, run_package, run_packages
from programs import document
from rewriter.artifact.opening import open_artifact
from rewriter.artifact.package.model import open_package
from rewriter.cli import main
from rewriter.core.types import Json
from rewriter.instrumentation.rebuild import probed_models
from rewriter.runtime import bundle
from test_cpp_compiled import ALL as ALL_OF_CPP
from test_cpp_compiled import (
    EACH,
    OPAQUE,
    assert_compared_equal,
    check_events,
    check_inputs,
    check_lines,
    check_saved_alike,
    dumped,
    taken_of,
)
from test_inputs import checked, lines_of, wrong_inputs

pytestmark = pytest.mark.usefixtures("warm_python")

ALL = "hash,inputs,names,print,save"
OPERATORS = str(Path(__file__).parents[2] / "fixtures/models.py")

# Name, variant, and the routes that it is built by.
CASES = [
    ("mlp", "library", "link"),
    ("every_form", "library", "link"),
    ("mlp", "appended", "link"),
    ("mlp", "blob", "link"),
    ("mlp", "pickled", "link"),
    ("mlp", "cpp-only", "sources"),
    ("mlp", "lto", "link"),
    ("folded", "folding", "link"),
    ("dynamic", "library", "link"),
    ("transformer", "library", "link"),
    ("frozen", "library", "link"),
    ("cond", "library", "link"),
    ("while_loop", "library", "link"),
    ("customop", "library", "link"),
    ("buffers", "library", "link"),
    ("scatter", "library", "link"),
    ("dtypes", "library", "link"),
    ("several", "library", "link"),
    ("several", "exported", "link"),
]
# What a plain `pytest` runs: one model with every form of a launch, which
# `test_what_runs_first_has_every_form_of_a_launch` checks, and other forms of package.
FIRST = {
    ("mlp", "library"),
    ("every_form", "library"),
    ("several", "library"),
}
# Constants are folded when the model is loaded.
FOLDED = {"every_form", "folded"}
EXHAUSTIVE = pytest.mark.exhaustive


def cases(later: Callable[[str, str], bool]) -> pytest.MarkDecorator:
    """All cases; `later` tells which are left out of a plain `pytest`."""
    return pytest.mark.parametrize(
        ("name", "variant", "route"),
        [pytest.param(*case, marks=[EXHAUSTIVE] if later(*case[:2]) else []) for case in CASES],
        ids=[f"{name}-{variant}" for name, variant, _ in CASES],
    )


all_cases = cases(lambda name, variant: (name, variant) not in FIRST)


def all_probes(name: str) -> str:
    """Those of a package with all probes, and for all forms of launches those of C++ wrappers."""
    return ALL_OF_CPP if name == "every_form" else ALL


# With all probes, weights are looked at, too: a test of crashes builds the same. What is looked at
# by default, `every_form` has.
EVERYTHING = ["--probe", ALL, "--args", "all"]


@dataclass(frozen=True)
class Patched:
    """A package before and after, and what `rewriter instrument --json` said."""

    plain: Packaged
    path: Path
    said: Json
    pickled: bool = False

    @property
    def routes(self) -> set[str]:
        return {model["route"] for model in self.said["models"]}


@dataclass(frozen=True)
class Seen:
    """A run of one model: what it gave, printed and dumped."""

    ran: Ran
    out: str
    err: str
    dump: Path


Patch = Callable[..., Patched]
Run = Callable[..., Seen]


@pytest.fixture(scope="session")
def patched(packaged: Callable[..., Packaged], tmp_path_factory: pytest.TempPathFactory) -> Patch:
    """`patched("mlp", "appended", probes="print", route="full")`; each is made once."""
    done: dict[tuple[str, str, str, str], Patched] = {}

    def get(name: str, variant: str = "library", probes: str = "", route: str = "") -> Patched:
        probes = probes or all_probes(name)
        key = name, variant, probes, route
        if key not in done:
            plain = packaged(name, variant)
            path = tmp_path_factory.mktemp("patched") / f"{name}.pt2"
            choice = EVERYTHING if probes == ALL else ["--probe", probes]
            options = [*choice, "-o", path, "--import", OPERATORS]
            if variant == "cpp-only":
                options.append("--no-check")  # The loader would compile it once more.
            if route:
                options += ["--route", route]
            said = document("instrument", plain.path, *options)
            done[key] = Patched(plain, path, said, variant == "pickled")
        return done[key]

    return get


@pytest.fixture(scope="session")
def run(apart: Apart, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """`run(path, args, "model")` calls a model twice; each is run once."""
    done: dict[tuple[Path, str], Seen] = {}

    def get(path: Path, args: Sequence[Any], model: str, *, pickled: bool = False) -> Seen:
        if (path, model) not in done:
            dump = tmp_path_factory.mktemp("dump") / "D"
            ran = apart(
                _twice, path, args, model, pickled, environment={"REWRITER_DUMP": str(dump)}
            )
            done[path, model] = Seen(ran.outcome, ran.out, ran.err, dump)
        return done[path, model]

    return get


def _twice(path: Path, args: Sequence[Any], model: str, pickled: bool) -> Ran:
    return run_package(path, args, model, calls=2, pickled=pickled)


def check_equal_and_seen(case: Patched, name: str, probes: str, run: Run) -> None:
    """Run every model plain and patched: nothing differs, and every launch was reported."""
    for model, args in case.plain.inputs.items():
        plain = run(case.plain.path, args, model, pickled=case.pickled)
        seen = run(case.path, args, model, pickled=case.pickled)
        assert seen.ran.calls == plain.ran.calls
        assert plain.out == ""
        assert not plain.dump.exists()
        launches = taken_of(open_artifact(case.plain.path, models=[model]).launches, name)
        assert launches
        assert "rewriter" not in (OPAQUE.sub("", seen.err) if name == "frozen" else seen.err)
        if probes != "save":
            check_lines(seen.out, launches, probes)
        else:
            assert seen.out == ""
        if probes == "names":
            continue
        rows = dumped(seen.dump)
        check_events(rows, launches, probes)
        # Folding constants, when the model is loaded, is a run of its own.
        first = 1 if name in FOLDED else 0
        runs = {row.parent.name for row in seen.dump.glob("rank0/*/events.jsonl")}
        assert runs == {f"run{number}" for number in range(first + 2)}
        if "save" in probes:
            check_inputs([row for row in rows if f"run{first}" in run_of(row)], args)


def run_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The directories that a saved tensor is in; one of them is that of the run."""
    return row["path"].parts if "path" in row else ()


@all_cases
def test_outputs_are_bit_equal_and_every_launch_is_seen(
    name: str, variant: str, route: str, patched: Patch, run: Run
) -> None:
    case = patched(name, variant)
    assert case.routes == {route}
    assert case.said["check"] == ("skipped" if variant == "cpp-only" else "loaded")
    assert all(not model["skipped"] for model in case.said["models"])
    assert all(not model["unrecognised"] for model in case.said["models"])
    check_equal_and_seen(case, name, all_probes(name), run)


def strips_to(path: Path, plain: Path, folder: Path) -> None:
    """`strip` gives the plain file back."""
    back = folder / "back.pt2"
    assert document("strip", path, "-o", back, "--overwrite")["exact"]
    assert filecmp.cmp(back, plain, shallow=False)


@all_cases
def test_strip_gives_the_file_back(
    name: str, variant: str, route: str, patched: Patch, tmp_path: Path
) -> None:
    case = patched(name, variant)
    assert not filecmp.cmp(case.path, case.plain.path, shallow=False)
    strips_to(case.path, case.plain.path, tmp_path)


@all_cases
def test_the_new_library_runs_with_the_old_one_beside_it(
    name: str, variant: str, route: str, patched: Patch, run: Run
) -> None:
    """As the process has them mapped: the name of the plain library is that of the new one."""
    case = patched(name, variant)
    for model, args in case.plain.inputs.items():
        plain = own(run(case.plain.path, args, model, pickled=case.pickled).ran)
        new = own(run(case.path, args, model, pickled=case.pickled).ran)
        assert len(plain) == 1
        beside = {file.replace(".wrapper.so", ".kernels.so") for file in plain}
        assert new == (plain | beside if route == "link" else plain)


def test_nothing_of_the_recorder_is_visible_to_other_libraries(
    patched: Patch, tmp_path: Path
) -> None:
    """Another release of it may be in the same process."""
    with zipfile.ZipFile(patched("mlp", probes="names").path) as package:
        (member,) = (name for name in package.namelist() if name.endswith(".wrapper.so"))
        library = package.extract(member, tmp_path)
    defined = programs.run("nm", "-D", "--defined-only", library).stdout
    assert " AOTInductorModelContainerRun\n" in defined
    assert "inductor_rewriter" not in defined


def own(ran: Ran) -> set[str]:
    """The libraries of a package among all that were loaded."""
    return {name for name in ran.libraries if re.search(r"\.(wrapper|kernels)\.so$", name)}


def test_buffers_of_a_model_are_carried_from_call_to_call(patched: Patch, run: Run) -> None:
    """What the comparison of two calls is about: the second one gives something else."""
    case = patched("every_form")
    (args,) = case.plain.inputs.values()
    first, second = run(case.path, args, "model").ran.calls
    assert first.outputs != second.outputs
    assert first.inputs != second.inputs


@pytest.mark.parametrize(
    "probes",
    # One that other tests have built.
    [pytest.param(name, marks=[] if name == "names" else EXHAUSTIVE) for name in EACH],
)
@cases(lambda name, variant: (name, variant) != ("mlp", "library"))
def test_each_probe_alone(
    name: str, variant: str, route: str, probes: str, patched: Patch, run: Run, tmp_path: Path
) -> None:
    case = patched(name, variant, probes)
    check_equal_and_seen(case, name, probes, run)
    strips_to(case.path, case.plain.path, tmp_path)


@EXHAUSTIVE
@pytest.mark.parametrize(
    ("name", "variant"),
    [("mlp", "library"), ("mlp", "appended"), ("transformer", "library")],
    ids=["mlp", "mlp-appended", "transformer"],
)
def test_all_compiled_anew(
    name: str, variant: str, patched: Patch, run: Run, tmp_path: Path
) -> None:
    case = patched(name, variant, "names", "full")
    assert case.routes == {"full"}
    check_equal_and_seen(case, name, "names", run)
    (args,) = case.plain.inputs.values()
    assert own(run(case.path, args, "model").ran) == own(run(case.plain.path, args, "model").ran)
    strips_to(case.path, case.plain.path, tmp_path)


def test_nothing_of_the_plain_library_is_in_what_is_compiled_anew(
    packaged: Callable[..., Packaged], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but what the compiler makes of the sources, which is a line each."""
    plain, path = packaged("mlp").path, tmp_path / "out.pt2"
    compiler(tmp_path, monkeypatch, f'echo "$@" >> {tmp_path}/commands\n{STUB}exec g++ "$@"\n')
    command = ["instrument", plain, "--probe", "names", "--route", "full", "--no-check", "-o", path]
    said = document(*command)
    assert [model["route"] for model in said["models"]] == ["full"]
    *compiled, link = [
        line
        for line in (tmp_path / "commands").read_text().splitlines()
        if " -o " in line and " probe.cpp " not in line  # which asks what the compiler links
    ]
    ends = r"\S+\.(?:cpp|s)(?= -o )"
    sources = sorted(re.sub(r"^\w{20,}", "", re.search(ends, line)[0]) for line in compiled)
    probes = ["rewriter_runtime.cpp", "rewriter_table.cpp"]
    assert sources == [".kernel.cpp", ".wrapper.cpp", "constants.s", *probes]
    assert "wrapper.o table.o runtime.o kernel0.o constants.o" in link
    assert ".kernels.so" not in link
    strips_to(path, plain, tmp_path)


@EXHAUSTIVE
def test_of_several_compile_commands_the_last_counts(
    packaged: Callable[..., Packaged],
) -> None:
    """Sources of the same model in one cache: each export adds its commands to the file."""
    plain = open_package(packaged("mlp").path)
    later = open_package(packaged("mlp", "appended").path)
    assert later.models[0].source.count(b"// Compile cmd\n") > 1
    assert "-DUSE_MMAP_SELF" in " ".join(later.models[0].command("Compile")).replace("-D ", "-D")
    assert later.models[0].weights == "behind the library"
    assert plain.models[0].weights == "in the library"


def test_wrong_inputs_are_named(patched: Patch, apart: Apart, tmp_path: Path) -> None:
    """AOTInductor runs its own checks only where `AOTI_RUNTIME_CHECK_INPUTS` is set."""
    case = patched("mlp")
    (good,) = case.plain.inputs["model"]
    environment = {"REWRITER_DUMP": str(tmp_path / "dump")}
    for value, said in ((good, None), *wrong_inputs(good)):
        ran = apart(checked, run_package, case.path, [value], environment=environment)
        lines = [re.sub(" inputs \\w+: ", " inputs: ", line) for line in lines_of(ran)]
        # Those of `print` have two spaces.
        unexpected = [line for line in lines if "inputs  in" not in line]
        assert unexpected == ([] if said is None else [f"[rewriter 0] inputs: {said}"])


# --- The same values as in the Python wrapper ---------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "mlp",
        *(
            pytest.param(name, marks=EXHAUSTIVE)
            for name in ("dynamic", "cond", "while_loop", "customop", "scatter", "dtypes")
        ),
    ],
)
def test_saved_values_are_those_of_the_python_wrapper(
    name: str,
    compiled: Callable[[str], Compiled],
    patched: Patch,
    run: Run,
    apart: Apart,
    tmp_path: Path,
) -> None:
    graph = compiled(name).graphs[0]
    (tmp_path / "output_code.py").write_text(graph.source)
    source = rewriter.instrument(tmp_path / "output_code.py", rewriter.select("save")).source
    dump = tmp_path / "python"
    for _ in range(2):  # as the package ran
        apart(call, source, graph.args, tmp_path, environment={"REWRITER_DUMP": str(dump)})
    case = patched(name)
    (args,) = case.plain.inputs.values()
    seen = run(case.path, args, "model").dump
    check_saved_alike(dump, seen)
    if name == "mlp":
        shutil.copytree(seen, tmp_path / "cpp")
        assert_compared_equal(tmp_path / "cpp", dump, weights_are_inputs=True)


# --- Other ways to write a package --------------------------------------------------------------


def outputs_of(command: Sequence[object]) -> list[str]:
    """Digests of what `rewriter run` says that a model returned."""
    return [output["sha256"] for output in document("run", *command)["outputs"]]


@pytest.fixture
def inputs(packaged: Callable[..., Packaged], tmp_path: Path) -> Path:
    """The inputs of the MLP in a file."""
    torch.save(list(packaged("mlp").inputs["model"]), tmp_path / "inputs.pt")
    return tmp_path / "inputs.pt"


def test_a_package_is_loaded_without_asking_a_compiler_what_the_host_can_do(
    packaged: Callable[..., Packaged],
    inputs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`torch._inductor.package.load_package` compiles and loads several programs for that."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache))
    monkeypatch.delenv("TORCHINDUCTOR_VEC_ISA_OK", raising=False)
    outputs_of([packaged("mlp").path, "--args", inputs])
    assert files_of(cache) == {}


def test_an_unpacked_package(
    packaged: Callable[..., Packaged], inputs: Path, tmp_path: Path
) -> None:
    plain = packaged("mlp").path
    folder, probed, back = tmp_path / "plain", tmp_path / "probed", tmp_path / "back"
    with zipfile.ZipFile(plain) as file:
        file.extractall(folder)
    assert document("instrument", folder, *EVERYTHING, "-o", probed)["check"] == "linked"
    assert files_of(folder).items() != files_of(probed).items()
    digests = outputs_of([plain, "--args", inputs])
    assert outputs_of([folder, "--args", inputs]) == digests
    (inner,) = folder.iterdir()
    assert (inner / ".data").is_dir()  # its name comes first
    assert outputs_of([inner, "--args", inputs]) == digests
    assert outputs_of([probed, "--args", inputs, "-d", tmp_path / "D"]) == digests
    seen = {row["launch"] for row in dumped(tmp_path / "D") if "launch" in row}
    assert seen == set(range(5))
    assert document("strip", probed, "-o", back)["exact"]
    assert files_of(back) == files_of(folder)


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("variant", "anew"),
    [
        ("library", False),
        pytest.param("library", True, marks=EXHAUSTIVE),
        pytest.param("appended", True, marks=EXHAUSTIVE),
    ],
)
def test_the_build_script(
    variant: str,
    anew: bool,
    packaged: Callable[..., Packaged],
    patched: Patch,
    kept: Path,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a plain run, the objects of the wrapper and of the bodies of probes are those of another
    package, which has the same; the compiler reads the wrapper all the same.
    """
    plain = packaged("mlp", variant)
    if not anew:
        (model,) = patched("mlp", probes="names").said["models"]
        bodies = kept_object(kept, "rewriter_runtime.cpp")
        wrapper = kept_object(kept, Path(model["wrapper"]).name)
        give = f"""case "$*" in
*" rewriter_runtime.cpp "*) exec cp {bodies} runtime.o;;
*.compiled.cpp*) g++ "$@" -fsyntax-only && exec cp {wrapper} wrapper.o;;
esac
"""
        compiler(tmp_path, monkeypatch, f'{give}exec g++ "$@"\n')
    folder, built = tmp_path / "sources", tmp_path / "built.pt2"
    command = ["instrument", plain.path, "--no-rebuild", "--probe", "names", "-o", folder]
    said = document(*command)
    assert (said["check"], said["output"]) == ("skipped", str(folder))
    programs.run("sh", folder / "build.sh", built, cwd=Path("/"), PYTHON=sys.executable)
    check_equal_and_seen(Patched(plain, built, said), "mlp", "names", run)
    for path in (built, folder):
        strips_to(path, plain.path, tmp_path)


def kept_object(kept: Path, source: str) -> Path:
    """The first object that was built of a source with this name for a package."""
    for path in sorted((kept / "builds").glob("*.o"), key=lambda path: path.stat().st_mtime_ns):
        if f" a {source}\n" in programs.run("nm", "-a", path).stdout:
            return path
    raise FileNotFoundError(source)


def test_in_place_and_replace(
    packaged: Callable[..., Packaged], patched: Patch, tmp_path: Path
) -> None:
    plain = packaged("mlp").path
    path, kept = tmp_path / "mlp.pt2", tmp_path / "mlp.pt2.orig"
    shutil.copy(plain, path)
    fast = ["--no-check", "--in-place"]
    said = document("instrument", path, "--probe", "names", *fast)
    assert (said["output"], said["backup"]) == (str(path), str(kept))
    assert filecmp.cmp(kept, plain, shallow=False)
    assert path.read_bytes() == patched("mlp", probes="names").path.read_bytes()
    assert main(["instrument", str(path), *EVERYTHING, *fast]) == 2
    document("instrument", path, *EVERYTHING, "--replace", *fast)
    assert path.read_bytes() == patched("mlp").path.read_bytes()
    assert filecmp.cmp(kept, plain, shallow=False)
    assert document("strip", path, "--in-place")["exact"]
    assert filecmp.cmp(path, plain, shallow=False)
    assert list(tmp_path.iterdir()) == [path]


def test_diff_and_check_write_nothing(
    packaged: Callable[..., Packaged],
    patched: Patch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "mlp.pt2"
    shutil.copy(packaged("mlp").path, path)
    assert main(["instrument", str(path), "--check"]) == 1
    assert "would change" in capsys.readouterr().err
    assert main(["instrument", str(path), "--diff"]) == 0
    assert re.search(r"^\+.*_rw_*\.after\(", capsys.readouterr().out, re.MULTILINE)
    assert main(["instrument", str(path), "--diff", "--check"]) == 1
    assert main(["strip", str(path), "--check"]) == 0
    assert list(tmp_path.iterdir()) == [path]
    shutil.copy(patched("mlp", probes="names").path, path)
    capsys.readouterr()
    assert main(["strip", str(path), "--check", "--diff"]) == 1
    assert re.search(r"^-.*_rw_*\.before\(", capsys.readouterr().out, re.MULTILINE)
    assert list(tmp_path.iterdir()) == [path]


def test_for_scripts(packaged: Callable[..., Packaged], patched: Patch, tmp_path: Path) -> None:
    plain = packaged("several").path
    beside = set(plain.parent.iterdir())
    said = patched("several").said
    assert (said["format"], said["version"]) == ("rewriter.instrument", 1)
    assert said["artifact"] == str(plain)
    assert said["probes"] == ALL.split(",")
    assert [model["model"] for model in said["models"]] == ["net", "net_b"]
    assert [model["launches"] for model in said["models"]] == [[*range(5)], [*range(5)]]
    assert (said["check"], said["changed"], said["diff"]) == ("loaded", True, None)
    assert 0 < said["seconds"] < 600
    listed = document("list", plain, "--model", "net_b")
    assert {"/net_b/" in launch["wrapper"] for launch in listed["launches"]} == {True}
    assert [launch["index"] for launch in listed["launches"]] == [*range(5)]
    probed = patched("several").path
    for command in (
        ["instrument", plain, "--model", "other"],
        ["instrument", plain, "--kernels", "nothing*"],
        ["instrument", probed],
        ["instrument", plain, "--route", "sources"],
        ["instrument", plain, "-o", probed],
        ["run", plain],
    ):
        before = probed.read_bytes()
        assert document(*command, code=2) == {}, command
        assert probed.read_bytes() == before
    assert set(plain.parent.iterdir()) == beside


def test_one_model_of_several(packaged: Callable[..., Packaged], run: Run, tmp_path: Path) -> None:
    """The others stay as they are, also the one whose name begins alike."""
    plain, path = packaged("several"), tmp_path / "several.pt2"
    command = ["instrument", plain.path, "--model", "net", "--probe", "names", "-o", path]
    said = document(*command)
    assert said["check"] == "loaded"
    assert [model["model"] for model in said["models"]] == ["net"]
    for model, args in plain.inputs.items():
        seen = run(path, args, model)
        assert seen.ran.calls == run(plain.path, args, model).ran.calls
        assert (len(seen.out.splitlines()) == 10) == (model == "net")
        assert len(own(seen.ran)) == (2 if model == "net" else 1)
    strips_to(path, plain.path, tmp_path)


@pytest.mark.exhaustive
def test_another_patch_compiles_the_table_alone(
    packaged: Callable[..., Packaged],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The wrapper and the probes are kept."""
    plain = str(packaged("mlp").path)
    monkeypatch.setenv("REWRITER_CACHE_DIR", str(tmp_path / "cache"))
    compiled = {"print": (3, 0), "hash": (1, 2), "hash,save": (1, 2), "names": (1, 2)}
    for probes, (anew, before) in compiled.items():
        output = tmp_path / f"{probes}.pt2"
        command = ["instrument", plain, "--probe", probes, "--no-check", "-o", str(output)]
        assert main(command) == 0
        said = capsys.readouterr().err
        assert (said.count("] compiled the "), said.count(": compiled before")) == (anew, before)
        assert main(["list", str(output)]) == 0
        capsys.readouterr()
        strips_to(output, Path(plain), tmp_path)
        capsys.readouterr()


def test_packages_that_share_file_names_share_nothing_else(
    patched: Patch, run: Run, apart: Apart, tmp_path: Path
) -> None:
    """One process loads a package twice, and others with the same names and other weights."""
    mlp, several = patched("mlp", probes="names"), patched("several")
    names = {
        Path(model["wrapper"]).name
        for said in (mlp.said, several.said)
        for model in said["models"][:2]
    }
    assert len(names) == 1
    wanted = {
        "first": (mlp.path, "model"),
        "again": (mlp.path, "model"),
        "other": (several.path, "net_b"),
        "same": (several.path, "net"),
        "plain": (mlp.plain.path, "model"),
    }
    (args,) = mlp.plain.inputs.values()
    outcomes = apart(
        run_packages,
        wanted,
        dict.fromkeys(wanted, args),
        environment={"REWRITER_DUMP": str(tmp_path / "dump")},
    ).outcome
    first = run(mlp.plain.path, args, "model").ran.calls[0]
    other = run(several.plain.path, several.plain.inputs["net_b"], "net_b").ran.calls[0]
    assert several.plain.inputs["net_b"][0].equal(args[0])
    assert first != other
    assert outcomes == {name: other if name == "other" else first for name in wanted}


# --- What goes wrong ----------------------------------------------------------------------------


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory for temporary files, which must be empty in the end."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield folder
    left = [path for path in folder.rglob("*") if "torchinductor" not in str(path)]
    assert left == []


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Path]:
    """Where a package is to go that cannot be made: nothing may be there in the end."""
    folder = tmp_path / "target"
    folder.mkdir()
    yield folder / "out.pt2"
    assert list(folder.iterdir()) == []


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)
    return path


def compiler(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Have a shell script as the compiler."""
    monkeypatch.setenv("CXX", str(script(folder / "compiler", text)))


# What a compiler makes of a source in `stub`: a line that refers to a kernel, which it has not.
STUB = """\
made= before=
for one; do
  [ "$before" != -o ] || made=$one
  before=$one
done
case " $* " in *" -c "*".cpp -o "*)
  echo 'extern "C" void cpp_fused_gelu_0(); [[gnu::used]] static auto* kernel = cpp_fused_gelu_0;' |
    g++ -fPIC -x c++ - -c -o "$made"
  exit;;
esac
"""


def break_lines(monkeypatch: pytest.MonkeyPatch, pattern: bytes, wrong: bytes) -> None:
    good = probed_models.instrument

    def bad(*arguments: Any, **options: Any) -> tuple[probed_models.Probed, ...]:
        (one,) = good(*arguments, **options)
        lines = one.everything.insertions  # what is compiled
        made = tuple(replace(line, text=re.sub(pattern, wrong, line.text)) for line in lines)
        assert [line.text for line in made] != [line.text for line in lines]
        return (replace(one, everything=replace(one.everything, insertions=made)),)

    monkeypatch.setattr(probed_models, "instrument", bad)


def broken_wrapper(monkeypatch: pytest.MonkeyPatch) -> str:
    break_lines(monkeypatch, rb"\.after\(3, ", b".afterwards(3, ")
    return r"wrapper\.cpp:\d+: .*\n +_rw\.afterwards\(3, "


def broken_table(monkeypatch: pytest.MonkeyPatch) -> str:
    """Each of many lines is wrong."""
    break_lines(monkeypatch, rb"\.(before|after)\(", b".nothing(")
    return r"\n +_rw\.nothing\(\d(?s:.)*and \d+ more"


def broken_runtime(monkeypatch: pytest.MonkeyPatch) -> str:
    good = bundle.recorder

    def bad() -> str:
        return good() + "int missing = nowhere;\n"

    monkeypatch.setattr(bundle, "recorder", bad)
    return r"runtime\.cpp:\d+: .*nowhere.*\n +int missing = nowhere;"


@pytest.mark.parametrize(
    "broken",
    [
        broken_wrapper,
        *(pytest.param(one, marks=EXHAUSTIVE) for one in (broken_table, broken_runtime)),
    ],
)
def test_what_does_not_compile_is_shown(
    broken: Callable[[pytest.MonkeyPatch], str],
    packaged: Callable[..., Packaged],
    temporary: Path,
    target: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = broken(monkeypatch)
    assert main(["instrument", str(packaged("mlp").path), "-o", str(target)]) == 3
    error = capsys.readouterr().err
    assert "error[compile-failed]" in error
    assert re.search(shown, error), error
    assert len(error.splitlines()) <= 12


def test_a_compiler_that_is_killed(
    packaged: Callable[..., Packaged],
    temporary: Path,
    target: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plain = packaged("mlp").path  # before the compiler is another
    compiler(tmp_path, monkeypatch, "kill -SEGV $$\n")
    assert main(["instrument", str(plain), "-o", str(target)]) == 3
    error = capsys.readouterr().err
    assert "error[compile-failed]" in error
    assert "-11" in error
    assert len(error.splitlines()) <= 12


in_place_of_sources = pytest.mark.parametrize(
    "stub", [STUB, pytest.param("", marks=EXHAUSTIVE)], ids=["stub", "sources"]
)


@in_place_of_sources
def test_a_compiler_that_crashes_with_the_precompiled_header_gets_none(
    stub: str,
    packaged: Callable[..., Packaged],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plain = packaged("mlp").path  # before the compiler is another
    text = 'case "$*" in *-include*) echo "internal compiler error: killed" >&2; exit 1;; esac\n'
    compiler(tmp_path, monkeypatch, f'{text}{stub}exec g++ "$@"\n')
    path = tmp_path / "out.pt2"
    command = ["instrument", plain, "--probe", "names", "-o", path, "--no-check"]
    assert main(list(map(str, command))) == 0
    assert "again without" in capsys.readouterr().err


@in_place_of_sources
def test_a_library_that_does_not_load(
    stub: str,
    packaged: Callable[..., Packaged],
    temporary: Path,
    target: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The linker forgets the library with the kernels, which the loader of libraries finds out."""
    plain = packaged("mlp").path  # before the compiler is another
    text = """\
for one; do
  shift
  case "$one" in *.kernels.so) ;; *) set -- "$@" "$one";; esac
done
exec g++ "$@"
"""
    compiler(tmp_path, monkeypatch, stub + text)
    command = ["instrument", plain, "--probe", "names", "-o", target]
    assert main(list(map(str, command))) == 3
    error = capsys.readouterr().err
    assert "error[check-failed]" in error
    assert "does not load" in error or "runs " in error


@pytest.mark.parametrize("everybody", [False, True], ids=["the program", "the whole group"])
def test_an_interrupt_while_compiling(
    everybody: bool,
    packaged: Callable[..., Packaged],
    temporary: Path,
    target: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As from the keyboard, and as from a program."""
    plain = packaged("mlp").path  # before the compiler is another
    text = f'case "$*" in *" -c "*) echo $$ >> {tmp_path}/started; exec sleep 60;; esac\n'
    compiler(tmp_path, monkeypatch, text + 'exec g++ "$@"\n')
    process = subprocess.Popen(
        [sys.executable, "-m", "rewriter", "instrument", plain, "-o", target],
        cwd=Path(rewriter.__file__).parent.parent,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        limit = time.monotonic() + 30
        started = tmp_path / "started"
        while not started.exists() or len(started.read_text().split()) < 2:
            assert time.monotonic() < limit
            assert process.poll() is None
            time.sleep(0.05)
        (os.killpg if everybody else os.kill)(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=20)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130
    assert "interrupted" in error
    assert "Traceback" not in error
    for number in started.read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(number), 0)


def test_operators_that_are_not_here(
    packaged: Callable[..., Packaged], patched: Patch, tmp_path: Path
) -> None:
    """The package is written all the same: the operators are only needed where it runs."""
    path = tmp_path / "out.pt2"
    command = ["instrument", packaged("every_form").path, "--probe", ALL_OF_CPP, "-o", path]
    said = document(*command)
    assert said["check"] == "linked"
    assert "rewriter_demo" in said["note"]
    assert "--import" in said["note"]
    assert filecmp.cmp(path, patched("every_form").path, shallow=False)


# --- Without torch ------------------------------------------------------------------------------


@pytest.mark.parametrize("anew", [False, pytest.param(True, marks=EXHAUSTIVE)])
def test_reading_and_rewriting_import_no_torch_and_give_the_same_bytes(
    anew: bool,
    packaged: Callable[..., Packaged],
    patched: Patch,
    kept: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """From another place, to another name, and in another process; also with a library that was
    built before, for which nothing is compiled.

    In a plain run, what was compiled in the other place is kept.
    """
    plain, probed = tmp_path / "mlp.pt2", patched("mlp").path
    shutil.copy(packaged("mlp").path, plain)
    expected = patched("mlp", probes="names").path
    monkeypatch.setenv("REWRITER_CACHE_DIR", str(tmp_path / "cache"))  # It does build.
    if not anew:
        # Others may write into it: what is half written is hidden, but for the recorder.
        others = shutil.ignore_patterns(".*", "engine")
        shutil.copytree(kept, tmp_path / "cache", ignore=others)
    build = ("instrument", plain, "--probe", "names", "--no-check", "-o")
    steps: list[tuple[object, ...]] = [
        ("list", plain),
        ("list", probed),
        ("instrument", plain, "--diff"),
        ("instrument", plain, "--no-rebuild", "-o", tmp_path / "sources"),
        (*build, tmp_path / "another.name"),
        ("strip", probed, "-o", tmp_path / "back.pt2"),
    ]
    assert imported_by(*steps).isdisjoint(HEAVY)
    if anew:
        assert len(list((tmp_path / "cache").rglob("*.so"))) == 1
        # The library is linked from these.
        assert len(list((tmp_path / "cache").rglob("*.o"))) == 3
    capsys.readouterr()  # of what was built above
    assert main(list(map(str, (*build, tmp_path / "and.another")))) == 0
    error = capsys.readouterr().err
    assert "built before" in error
    assert "compiled the wrapper" not in error
    for name in ("another.name", "and.another"):
        assert filecmp.cmp(tmp_path / name, expected, shallow=False)
