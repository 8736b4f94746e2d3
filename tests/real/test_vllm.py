"""vLLM itself, on this machine's CPU or GPU: as it comes, with probes put in as it loads its files.

    pytest -m engine tests/real/test_vllm.py --vllm-python PATH

`PATH` is the Python of an environment with vLLM, which need not have inductor-rewriter. Without the
option, it is the one that runs the tests, if that has vLLM. On a CPU, vLLM compiles in pieces by a
plugin (`tests/support/vllm_piecewise`).
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

import programs
from caches import ROOT

pytestmark = pytest.mark.engine
SUPPORT = ROOT / "tests/support"
PROGRAM = SUPPORT / "vllm_generate.py"
NORM = "model.layers.1.post_attention_layernorm.weight"
GPU = {"gpu_memory_utilization": 0.1, "compilation_config": {"cudagraph_mode": "NONE"}}
CPU = {"compilation_config": {"compile_sizes": []}}
KERNEL = re.compile(
    r"^(\w+) = async_compile\..*?(?=^\w+ = async_compile\.|^async_compile\.wait)", re.M | re.S
)
EPSILON = re.compile(r"^(?!\s*#)(.*)\b1e-05\b", re.M)
# The call with which vLLM warms up on a CPU has outputs of attention that nothing has written.
WARMED = ["--calls", "1-"]


@dataclass(frozen=True)
class Engine:
    """vLLM with a model, and what it printed when it was started first."""

    python: str
    folder: Path
    tokens: tuple[str, ...] = ()

    def start(self, *before: object, model: str = "model") -> Any:
        about = {
            "VLLM_CACHE_ROOT": self.folder / "cache",
            "VLLM_CPU_KVCACHE_SPACE": 1,
            "PYTHONPATH": SUPPORT / "vllm_piecewise",
        }
        options = json.dumps(GPU if torch.cuda.is_available() else CPU)
        words = [*before, self.python, PROGRAM, self.folder / model, options]
        done = programs.run(*words, code=None, cwd=self.folder, **about)
        assert done.stdout, done.stderr
        return done

    def ask(
        self, *words: str, model: str = "model", same: bool = True
    ) -> tuple[int, dict[str, Any]]:
        """The exit code of a command of the rewriter, and its document. Each start of the engine
        prints the same tokens as without it, unless it computes something else."""
        script = (
            "import sys; sys.path.insert(0, sys.argv.pop(1)); import rewriter.cli as c; c.script()"
        )
        warmed = [] if torch.cuda.is_available() else WARMED
        command = [sys.executable, "-c", script, ROOT, *words, *warmed]
        done = self.start(*command, "--json", "-d", "dump", "--overwrite", "--", model=model)
        if model == "model" and same:
            assert {*tokens(done.stderr)} == {*self.tokens}, done.stderr
        return done.returncode, json.loads(done.stdout.splitlines()[-1])

    @property
    def artifacts(self) -> list[Path]:
        """One for each piece, or else `model` with all of them. Where there is one for each piece,
        `model` holds their paths only, and no wrapper."""
        kept = self.folder / "cache/torch_compile_cache"
        pieces = [x for x in kept.rglob("artifact_*") if x.is_file()]
        return pieces or [*kept.rglob("model")]


def tokens(text: str) -> list[str]:
    return re.findall(r"^tokens .*$", text, re.MULTILINE)


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    python = request.config.getoption("--vllm-python")
    if not python and importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed here; --vllm-python names another Python")
    engine = Engine(str(python or sys.executable), tmp_path_factory.mktemp("vllm"))
    for model, nan in (("model", ()), ("nan", (NORM,))):
        write = [engine.python, PROGRAM, "--write", engine.folder / model, *nan]
        programs.run(*write)
    plain = tokens(engine.start().stdout)
    assert len(plain) == 2
    return replace(engine, tokens=tuple(plain))


@pytest.mark.parametrize("command", ["diagnose", "verify", "sanitize"])
def test_what_is_right_is_not_accused(command: str, served: Engine) -> None:
    code, found = served.ask(command)
    assert code == 0, found
    if command == "verify":
        assert (found["differ"], found["unchecked"]) == (0, 0)
    else:
        assert found["findings"] == []


def test_a_weight_with_nan_is_named(served: Engine) -> None:
    code, found = served.ask("run", model="nan")
    assert code == 1
    (verdict,) = found["verdicts"]
    assert "layers.1" in verdict["piece"]
    assert "sizes 1 to" in verdict["piece"]
    assert verdict["process"].startswith(("VllmWorker", "EngineCore"))
    assert NORM.removeprefix("model.") in [one.get("model") for one in verdict["arguments"]]


def test_a_kernel_with_another_number_is_named(served: Engine) -> None:
    """The epsilon of a norm, in the file that vLLM loads from its cache."""
    kept = served.folder / "kept"
    shutil.copytree(served.folder / "cache", kept)
    try:
        wrappers = (served.folder / "cache").rglob("inductor_cache/*/*.py")
        kernels = [name for wrapper in wrappers for name in changed(wrapper)]
        assert kernels, "no kernel has this epsilon"
        code, found = served.ask("diagnose", same=False)
        assert code == 1
        assert found["finding"]["kernel"] in kernels
        assert "submod_" in "".join(found["finding"]["text"])
    finally:
        shutil.rmtree(served.folder / "cache")
        kept.rename(served.folder / "cache")


def changed(wrapper: Path) -> list[str]:
    """Write another epsilon into all kernels of a wrapper that have one; their names. A wrapper for
    a GPU has the text of each twice: once for autotuning, in a string at its beginning."""
    names = []

    def other(kernel: re.Match[str]) -> str:
        text = EPSILON.sub(r"\g<1>0.1", kernel[0])
        names.extend([kernel[1]] if text != kernel[0] else [])
        return text

    wrapper.write_text(KERNEL.sub(other, wrapper.read_text()))
    return names


def test_artifacts_are_patched_loaded_and_stripped(served: Engine) -> None:
    before = {path: path.read_bytes() for path in served.artifacts}
    assert before
    for path in before:
        patch = ["instrument", path, "--probe", "names", "--standalone", "--in-place"]
        programs.rewriter(*patch, cwd=ROOT)
    done = served.start()
    assert tokens(done.stdout) == [*served.tokens]
    assert "[rewriter" in done.stdout + done.stderr
    for path in before:
        programs.rewriter("strip", path, "--in-place", cwd=ROOT)
    assert {path: path.read_bytes() for path in before} == before
