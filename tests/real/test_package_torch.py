"""What programs do with packages, after PyTorch's own tests of them: the same with probes.

The cases are those of `test/inductor/test_aot_inductor_package.py` that are about using a package.
Each does the same with a plain package and with its patched one, in a process of its own. Other
packages and weights on disk are in `test_packages.py`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from capture import Exported, Packaged, package_exported
from harness import Apart, Outcome
from models import MLP, MODELS, Case
from packages import call_model, load_model
from rewriter.cli import main

pytestmark = pytest.mark.usefixtures("warm_python")

# `[rewriter 0] call 1 #0 after  cpp_fused_add_0  out buf0  ...`, and the names without values.
PREFIX = re.compile(r"\[rewriter 0\] ((\w+ \S+ )?call \d+ )?#")
LAUNCHES = 5
CONSTANTS = ["down.bias", "down.weight", "norm.bias", "norm.weight", "up.bias", "up.weight"]
Args = tuple[Any, ...]
Use = Callable[..., Any]


@pytest.fixture(scope="module")
def packages(
    exported: Callable[..., Exported], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Packaged, Path]:
    """A package with the same model twice, and the patched one."""
    folder = tmp_path_factory.mktemp("packages")
    models = dict.fromkeys(("prefill", "model"), exported("mlp"))
    plain, patched = package_exported(models, folder / "plain.pt2"), folder / "patched.pt2"
    assert main(["instrument", str(plain.path), "--probe", "names", "-o", str(patched)]) == 0
    return plain, patched


@pytest.fixture
def use(apart: Apart, packages: tuple[Packaged, Path]) -> Use:
    """`use(function, *args, calls=1)` does the same with both packages, and requires the same of
    both, and a line of each launch of the calls: what it made of them."""

    def both(function: Callable[..., Any], *args: Any, calls: int = 0) -> Any:
        plain, patched = (apart(function, x, *args) for x in (packages[0].path, packages[1]))
        assert plain.outcome == patched.outcome
        assert plain.out == ""
        assert "rewriter" not in patched.err
        lines = patched.out.splitlines()
        assert all(PREFIX.match(line) for line in lines)
        assert len(lines) == calls * LAUNCHES
        return patched.outcome

    return both


@pytest.fixture
def args(packages: tuple[Packaged, Path]) -> Args:
    return packages[0].inputs["model"]


def is_eager(outcome: Outcome, case: Case) -> bool:
    """Whether the first output is what the module itself gives, up to rounding."""
    with torch.no_grad():
        expected = torch.utils._pytree.tree_leaves(case.fn(*case.inputs))[0]
    _, shape, _, data = outcome.outputs[0]
    actual = torch.frombuffer(bytearray(data), dtype=expected.dtype).reshape(shape)
    return torch.allclose(actual, expected, atol=1e-6)


def once(path: Path, args: Args, model: str) -> Outcome:
    return call_model(load_model(path, model), args)


@pytest.mark.parametrize("model", ["prefill", "model"])
def test_results(model: str, args: Args, use: Use) -> None:
    assert is_eager(use(once, args, model, calls=1), MODELS["mlp"]("cpu"))


def facts(path: Path) -> tuple[dict[str, str], list[str]]:
    model = load_model(path)
    return model.get_metadata(), sorted(model.get_constant_fqns())


def test_metadata_and_names_of_constants(use: Use) -> None:
    metadata, names = use(facts)
    assert metadata["AOTI_DEVICE_KEY"] == "cpu"
    assert names == CONSTANTS


def other_constants() -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    return {name: value.clone().detach() for name, value in MLP().state_dict().items()}


def exchange(path: Path, args: Args, user_managed: bool) -> list[Outcome]:
    """Call, exchange all constants, call; then change them in place, and call again."""
    model, constants = load_model(path), other_constants()
    outcomes = [call_model(model, args)]
    model.load_constants(constants, check_full_update=True, user_managed=user_managed)
    outcomes.append(call_model(model, args))
    for value in constants.values():
        value.mul_(2)
    return [*outcomes, call_model(model, args)]


@pytest.mark.parametrize("user_managed", [False, True], ids=["copied", "user-managed"])
def test_other_constants(user_managed: bool, args: Args, use: Use) -> None:
    """Only what the user manages changes with the user's own tensors."""
    first, second, third = use(exchange, args, user_managed, calls=3)
    assert first.outputs != second.outputs
    assert (second.outputs != third.outputs) == user_managed
    torch.manual_seed(3)
    assert is_eager(second, Case(MLP(), args))


def exchange_one(path: Path, args: Args, constants: dict[str, torch.Tensor]) -> list[Outcome]:
    model = load_model(path)
    before = call_model(model, args)
    model.load_constants(constants, check_full_update=False)
    return [before, call_model(model, args)]


def test_one_other_constant(args: Args, use: Use) -> None:
    known: Any = MODELS["mlp"]("cpu").fn
    zeros = {"down.weight": torch.zeros_like(known.down.weight)}
    before, after = use(exchange_one, args, zeros, calls=2)
    assert before.outputs != after.outputs
    module: nn.Module = MLP()
    module.load_state_dict({**known.state_dict(), **zeros})
    assert is_eager(after, Case(module, args))


def missing(path: Path) -> str:
    try:
        load_model(path, "missing")
    except RuntimeError as error:
        # The files of the package follow, which differ.
        return "".join(str(error).partition("'missing'")[:2])
    return ""


def test_a_name_that_no_model_has(use: Use) -> None:
    assert "missing" in use(missing)


def from_buffer(path: Path, args: Args) -> Outcome:
    return call_model(torch._inductor.aoti_load_package(io.BytesIO(path.read_bytes())), args)


def single_threaded(path: Path, args: Args) -> Outcome:
    model = torch._inductor.aoti_load_package(str(path), run_single_threaded=True)
    return call_model(model, args)


def several_runners(path: Path, args: Args) -> list[Outcome]:
    from torch._inductor.package import load_package

    model = load_package(str(path), num_runners=2)
    return [call_model(model, args) for _ in range(4)]


def threads(path: Path, args: Args) -> list[Args]:
    """Calls from several threads at a time: no random state, which they share."""
    from torch._inductor.package import load_package

    model = load_package(str(path), num_runners=4)
    with ThreadPoolExecutor(4) as pool:
        results = pool.map(lambda _: call_model(model, args), range(40))
        return [outcome.outputs for outcome in results]


@pytest.mark.parametrize(
    ("function", "calls"),
    [(from_buffer, 1), (single_threaded, 1), (several_runners, 4), (threads, 40)],
)
def test_ways_to_load_and_call(
    function: Callable[..., Any], calls: int, args: Args, use: Use
) -> None:
    """Each line is whole."""
    use(function, args, calls=calls)


def two_loads(path: Path, args: Args) -> list[Outcome]:
    """The constants of one are not those of the other; one stays when the other is gone."""
    first, second = load_model(path), load_model(path)
    second.load_constants(other_constants(), check_full_update=True)
    outcomes = [call_model(model, args) for model in (first, second, first)]
    del second
    return [*outcomes, call_model(first, args)]


def test_two_loads(args: Args, use: Use) -> None:
    first, second, third, last = use(two_loads, args, calls=4)
    assert first == third == last
    assert first.outputs != second.outputs
