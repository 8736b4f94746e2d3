"""Wrappers with launches replaced by what their graph says, against the same without."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from capture import Exported, Graph, package_exported
from harness import load
from packages import load_model
from rewriter.artifact.package.model import open_package
from rewriter.artifact.wrapper_file import read_wrapper
from rewriter.core import edit
from rewriter.diagnosis.verification.given_graphs import other_inputs
from rewriter.diagnosis.verification.replacing.body import NoBodyError
from rewriter.diagnosis.verification.replacing.insert import (
    replaced,
    replaced_in_package,
    selection_of,
)
from rewriter.diagnosis.verification.replacing.insert_cpp import proxied
from rewriter.diagnosis.verification.replacing.substitutes import Substitutes, substitutes
from rewriter.instrumentation.rebuild import patch
from rewriter.instrumentation.rebuild.probed_models import Probed
from rewriter.instrumentation.types import Instrumented, Plan

_FAR = {torch.bfloat16: 3e-2, torch.float16: 5e-3}


def all_replaced(graph: Graph, folder: Path, *, integers: bool = True) -> Substitutes:
    """Replace what can be replaced, and compare: the outputs and the inputs of a call are the same
    within rounding, and lie in the same way; without the lines it is the same file.

    What is not the same in two plain calls is not compared, such as seeds, and without `integers`
    no integer is, such as the order of equal elements.
    """
    wrapper = read_wrapper(folder / "x.py", "x.py", graph.source.encode())
    assert wrapper is not None
    assert not other_inputs(wrapper, graph.lowered)
    found = substitutes(wrapper, graph.lowered, {})
    made = replaced(wrapper, found.found)
    assert edit.strip(made.source).source == wrapper.source
    if not found.found:
        return found
    plain, again, others, last = (copy.deepcopy(graph.args) for _ in range(4))
    expected = _tensors(load(wrapper.source, folder).call(list(plain)), plain)
    repeated = _tensors(load(wrapper.source, folder).call(list(again)), again)
    steady = [*map(is_close, expected, repeated)]
    got = _tensors(load(made.source, folder).call(list(others)), others)
    assert [_lies(x) for x in expected] == [_lies(x) for x in got]
    pairs = [
        pair
        for pair, is_steady in zip(zip(expected, got, strict=True), steady, strict=True)
        if is_steady and (integers or pair[0].is_floating_point())
    ]
    assert pairs
    far = {at: pair for at, pair in enumerate(pairs) if not is_close(*pair)}
    assert not far, {x.launch.index: x.launch.kernel for x in found.found}
    if wrapper.language == "cpp":
        # The same C++ where no launch is chosen, so that it is not compiled again: all run as they
        # are.
        idle = replaced(wrapper, [], attempts="x", keeps=True, among=found.found)
        assert _cpp(idle.source) == _cpp(made.source)
        left = _tensors(load(idle.source, folder).call(list(last)), last)
        same = map(is_close, expected, left)
        assert all(x or not y for x, y in zip(same, steady, strict=True))
    return found


def _cpp(source: bytes) -> bytes:
    """What is compiled of a file with a C++ wrapper."""
    return source.partition(b"cpp_wrapper_src = ")[2].partition(b"load_pybinding")[0]


def all_replaced_in_package(exported: Exported, folder: Path) -> list[str]:
    """The same of a package: what cannot be replaced, and why. The result is loaded, and stripped
    it is the original, byte for byte."""
    path, made, back = (folder / f"{x}.pt2" for x in ("plain", "made", "back"))
    package_exported({"model": exported}, path)
    package = open_package(path)
    (model,), (wrapper,) = package.models, package.wrappers
    assert not other_inputs(wrapper, exported.lowered)
    found = substitutes(wrapper, exported.lowered, {})
    why = [x.reason for x in found.kept]
    chosen = []
    for one in found.found:
        try:
            proxied(wrapper, [one], "_rw_reference", model.device)
            chosen.append(one)
        except NoBodyError as error:
            why.append(str(error))
    edited, nodes = replaced_in_package(wrapper, chosen, model.device)
    plan = Plan(edited.insertions, tuple(x.launch for x in chosen), (), (), ())
    source, plain = edited.source, wrapper.plain.data
    result = Instrumented(wrapper.path, source, plain, plan, selection_of(chosen))
    with patch.begin(package, check=False, runs_here=True) as begun:
        patch.rebuild([Probed(model, result, operators=tuple(nodes))], made, begun)
    assert patch.restore(made, back)
    assert back.read_bytes() == path.read_bytes()
    assert all(map(is_close, *(left_by(x, exported.inputs) for x in (path, made))))
    return why


def left_by(package: Path, inputs: Sequence[Any]) -> list[torch.Tensor]:
    """What a call of a package returns, and its inputs after it."""
    given = copy.deepcopy(list(inputs))
    torch.manual_seed(7)
    with torch.no_grad():
        outputs = load_model(package)(*given)
    return _tensors(torch.utils._pytree.tree_leaves(outputs), given)


def is_close(one: torch.Tensor, other: torch.Tensor) -> bool:
    if not one.numel() or not (one.is_floating_point() or one.is_complex()):
        return bool(one.eq(other).all())
    far = _FAR.get(one.dtype, 1e-4)
    wide, right = (x.to(torch.complex128).nan_to_num(7.0) for x in (other, one))
    return bool(((wide - right).abs() <= far * (1 + right.abs().max())).all())


def _tensors(*values: Any) -> list[torch.Tensor]:
    return [x for some in values for x in some if isinstance(x, torch.Tensor)]


def _lies(one: torch.Tensor) -> tuple[Any, ...]:
    return one.shape, one.dtype, one.stride()
