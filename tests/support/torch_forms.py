"""Makes and calls one small model in every form in which torch keeps what it compiled.

A program, for the Python of any torch:

    python torch_forms.py version
    python torch_forms.py make FORM FOLDER     writes it, and prints where it is
    python torch_forms.py call FORM PATH       calls it, and prints a digest of what it returns

`TORCHINDUCTOR_CACHE_DIR` is the cache; `IN_CACHE` are the forms that are found only there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Each form, and the first torch that has it.
FORMS = {
    "standalone": (2, 8),
    "unpacked": (2, 8),
    "standalone-aot": (2, 10),
    "mega-cache": (2, 7),
    "aot-compile": (2, 10),
    "vllm-model": (2, 10),
    "fx-graph-entry": (2, 7),
    "aot-autograd-entry": (2, 9),
    "dynamo-entry": (2, 10),
    "pair": (2, 15),
}
IN_CACHE = {"fx-graph-entry", "aot-autograd-entry", "dynamo-entry"}
# Those that `rewriter run` calls.
CALLED = {"standalone", "unpacked", "standalone-aot", "aot-compile"}
TRAINED = {"mega-cache", "aot-autograd-entry"}
ARGS = "args.pt"


def product(x: Any, w: Any) -> Any:
    """A matrix product: there is nothing for a C++ compiler to do."""
    return x @ w


def _inputs() -> list[Any]:
    import torch

    torch.manual_seed(0)
    return [torch.randn(8, 16), torch.randn(16, 4)]


def _compiled(**options: Any) -> Any:
    from torch._inductor import standalone_compile
    from torch.fx.experimental.proxy_tensor import make_fx

    inputs = _inputs()
    # Otherwise there are no shapes, and torch 2.15 has nothing to save.
    options["dynamic_shapes"] = "from_example_inputs"
    return standalone_compile(make_fx(product)(*inputs), inputs, **options)


def _run_compiled(*, trained: bool = False) -> list[Any]:
    """The model as a program compiles it: what torch finds in its cache is not compiled."""
    import torch

    inputs = [one.requires_grad_(trained) for one in _inputs()]
    output = torch.compile(product)(*inputs)
    if not trained:
        return [output]
    output.sum().backward()
    return [output, *(one.grad for one in inputs)]


def _bundled() -> Any:
    import torch._functorch.config as config

    return config.patch("bundled_autograd_cache", True)


def _kept() -> Any:
    import torch

    return torch._dynamo.config.patch(caching_precompile=True)


def _entry(folder: str) -> Path:
    """The only entry of a cache."""
    (entry,) = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"], folder).rglob("entry*")
    return entry


def make(form: str, folder: Path) -> Path:
    """Write the model in a form. Returns where it is."""
    import torch

    torch.save(_inputs(), folder / ARGS)
    path, cache = folder / "artifact", Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    if form == "standalone":
        _compiled().save(path=str(path))
    elif form == "unpacked":
        _compiled().save(path=str(path), format="unpacked")
    elif form == "standalone-aot":
        _compiled(aot=True).save(path=str(path))
    elif form == "mega-cache":
        _run_compiled(trained=True)
        path.write_bytes(torch.compiler.save_cache_artifacts()[0])
    elif form in ("aot-compile", "vllm-model"):
        torch._dynamo.config.enable_aot_compile = True  # as it is in 2.13
        backend: Any = "inductor"
        if form == "vllm-model":
            from containers import Engine

            backend = Engine.compile
        function = torch.compile(product, fullgraph=True, backend=backend)
        function.aot_compile((tuple(_inputs()), {})).save_compiled_function(str(path))
    elif form == "fx-graph-entry":
        _run_compiled()
        (path,) = (one for one in (cache / "fxgraph").rglob("*") if one.is_file())
    elif form == "aot-autograd-entry":
        with _bundled():
            _run_compiled(trained=True)
        (path,) = (one for one in (cache / "aotautograd").rglob("*") if one.is_file())
    elif form == "dynamo-entry":
        with _kept():
            _run_compiled()
            torch.compiler.save_cache_artifacts()
        (path,) = (cache / "dynamo").rglob("entry")
    elif form == "pair":
        from precompile_pair import make as make_pair

        make_pair(folder)
        path = folder / "m.py"
    return path


def call(form: str, path: Path) -> list[Any]:
    """What the model returns, as torch loads it."""
    import torch

    if form in ("standalone", "unpacked", "standalone-aot"):
        format = "unpacked" if form == "unpacked" else "binary"
        loaded = torch._inductor.CompiledArtifact.load(path=str(path), format=format)
        output = loaded(*_inputs())
        return list(output) if isinstance(output, (tuple, list)) else [output]
    if form == "mega-cache":
        torch.compiler.load_cache_artifacts(path.read_bytes())
        return _hit("autograd_cache_hit", lambda: _run_compiled(trained=True))
    if form in ("aot-compile", "vllm-model"):
        with path.open("rb") as file:
            return [torch.compiler.load_compiled_function(file)(*_inputs())]
    if form == "fx-graph-entry":
        # Without the entry of AOTAutograd that refers to it.
        shutil.rmtree(path.parents[3] / "aotautograd", ignore_errors=True)
        return _hit("fxgraph_cache_hit", _run_compiled)
    if form == "aot-autograd-entry":
        with _bundled():
            return _hit("autograd_cache_hit", lambda: _run_compiled(trained=True))
    if form == "dynamo-entry":
        with _kept():
            return _hit("dynamo_cache_hit", _run_compiled)
    from precompile_pair import model_and_input

    model, example = model_and_input()
    with torch.no_grad():
        loaded = torch.compiler.precompile.load(path, path.with_suffix(".cache"))
        return [loaded(model, example)]


def _hit(counter: str, run: Callable[[], list[Any]]) -> list[Any]:
    """What a program returns that compiles nothing."""
    from torch._dynamo.utils import counters

    counters.clear()
    result = run()
    hits = {name: number for group in counters.values() for name, number in group.items()}
    assert hits.get(counter), f"compiled again: {hits}"
    return result


def main() -> None:
    import torch

    what = sys.argv[1]
    if what == "version":
        print(torch.__version__)
    elif what == "make":
        print(make(sys.argv[2], Path(sys.argv[3])))
    else:
        outputs = call(sys.argv[2], Path(sys.argv[3]))
        data = b"".join(one.detach().contiguous().numpy().tobytes() for one in outputs)
        print(f"outputs {hashlib.sha256(data).hexdigest()}")


if __name__ == "__main__":
    # Pickles name the module of the model, which has to be found again.
    sys.path.insert(0, str(Path(__file__).parent))
    import torch_forms

    torch_forms.main()
