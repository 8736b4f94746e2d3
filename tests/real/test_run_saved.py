"""`run` of what torch saved compiled: the host loads it as torch does, with probes in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rewriter.artifact.opening import open_artifact
from rewriter.execution.saved_artifact import loader_of, write_copy
from rewriter.instrumentation.select import select
from rewriter.runtime.host import ProblemError, wrapper
from rewriter.runtime.host.measured import digest

INPUTS = [torch.arange(12.0).reshape(3, 4), torch.arange(8.0).reshape(4, 2)]


def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x @ w


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One small model in each form that torch loads by itself."""
    from torch._inductor import standalone_compile
    from torch.fx.experimental.proxy_tensor import make_fx

    folder = tmp_path_factory.mktemp("saved")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "cache"))
        graph = make_fx(product)(*INPUTS)
        compiled = standalone_compile(graph, INPUTS)
        compiled.save(path=str(folder / "unpacked"), format="unpacked")
        compiled.save(path=str(folder / "binary"))
        standalone_compile(graph, INPUTS, aot=True).save(path=str(folder / "aot"))
        torch._dynamo.reset()
        function = torch.compile(product, fullgraph=True)
        function.aot_compile((tuple(INPUTS), {})).save_compiled_function(str(folder / "function"))
        torch._dynamo.reset()
        with torch.no_grad():
            compiled = torch.compile(product, fullgraph=True).aot_compile((tuple(INPUTS), {}))
            compiled.save_compiled_function(str(folder / "function-without-gradients"))
    torch.save(INPUTS, folder / "args.pt")
    torch.save({"x": INPUTS[0], "w": INPUTS[1]}, folder / "named.pt")
    torch.save(INPUTS[:1], folder / "few.pt")
    torch.save([INPUTS[0], torch.ones(4, 5)], folder / "wide.pt")
    yield folder
    torch._dynamo.reset()


@pytest.fixture
def call(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What the host reports of a copy with the probe `names`."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))

    def of(name: str, args: str = "args.pt") -> Any:
        artifact = open_artifact(saved / name)
        copy, _ = write_copy(artifact, select(["names"]), tmp_path)
        return wrapper.run(
            {
                "wrapper": str(copy),
                "model": None,
                "saved": loader_of(artifact),
                "imports": [],
                "args": str(saved / args),
                "devices": [],
                "seed": 0,
                "interpret": False,
                "inputs": 2,
                "beside": None,
            }
        )

    return of


@pytest.mark.parametrize(
    "name", ["unpacked", "binary", "aot", "function", "function-without-gradients"]
)
def test_it_is_called_with_probes(
    name: str, call: Callable[..., Any], capfd: pytest.CaptureFixture[str]
) -> None:
    (output,) = call(name)["outputs"]
    assert output["sha256"] == digest(product(*INPUTS))
    assert "extern_kernels.mm" in capfd.readouterr().out


def test_a_function_takes_inputs_by_name(call: Callable[..., Any]) -> None:
    (output,) = call("function", "named.pt")["outputs"]
    assert output["sha256"] == digest(product(*INPUTS))
    with pytest.raises(ProblemError, match="expected a list"):
        call("binary", "named.pt")


def test_inputs_that_a_function_was_not_compiled_for(call: Callable[..., Any]) -> None:
    with pytest.raises(ProblemError) as caught:
        call("function", "wide.pt")
    assert caught.value.slug == "bad-args-file"
    assert "size mismatch at index 1. expected 2, actual 5" in str(caught.value)


def test_too_few_inputs(call: Callable[..., Any]) -> None:
    with pytest.raises(ProblemError, match="takes 2 inputs, the file holds 1"):
        call("binary", "few.pt")


def test_of_another_torch(call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch._inductor.codecache.torch_key", lambda: b"of another build")
    with pytest.raises(ProblemError, match="cannot load it") as caught:
        call("binary")
    assert caught.value.slug == "not-loaded"
