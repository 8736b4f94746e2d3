"""Triton kernels of a wrapper as plain Triton, with blocks chosen here in place of tuned ones.

With TRITON_INTERPRET=1, which is set before Triton is imported, they run on the CPU, and each
address is checked. Triton has to be installed; a GPU is not needed.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

_TUNERS = (
    "pointwise", "reduction", "persistent_reduction", "cooperative_reduction", "split_scan",
    "template", "fixed_config", "user_autotune", "foreach",
)  # fmt: skip
# Functions of libdevice that torch has under another name.
_CALLED = {"fabs": "abs", "rint": "round", "nearbyint": "round"}
_LARGEST = 1024  # elements of a block


class Memory:
    """The tensors that a kernel is handed, by address; what was wrong is kept in `faults`."""

    def __init__(self) -> None:
        self.kernels: set[str] = set()  # their files
        self.ranges: list[tuple[int, int, str, int]] = []
        self.faults: list[dict[str, Any]] = []

    def hand(self, parameter: str, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        end = storage.data_ptr() + storage.nbytes()
        self.ranges.append((tensor.data_ptr(), end, parameter, tensor.element_size()))

    def check(self, addresses: Any, mask: Any, size: int, what: str) -> Any:
        """The mask without what lies outside of all tensors; the first of that is a fault."""
        inside = mask & False
        for start, end, _, _ in self.ranges:
            inside |= (addresses >= start) & (addresses + size <= end)
        wrong = mask & ~inside
        if wrong.any():
            self._fault(int(addresses[wrong].flat[0]), int(wrong.sum()), what)
        return mask & inside

    def _fault(self, address: int, count: int, what: str) -> None:
        line = 0
        frame = inspect.currentframe()
        while frame is not None:
            if frame.f_code.co_filename in self.kernels:
                line = frame.f_lineno
                break
            frame = frame.f_back
        nearest = min(self.ranges, key=lambda x: max(x[0] - address, address - x[1] + 1, 0))
        start, end, parameter, item = nearest
        if any(fault["line"] == line for fault in self.faults):
            return
        self.faults.append(
            {
                "kind": "out of bounds",
                "message": f"{what} {item} bytes",
                "line": line,
                "parameter": parameter,
                "element": (address - start) // item,
                "size": (end - start) // item,
                "count": count,
            }
        )


class Kernel:
    """What a wrapper takes for the compiled kernel of `source`, which is written to `file`."""

    def __init__(self, file: Path, memory: Memory, source: str) -> None:
        self._file, self._memory = file, memory
        memory.kernels.add(str(file))
        file.write_text(source, encoding="utf-8")
        tuned: dict[str, Any] = {}
        _without_tuning(tuned)
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self._facts, self._function = tuned["facts"], tuned["function"]
        self.scale = 1

    def run(self, *given: Any, stream: Any = None, **more: Any) -> None:
        function = self._function
        names = list(function.arg_names)
        declared = {
            name
            for name, kind in getattr(function.fn, "__annotations__", {}).items()
            if "constexpr" in str(kind)
        }
        ordinary = [name for name in names if name not in declared]
        values = dict(zip(ordinary, given, strict=False)) | {
            name: value for name, value in more.items() if name in names
        }
        for name, value in values.items():
            if isinstance(value, torch.Tensor):
                self._memory.hand(name, value)
        # Of the user's own kernels the first configuration is taken.
        chosen: dict[str, Any] = next(iter(self._facts.get("configs", ())), {})
        blocks = {name: chosen.get(name) or self._block(name) for name in names if name in declared}
        values = {**self._facts.get("constants", {}), **blocks, **values}
        # Of kernels whose grid is given, it follows their own arguments.
        extra = self._facts["inductor_meta"].get("extra_launcher_args", ())
        more_values = dict(zip(extra, given[len(given) - len(extra) :], strict=False))
        grid = self._grid({**values, **more_values}, {**blocks, **chosen})
        function[grid](**values)

    def _block(self, name: str) -> Any:
        constants = self._facts.get("constants", {})
        if name in constants:
            return constants[name]
        hints = {f"{key.upper()}BLOCK": size for key, size in self._facts["size_hints"].items()}
        hints |= {"R0_BLOCK": hints.get("R0_BLOCK", hints.get("RBLOCK", 1))}
        size = hints.get(name)
        if size is None:
            raise SystemExit(f"the value of {name} is not known")
        power = 1 << max(0, int(size) - 1).bit_length()
        return max(1, min(power, _LARGEST if name.startswith("R") else 128) // self.scale)

    def _grid(self, values: Mapping[str, Any], blocks: Mapping[str, Any]) -> tuple[int, ...]:
        from torch._inductor.runtime.triton_heuristics import GridExpr

        expression = GridExpr.from_meta(self._facts["inductor_meta"], dict(blocks))
        # A kernel sets sizes of its own that do not change: `xnumel = 512`.
        scope = {**_sizes(self._file), **values}
        for line in expression.prefix:
            exec(line, {"__builtins__": {}}, scope)
        found = []
        for part in (expression.x_grid, expression.y_grid, expression.z_grid):
            names = {"__builtins__": {}, "max": max, "min": min}
            found.append(int(eval(part, names, scope)) if isinstance(part, str) else int(part))
        return tuple(found)


def _sizes(kernel: Path) -> dict[str, int]:
    tree = ast.parse(kernel.read_text(encoding="utf-8"))
    return {
        node.targets[0].id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, int)
    }


def _without_tuning(kept: dict[str, Any]) -> None:
    """Have Inductor's decorators only keep the function and their arguments."""
    from torch._inductor.runtime import triton_helpers, triton_heuristics

    def tuner(**facts: Any) -> Callable[[Any], Any]:
        def decorate(function: Any) -> Any:
            meta = facts.get("triton_meta", {})
            constants = {k: v for k, v in meta.get("constants", {}).items() if isinstance(k, str)}
            kept.update(
                function=function, facts={"size_hints": {}, **facts, "constants": constants}
            )
            return function

        return decorate

    for name in _TUNERS:
        if hasattr(triton_heuristics, name):
            setattr(triton_heuristics, name, tuner)
    helpers: Any = triton_helpers
    helpers.set_driver_to_gpu = lambda: None


def watch(memory: Memory) -> None:
    """Have the interpreter check each address, and know the functions of libdevice."""
    np: Any = importlib.import_module("numpy")
    tl: Any = importlib.import_module("triton.language")
    interpreter: Any = importlib.import_module("triton.runtime.interpreter")
    builder = interpreter.InterpreterBuilder

    def check(name: str, what: str, pointers_at: int, mask_at: int) -> None:
        plain = getattr(builder, name)

        def checked(self: Any, *given: Any) -> Any:
            pointers, mask = given[pointers_at], given[mask_at]
            size = max(1, int(pointers.get_element_ty().primitive_bitwidth) // 8)
            inside = memory.check(pointers.data, mask.data, size, what)
            handle = interpreter.TensorHandle(inside, tl.int1)
            return plain(self, *given[:mask_at], handle, *given[mask_at + 1 :])

        setattr(builder, name, checked)

    check("create_masked_load", "reads", 0, 1)
    check("create_masked_store", "writes", 0, 2)
    check("create_atomic_rmw", "updates", 1, 3)
    patch = interpreter._patch_lang_tensor

    def patched(tensor: Any, *rest: Any) -> None:
        patch(tensor, *rest)
        # Triton 3.6 makes a number of a whole array, which numpy 2.4 refuses.
        tensor.__index__ = lambda self: int(self.handle.data.item())

    interpreter._patch_lang_tensor = patched

    helpers: Any = importlib.import_module("torch._inductor.runtime.triton_helpers")
    library = helpers.libdevice

    def elementwise(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
        def run(*given: Any, **more: Any) -> Any:
            tensors = [torch.from_numpy(np.ascontiguousarray(x.handle.data)) for x in given]
            made = function(*tensors).numpy()
            handle = given[0].handle
            if made.dtype != np.bool_:
                made = made.astype(handle.data.dtype)
                return tl.core.tensor(interpreter.TensorHandle(made, handle.dtype), given[0].type)
            kind = given[0].type.with_element_ty(tl.int1) if given[0].shape else tl.int1
            return tl.core.tensor(interpreter.TensorHandle(made, tl.int1), kind)

        return run

    for name in dir(library):
        function = getattr(torch, _CALLED.get(name, name), None)
        function = function or getattr(torch.special, name, None)
        if callable(function) and not name.startswith("_"):
            setattr(library, name, elementwise(function))
