"""Runs one wrapper in a separate process: `script()` with the path of a specification.

The parent (`rewriter/execution/host_process.py`) writes the specification and reads the report.
Both are JSON files:

    {"wrapper": path, "model": name in a package or null, "pickled": whether its weights are,
     "saved": how torch loads the file or null, "imports": [modules or files],
     "args": path or null, "devices": [types],
     "constants": path or null, "tuned": path or null, "seed": int, "inputs": count,
     "interpret": whether it runs on the CPU, in Triton's interpreter,
     "recorded": null or {"inputs": […], "outputs": […]} of a call (`rewriter/execution/replay.py`),
     "loader_globals": [names], "beside": path of another wrapper to be timed with it, or null,
     "report": path}
    {"outputs": [...], "random_globals": [names], "replayed": ["equal", …], "seconds": [2 numbers]}
    or  {"problem": slug, "message": text}

Exit codes: 0 it ran, 1 the wrapper raised (the traceback is on standard error), 2 it cannot run
like this (the report says why).
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import sys
import traceback
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ..plain import measure
from . import ProblemError, beside, import_operators, on_cpu, recorded_values, saved, tuned
from .harness import BENCHMARK, MAKE_INPUTS
from .measured import digest
from .package import loader_of

# A whole vector of floats in a C++ kernel; the number has an `L` where it is a part of one.
_WHOLE = re.compile(r"Vectorized<float>::loadu\([^;\n]{0,1000}, static_cast<int64_t>\((\d+)\)\)")


def main(spec: dict[str, Any], act: Callable[[dict[str, Any]], dict[str, Any]]) -> int:
    """Run `act` on the specification `spec`, and write its report. Returns the exit code."""
    report: dict[str, Any]
    try:
        report = act(spec)
        code = 0
    except ProblemError as problem:
        report = {"problem": problem.slug, "message": str(problem)}
        code = 2
    except Exception as error:
        traceback.print_exc()
        report = {"message": "".join(traceback.format_exception_only(error)).strip()}
        code = 1
    Path(spec["report"]).write_text(json.dumps(report), encoding="utf-8")
    return code


def run(spec: dict[str, Any]) -> dict[str, Any]:
    """Run what `spec` names once: a wrapper, a package or saved code. Returns the report."""
    prepare(spec)
    if spec["model"] is not None or spec["saved"] is not None:
        return _run_saved(spec)
    module = load(Path(spec["wrapper"]))
    constants = _load_constants(spec["constants"])
    missing = [
        name
        for name in spec["loader_globals"]
        if getattr(module, name, None) is None and name not in constants
    ]
    vars(module).update(constants)
    torch.manual_seed(spec["seed"])
    if spec["args"] or spec["recorded"]:
        if missing:
            raise ProblemError(
                "loader-globals",
                f"the wrapper needs {', '.join(missing)}, which Inductor's loader sets "
                "(frozen weights and constants of the model) and which are no inputs",
            )
        if spec["recorded"]:
            inputs = recorded_values.inputs(spec["recorded"]["inputs"], _load_file)
        else:
            inputs, _ = load_inputs(spec["args"])
        if len(inputs) != spec["inputs"]:
            raise bad_file(
                f"{spec['args']}: the wrapper takes {spec['inputs']} inputs, weights among them, "
                f"the file holds {len(inputs)}"
            )
    else:
        inputs = own_inputs(module)
        vars(module).update(constants)  # `get_args` fills these globals with random values
    choices = Path(spec["tuned"]) if spec["tuned"] else None
    if choices is not None:
        tuned.pin(module, choices)
    torch.manual_seed(spec["seed"])
    outputs = module.call(list(inputs))
    if choices is not None:
        tuned.keep(module, choices)
    beside.synchronize()
    if not isinstance(outputs, (list, tuple)):
        outputs = [outputs]
    result = {"outputs": [*map(describe, outputs)], "random_globals": missing}
    if spec["beside"]:
        other = load(Path(spec["beside"]))
        vars(other).update(constants)
        result["seconds"] = beside.seconds(module.call, other.call, inputs)
    if spec["recorded"]:
        result["replayed"] = recorded_values.compared(
            outputs, spec["recorded"]["outputs"], _load_file
        )
    return result


def prepare(spec: dict[str, Any]) -> None:
    """Check that the devices of `spec` exist, and import the modules that register operators."""
    if spec["interpret"]:
        on_cpu.enter(Path(spec["wrapper"]).parent)
    for device in () if spec["interpret"] else spec["devices"]:
        module = getattr(torch, device, None)
        if module is None or not module.is_available():
            raise ProblemError("no-device", f"the wrapper runs on {device}, and there is none here")
    for name in spec["imports"]:
        import_operators(name)


def _run_saved(spec: dict[str, Any]) -> dict[str, Any]:
    """Load a model of a package, or saved compiled code, call it once, and describe its outputs."""
    inputs, keywords = load_inputs(spec["args"], keywords=spec["saved"] in (None, "function"))
    load = saved.load if spec["model"] is None else _load_package
    model = load(spec["wrapper"], spec)
    torch.manual_seed(spec["seed"])
    outputs = _call(model, inputs, keywords, spec)
    leaves = torch.utils._pytree.tree_leaves(outputs)
    result: dict[str, Any] = {"outputs": [*map(describe, leaves)], "random_globals": []}
    if spec["beside"]:
        both = (model, load(spec["beside"], spec))
        one, other = (lambda x, model=model: model(*x, **keywords) for model in both)
        result["seconds"] = beside.seconds(one, other, inputs)
    return result


def _load_package(path: str, spec: dict[str, Any]) -> Any:
    if spec["pickled"]:
        # Only this loader reads pickled weights; without them the model would crash.
        from torch.export.pt2_archive._package import load_pt2

        contents = load_pt2(path, load_weights_from_disk=True)
        return contents.aoti_runners[spec["model"]]
    from torch._inductor.package.package import AOTICompiledModel  # type: ignore[attr-defined]

    # `load_package` would first compile and load a test program for each vector instruction
    # set of the host, only to warn about a different one: 5 to 40 s.
    return AOTICompiledModel(loader_of(torch._C, path, spec["model"]))


def _call(
    function: Callable[..., Any], inputs: list[Any], keywords: dict[str, Any], spec: dict[str, Any]
) -> Any:
    """What a model returns. Raises `ProblemError` for inputs that it does not take."""
    try:
        outputs = function(*inputs, **keywords)
    except Exception as error:
        given = len(torch.utils._pytree.tree_leaves((inputs, keywords)))
        if given != spec["inputs"]:
            why = f"the model takes {spec['inputs']} inputs, the file holds {given}: {error}"
            why = why.splitlines()[0]
        elif isinstance(error, saved.GuardsError):
            why = f"the function was not compiled for these inputs: {error}"
        else:
            raise
        raise bad_file(f"{spec['args']}: {why}") from error
    beside.synchronize()
    return outputs


def load(path: Path) -> ModuleType:
    """Import the wrapper from its file, as Inductor's own loader does."""
    _use_vectors(path.read_text(encoding="utf-8", errors="replace"))
    # Not named after the file, which may be called torch.py, or have no suffix.
    name = f"rewriter_wrapper_{path.stem}"
    loader = SourceFileLoader(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader, origin=str(path))
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    # Compile workers and Triton look the module up by name.
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except (ImportError, AttributeError) as error:
        # Wrappers bind functions of torch at module level; another release may lack some of them.
        raise ProblemError("missing-module", f"the wrapper cannot be imported: {error}") from error
    if not callable(getattr(module, "call", None)):
        raise ProblemError("no-entry", "the wrapper has no function `call` to run")
    return module


def _use_vectors(text: str) -> None:
    """Have kernels compiled for vectors of the size that they were generated for: with others they
    compute something else. Raises `ProblemError` if there are none on this machine."""
    sizes = {int(size) for size in _WHOLE.findall(text)}
    if len(sizes) != 1:
        return
    from torch._inductor import config, cpu_vec_isa

    (size,) = sizes
    here = [isa.nelements() for isa in cpu_vec_isa.valid_vec_isa_list()]
    if size not in here:
        raise ProblemError(
            "wrong-machine",
            f"its kernels were generated for vectors of {size} floats, and this processor has "
            f"{', '.join(map(str, here)) or 'none'} (torch {torch.__version__})",
        )
    if cpu_vec_isa.pick_vec_isa().nelements() != size:
        config.cpp.simdlen = 32 * size


def own_inputs(module: ModuleType) -> list[Any]:
    """The inputs that the wrapper's own benchmark harness makes: `get_args()`, since torch 2.9.

    Earlier wrappers make them inside `benchmark_compiled_module`, which passes a function to
    `print_performance`; the inputs are the arguments with which that function calls `call`.
    """
    if make_inputs := getattr(module, MAKE_INPUTS, None):
        return list(make_inputs())
    if not hasattr(module, BENCHMARK):
        raise ProblemError("no-inputs", "the wrapper has no get_args() to make inputs with")
    import torch._inductor.utils as utils

    captured: list[Any] = []
    call, measure = module.call, utils.print_performance

    def once(fn: Callable[[], Any], *_: Any, **__: Any) -> float:
        fn()
        return 0.0

    try:
        module.call = captured.extend  # type: ignore[attr-defined]
        utils.print_performance = once  # type: ignore[assignment]
        getattr(module, BENCHMARK)(times=1, repeat=1)
    finally:
        module.call = call  # type: ignore[attr-defined]
        utils.print_performance = measure
    return captured


def describe(output: Any) -> dict[str, Any]:
    """The type, shape and other facts of an output; equal digests mean equal bits."""
    if not isinstance(output, torch.Tensor):
        return {"type": type(output).__name__, "value": repr(output)}
    with torch.no_grad():
        known = measure(output.detach())
    return {
        "type": "tensor",
        "dtype": str(output.dtype).removeprefix("torch."),
        "shape": list(output.shape),
        "device": str(output.device),
        "sha256": digest(output),
        **{name: known[name] for name in ("nan", "inf") if name in known},
    }


def load_inputs(path: str, *, keywords: bool = False) -> tuple[list[Any], dict[str, Any]]:
    """Load the inputs in a file: positional ones, and keyword ones if `keywords` allows them."""
    loaded = _load_file(path)
    if isinstance(loaded, torch.Tensor):
        return [loaded], {}
    if isinstance(loaded, (list, tuple)):
        return list(loaded), {}
    if keywords and isinstance(loaded, dict):
        return [], loaded
    raise bad_file(f"{path}: expected a list of inputs, found {type(loaded).__name__}")


def _load_constants(path: str | None) -> dict[str, Any]:
    loaded = {} if path is None else _load_file(path)
    if isinstance(loaded, dict):
        return loaded
    raise bad_file(f"{path}: expected a dict from names to tensors, found {type(loaded).__name__}")


def _load_file(path: str) -> Any:
    try:
        return torch.load(path, weights_only=True)
    except Exception as error:
        # Without advice to load untrusted files unchecked, and the guess that one is damaged.
        reason = re.split(r"In PyTorch 2\.6|Re-running|\. |\n", str(error).strip())[0].strip()
        if not reason or isinstance(error, (KeyError, IndexError)):
            reason = "it is no file of torch.save"  # the pickle module's message would not help
        raise bad_file(f"{path}: torch.load cannot read it: {reason}") from error


def bad_file(message: str) -> ProblemError:
    """The error for a file of inputs or constants that does not fit."""
    return ProblemError("bad-args-file", message)


def script() -> None:
    """Run the specification that the command line names."""
    raise SystemExit(main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), run))
