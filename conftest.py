"""Real compiles, shared by all tests: each model is compiled once in a session."""

from __future__ import annotations

import atexit
import contextlib
import gc
import hashlib
import itertools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sampling

if TYPE_CHECKING:
    from capture import Compiled, Exported, Packaged
    from compilations import Compilations
    from harness import Apart

# Threads of torch that wait for each other sleep, and do not spin, which would take the cores from
# the other worker and from the programs of tests. Read when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# As it is before torch is imported, which sets it to its default.
GIVEN_CACHE = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
# What people set in their shells, and does not change the tests.
OPTIONS = {
    "REWRITER_DUMP",
    "REWRITER_PROBE",
    "REWRITER_QUIET",
    "REWRITER_CALLS",
    "REWRITER_MAX_BYTES",
    "REWRITER_KEEP",
    "RANK",
    "LOCAL_RANK",
    "GROUP_RANK",
    "SLURM_PROCID",
    "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER",
    "AOT_INDUCTOR_FILTERED_KERNELS_TO_PRINT",
}


def _of_the_run(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The directory for temporary files of all workers of a run."""
    folder = tmp_path_factory.getbasetemp()
    return folder if worker_id == "master" else folder.parent


@pytest.fixture(scope="session", autouse=True)
def _inductor_cache(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> Iterator[None]:
    """What Inductor keeps is shared by the tests of one run, and by nobody else; but the kernels
    that it has built, whose names are hashes of their text and command, are found by later runs.
    """
    if GIVEN_CACHE:
        yield
        return
    folder = _of_the_run(tmp_path_factory, worker_id) / "inductor"
    cache = getattr(pytestconfig, "cache", None)
    kept = cache.mkdir(f"kernels-{version('torch')}") if cache else folder
    _copy_built(kept, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder))
        yield
    _copy_built(folder, kept)


def _copy_built(source: Path, target: Path) -> None:
    """Copy what compilers built in a cache of Inductor's to another one that lacks it."""
    for path in [*source.glob("??/*.so"), *source.glob("??/*.o")]:
        copy = target / path.relative_to(source)
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=copy.parent, delete=False) as new:
                new.write(path.read_bytes())
            os.replace(new.name, copy)  # whole: another worker may do the same


@pytest.fixture(scope="session", autouse=True)
def _documents_are_as_their_schemas_say() -> Iterator[None]:
    """Whatever a command prints as JSON in this process."""
    from printed_documents import checked_json

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rewriter.core.documents.as_json", checked_json)
        yield


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Where the rewriter keeps the libraries of packages that it builds, by all they are made of.

    It is that of all tests of a run, and nobody else's.
    """
    return _kept(tmp_path_factory, worker_id)


def _kept(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    folder = _of_the_run(tmp_path_factory, worker_id) / "kept"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session", autouse=True)
def _own_caches(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> Iterator[None]:
    """What tests build is nothing for who runs them; the engine is that of all runs."""
    kept = _kept(tmp_path_factory, worker_id)  # not the fixture: tests have parameters of its name
    cache = getattr(pytestconfig, "cache", None)
    engine = cache.mkdir("engine") if cache else tmp_path_factory.getbasetemp() / "engine"
    with contextlib.suppress(FileExistsError):  # another worker was here
        (kept / "engine").symlink_to(engine)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REWRITER_CACHE_DIR", str(kept))
        yield


@pytest.fixture(scope="session")
def compilations(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> Compilations:
    """What was compiled before: in this run, or in an earlier one where pytest has a cache."""
    from compilations import Compilations

    if cache := getattr(request.config, "cache", None):
        return Compilations(cache.mkdir("compilations"))
    folder = _of_the_run(tmp_path_factory, worker_id) / "compilations"
    folder.mkdir(exist_ok=True)
    return Compilations(folder)


@pytest.fixture(scope="session")
def vector_instructions(compilations: Compilations, _inductor_cache: None) -> Iterator[None]:
    """Which vector instructions work here is tried out once, and not in each new process.

    Torch compiles a library for each of a dozen, and loads it in a process that imports torch;
    where the widest that the processor says it has do work, it need not try.
    """
    from torch._inductor import config, cpu_vec_isa

    def widest_work() -> bool:
        cpu_vec_isa.valid_vec_isa_list.cache_clear()
        with config.patch({"cpp.vec_isa_ok": True}):
            widest = cpu_vec_isa.pick_vec_isa()
        cpu_vec_isa.valid_vec_isa_list.cache_clear()
        return bool(widest)

    if not compilations.value(widest_work, "vector-instructions"):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "1")
        patch.setattr(config.cpp, "vec_isa_ok", True)
        cpu_vec_isa.valid_vec_isa_list.cache_clear()
        yield


@pytest.fixture(scope="session")
def compiled(compilations: Compilations) -> Callable[[str], Compiled]:
    """`compiled("mlp")` is that model of `fixtures/models.py`, compiled for the CPU."""
    from capture import compile_case
    from models import build_for

    return lambda name: compilations.value(
        lambda: compile_case(build_for("python", name)("cpu")), "python", name
    )


@pytest.fixture(scope="session")
def compiled_cpp(compilations: Compilations) -> Callable[[str], Compiled]:
    """`compiled_cpp("mlp")` is that model with C++ wrappers, for the CPU."""
    from capture import compile_case
    from models import build_for

    return lambda name: compilations.value(
        lambda: compile_case(build_for("cpp_wrapper", name)("cpu"), cpp_wrapper=True), "cpp", name
    )


@pytest.fixture(scope="session")
def exported(compilations: Compilations) -> Callable[..., Exported]:
    """`exported("mlp", "aoti")` is what AOTInductor makes of that model, for the CPU.

    The second argument is one of `KINDS` of `fixtures/models.py`.
    """
    from capture import AOTI_VARIANTS, export_case
    from models import build_for

    def get(name: str, kind: str = "aoti") -> Exported:
        return compilations.value_with_files(
            lambda folder: export_case(build_for(kind, name)("cpu"), folder, **AOTI_VARIANTS[kind]),
            kind,
            name,
        )

    return get


@pytest.fixture(scope="session")
def packaged(
    compilations: Compilations, exported: Callable[..., Exported]
) -> Callable[..., Packaged]:
    """`packaged("mlp", "appended")` is the `.pt2` package of that model, for the CPU.

    The second argument is one of `PACKAGE_VARIANTS` of `fixtures/capture.py`. The package
    "several" has several models; the second is the first with another weight in its library, or
    "exported" on its own. What `exported` has is not exported again.
    """
    from capture import PACKAGE_VARIANTS, export_case, package_case, package_exported
    from models import build_for, several
    from packages import with_weight

    def get(name: str, variant: str = "library") -> Packaged:
        def make(folder: Path) -> Packaged:
            path = folder / f"{name}.pt2"
            if name == "several":
                first, cases = exported("mlp"), several("cpu")
                weights = (case.fn.up.weight for case in cases.values())  # type: ignore[attr-defined]
                other = (
                    export_case(cases["net_b"], folder / "net_b")
                    if variant == "exported"
                    else with_weight(first, *weights, folder / "net_b")
                )
                return package_exported({"net": first, "net_b": other}, path)
            if variant == "library":
                return package_exported({"model": exported(name)}, path)
            case, config = build_for("aoti", name)("cpu"), PACKAGE_VARIANTS[variant]
            with pytest.MonkeyPatch.context() as patch:
                # A source that is in Inductor's cache keeps the commands of other exports.
                patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "inductor"))
                if variant == "appended":
                    package_case(case, folder / "before.pt2")
                return package_case(case, path, **config)

        return compilations.value_with_files(make, f"package-{variant}", name)

    return get


@pytest.fixture(scope="session")
def warm_executable(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[str]:
    """A Python with torch imported, for the fixtures below."""
    from warm import Warm

    # The path of a socket has at most 107 bytes.
    run = hashlib.sha256(str(_of_the_run(tmp_path_factory, worker_id)).encode()).hexdigest()
    warm = Warm(Path(tempfile.gettempdir()) / f"warm-{run[:16]}")
    yield warm.executable
    warm.close()


@pytest.fixture(scope="session")
def apart(warm_executable: str) -> Iterator[Apart]:
    """A process to run in what may crash."""
    from harness import Apart

    process = Apart(warm_executable)
    yield process
    process.close()


@pytest.fixture
def warm_python(warm_executable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that this process starts with its own Python need not import torch first."""
    monkeypatch.setattr("sys.executable", warm_executable)


@pytest.fixture(scope="module")
def warm_module(warm_executable: str) -> Iterator[None]:
    """As `warm_python`, for the fixtures of a module and all of its tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.executable", warm_executable)
        yield


@pytest.fixture(scope="session")
def mlp_wrapper(
    compiled: Callable[[str], Compiled], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A freshly compiled wrapper in a file, with its inputs in `inputs.pt` beside it."""
    import torch

    graph = compiled("mlp").graphs[0]
    folder = tmp_path_factory.mktemp("mlp")
    (folder / "output_code.py").write_text(graph.source)
    torch.save(graph.args, folder / "inputs.pt")
    return folder / "output_code.py"


@pytest.hookimpl(tryfirst=True)
def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--torch-python",
        metavar="PATH",
        help="the Python of another torch, for tests/real/test_torch_forms.py",
    )
    parser.addoption(
        "--vllm-python",
        metavar="PATH",
        help="a Python with vLLM, for tests/real/test_vllm.py",
    )
    parser.addoption(
        "--programs-python",
        metavar="PATH",
        help="a Python with transformers, torchao and so on, for tests/real/test_libraries.py",
    )


def pytest_configure(config: pytest.Config) -> None:
    sampling.SAMPLES_ALONE = "not exhaustive" in config.getoption("markexpr")
    for name in OPTIONS & os.environ.keys():
        del os.environ[name]
    if hasattr(config, "workerinput"):
        # It has told everything by then; to take all modules apart, one by one, takes a second.
        atexit.register(os._exit, 0)


class Backwards(pytest.Dir):
    """A directory whose last file is collected first."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        return reversed(list(super().collect()))


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Every second worker begins at the end: what one has compiled, the other one finds.

    In a clone where nothing has run, to rewrite the assertions takes longer than all other
    collection.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    if int(worker.removeprefix("gw")) % 2 == 0:
        return None
    backwards: pytest.Collector = Backwards.from_parent(parent, path=path)
    return backwards


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have one order in all workers, however they collected; skip what needs a GPU where there is
    none.

    Files that compile and start programs come first, so that none keeps one worker busy when the
    other has done all: from the end, as the first two by their names wait for one compilation.
    """
    items.sort(key=lambda item: item.path)  # by file, whose tests keep their order
    files = itertools.groupby(items, key=lambda item: item.path)
    whole = [(path.parent.name == "real", path, list(tests)) for path, tests in files]
    items[:] = [item for *_, tests in sorted(whole, key=itemgetter(0, 1))[::-1] for item in tests]
    if not any(item.get_closest_marker("gpu") for item in items):
        return
    import torch

    if not torch.cuda.is_available():
        skip = pytest.mark.skip(reason="no CUDA device")
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(skip)


def pytest_collection_finish() -> None:
    """Let the collector of garbage pass over what was imported and collected, which stays anyway,
    and look at the rest more rarely than after each 700 objects: a tenth of the time of tests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
