"""What programs do with packages, after PyTorch's own tests of them: the same with probes.

The cases are those of `test/inductor/test_aot_inductor_package.py` that are about using a package.
Each does the same with a plain package and with its patched one, in a process of its own.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from capture import Exported, Packaged, package_case, package_cases, package_exported
from harness import Apart, Outcome
from models import MLP, MODELS, Case
from packages import call_model, load_model
from rewriter.cli import main

pytestmark = pytest.mark.usefixtures("warm_python")

# `[rewriter 0] call 1 #0 after  cpp_fused_add_0  out buf0  ...`, and the names without values.
PREFIX = re.compile(r"\[rewriter 0\] ((\w+ \S+ )?call \d+ )?#")


class Add(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


class Scaled(nn.Module):
    """A linear layer, a parameter and a buffer that are used as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 16)
        self.scale = nn.Parameter(torch.randn(16))
        self.register_buffer("offset", torch.randn(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x)) * self.scale + self.offset


def add() -> Case:
    torch.manual_seed(0)
    return Case(Add(), (torch.randn(3, 5), torch.randn(3, 5)))


def scaled() -> Case:
    torch.manual_seed(0)
    return Case(Scaled(), (torch.randn(4, 8),))


def mlp() -> Case:
    return MODELS["mlp"]("cpu")


@dataclass(frozen=True)
class Model:
    """What a package has for a model, and what is known of it."""

    case: Callable[[], Case]
    module: type[nn.Module]
    launches: int
    zeroed: str  # one of its constants
    constants: tuple[str, ...]


# The models that most tests are about.
KNOWN = {
    "mlp": Model(
        mlp,
        MLP,
        5,
        "down.weight",
        ("down.bias", "down.weight", "norm.bias", "norm.weight", "up.bias", "up.weight"),
    ),
    "methods": Model(
        scaled, Scaled, 2, "scale", ("linear.bias", "linear.weight", "offset", "scale")
    ),
}


@dataclass(frozen=True)
class Pair:
    """The same package plain and patched, and the inputs of its models."""

    plain: Packaged
    path: Path

    def args(self, model: str = "model") -> tuple[Any, ...]:
        return self.plain.inputs[model]


@dataclass(frozen=True)
class Both:
    """What a function made of either package, and what the patched one printed."""

    plain: Any
    patched: Any
    lines: list[str] = field(default_factory=list)


Use = Callable[..., Both]


@pytest.fixture(scope="module")
def pair(
    exported: Callable[..., Exported], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Pair]:
    """`pair("linear")` is one of the packages below, patched; each is made once."""
    disk = {
        "aot_inductor.package_constants_in_so": False,
        "aot_inductor.package_constants_on_disk_format": "pickle_weights",
    }
    said = {"aot_inductor.metadata": {"author": "somebody", "purpose": "a test"}}
    makers: dict[str, Callable[[Path], Packaged]] = {
        # What other tests have exported and built, twice.
        "mlp": lambda path: package_exported(
            dict.fromkeys(("prefill", "model"), exported("mlp")), path
        ),
        "add": lambda path: package_case(add(), path),
        "linear": lambda path: package_case(scaled(), path, **said),
        "on disk": lambda path: package_case(scaled(), path, **disk),
        "methods": lambda path: package_cases(
            {"prefill": add(), "model": replace(scaled(), config=said)},
            path,
            path.parent / "models",
        ),
    }
    done: dict[str, Pair] = {}

    def get(name: str) -> Pair:
        if name not in done:
            folder = tmp_path_factory.mktemp("pair")
            plain = makers[name](folder / "plain.pt2")
            patched = folder / "patched.pt2"
            command = ["instrument", plain.path, "--probe", "names", "-o", patched, "--json"]
            assert main(list(map(str, command))) == 0
            done[name] = Pair(plain, patched)
        return done[name]

    return get


@pytest.fixture
def use(apart: Apart) -> Use:
    """Do the same with both packages, and require the same of both."""

    def both(function: Callable[..., Any], pair: Pair, *args: Any) -> Both:
        plain, patched = (apart(function, path, *args) for path in (pair.plain.path, pair.path))
        assert plain.outcome == patched.outcome
        assert plain.out == ""
        assert "rewriter" not in patched.err
        lines = patched.out.splitlines()
        assert all(PREFIX.match(line) for line in lines)
        return Both(plain.outcome, patched.outcome, lines)

    return both


def once(path: Path, args: tuple[Any, ...], model: str, pickled: bool) -> Outcome:
    return call_model(load_model(path, model, pickled=pickled), args)


def is_eager(outcome: Outcome, case: Case) -> bool:
    """Whether the first output is what the module itself gives, up to rounding."""
    with torch.no_grad():
        expected = torch.utils._pytree.tree_leaves(case.fn(*case.inputs))[0]
    _, shape, _, data = outcome.outputs[0]
    actual = torch.frombuffer(bytearray(data), dtype=expected.dtype).reshape(shape)
    return torch.allclose(actual, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "model", "case", "launches"),
    [
        pytest.param("add", "model", add, 1, marks=pytest.mark.exhaustive),
        pytest.param("linear", "model", scaled, 2, marks=pytest.mark.exhaustive),
        pytest.param("on disk", "model", scaled, 2, marks=pytest.mark.exhaustive),
        pytest.param("methods", "prefill", add, 1, marks=pytest.mark.exhaustive),
        pytest.param("methods", "model", scaled, 2, marks=pytest.mark.exhaustive),
        ("mlp", "prefill", mlp, 5),
        ("mlp", "model", mlp, 5),
    ],
    ids=[
        "add",
        "linear",
        "weights on disk",
        "first of two methods",
        "second of two methods",
        "first of a model twice",
        "second of a model twice",
    ],
)
def test_results(
    name: str,
    model: str,
    case: Callable[[], Case],
    launches: int,
    pair: Callable[[str], Pair],
    use: Use,
) -> None:
    made = pair(name)
    both = use(once, made, made.args(model), model, name == "on disk")
    assert len(both.lines) == launches
    assert is_eager(both.patched, case())


each_package = pytest.mark.parametrize(
    "name", ["mlp", pytest.param("methods", marks=pytest.mark.exhaustive)]
)


def metadata(path: Path) -> dict[str, str]:
    said: dict[str, str] = load_model(path).get_metadata()
    return said


@each_package
def test_metadata(name: str, pair: Callable[[str], Pair], use: Use) -> None:
    both = use(metadata, pair(name))
    own = {"author": "somebody", "purpose": "a test"} if name == "methods" else {}
    assert own.items() <= both.patched.items()
    assert both.patched["AOTI_DEVICE_KEY"] == "cpu"


def names_of_constants(path: Path) -> list[str]:
    return sorted(load_model(path).get_constant_fqns())


@each_package
def test_names_of_constants(name: str, pair: Callable[[str], Pair], use: Use) -> None:
    both = use(names_of_constants, pair(name))
    assert both.patched == list(KNOWN[name].constants)


def other_constants(module: type[nn.Module]) -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    return {name: value.clone().detach() for name, value in module().state_dict().items()}


def exchange(
    path: Path, args: tuple[Any, ...], module: type[nn.Module], user_managed: bool
) -> list[Outcome]:
    """Call, exchange all constants, call; then change them in place, and call again."""
    model, constants = load_model(path), other_constants(module)
    outcomes = [call_model(model, args)]
    model.load_constants(constants, check_full_update=True, user_managed=user_managed)
    outcomes.append(call_model(model, args))
    for value in constants.values():
        value.mul_(2)
    return [*outcomes, call_model(model, args)]


@each_package
@pytest.mark.parametrize("user_managed", [False, True], ids=["copied", "user-managed"])
def test_other_constants(
    user_managed: bool, name: str, pair: Callable[[str], Pair], use: Use
) -> None:
    """Only what the user manages changes with the user's own tensors."""
    made = pair(name)
    known = KNOWN[name]
    both = use(exchange, made, made.args(), known.module, user_managed)
    assert len(both.lines) == 3 * known.launches
    first, second, third = both.patched
    assert first.outputs != second.outputs
    assert (second.outputs != third.outputs) == user_managed
    torch.manual_seed(3)
    assert is_eager(second, Case(known.module(), made.args()))


def exchange_one(
    path: Path, args: tuple[Any, ...], constants: dict[str, torch.Tensor]
) -> list[Outcome]:
    model = load_model(path)
    before = call_model(model, args)
    model.load_constants(constants, check_full_update=False)
    return [before, call_model(model, args)]


@each_package
def test_one_other_constant(name: str, pair: Callable[[str], Pair], use: Use) -> None:
    made = pair(name)
    known = KNOWN[name]
    state = known.case().fn.state_dict()  # type: ignore[attr-defined]
    zeros = {known.zeroed: torch.zeros_like(state[known.zeroed])}
    before, after = use(exchange_one, made, made.args(), zeros).patched
    assert before.outputs != after.outputs
    module = known.module()
    module.load_state_dict({**state, **zeros})
    assert is_eager(after, Case(module, made.args()))


def missing(path: Path) -> str:
    try:
        load_model(path, "missing")
    except RuntimeError as error:
        # The files of the package follow, which differ.
        return "".join(str(error).partition("'missing'")[:2])
    return ""


@each_package
def test_a_name_that_no_model_has(name: str, pair: Callable[[str], Pair], use: Use) -> None:
    assert "missing" in use(missing, pair(name)).patched


def from_buffer(path: Path, args: tuple[Any, ...]) -> Outcome:
    return call_model(torch._inductor.aoti_load_package(io.BytesIO(path.read_bytes())), args)


@each_package
def test_from_a_buffer(name: str, pair: Callable[[str], Pair], use: Use) -> None:
    made = pair(name)
    assert len(use(from_buffer, made, made.args()).lines) == KNOWN[name].launches


def several_runners(path: Path, args: tuple[Any, ...]) -> list[Outcome]:
    from torch._inductor.package import load_package

    model = load_package(str(path), num_runners=2)
    return [call_model(model, args) for _ in range(4)]


@each_package
def test_more_runners_than_one(name: str, pair: Callable[[str], Pair], use: Use) -> None:
    made = pair(name)
    assert len(use(several_runners, made, made.args()).lines) == 4 * KNOWN[name].launches


def threads(path: Path, args: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Calls from several threads at a time: no random state, which they share."""
    from concurrent.futures import ThreadPoolExecutor

    from torch._inductor.package import load_package

    model = load_package(str(path), num_runners=4)
    with ThreadPoolExecutor(4) as pool:
        results = pool.map(lambda _: call_model(model, args), range(40))
        return [outcome.outputs for outcome in results]


@each_package
def test_calls_from_several_threads(name: str, pair: Callable[[str], Pair], use: Use) -> None:
    """Each line is whole."""
    made = pair(name)
    assert len(use(threads, made, made.args()).lines) == 40 * KNOWN[name].launches


def single_threaded(path: Path, args: tuple[Any, ...]) -> Outcome:
    model = torch._inductor.aoti_load_package(str(path), run_single_threaded=True)
    return call_model(model, args)


@each_package
def test_single_threaded(name: str, pair: Callable[[str], Pair], use: Use) -> None:
    made = pair(name)
    assert len(use(single_threaded, made, made.args()).lines) == KNOWN[name].launches


def two_loads(path: Path, args: tuple[Any, ...], module: type[nn.Module]) -> list[Outcome]:
    """The constants of one are not those of the other; one stays when the other is gone."""
    first, second = load_model(path), load_model(path)
    second.load_constants(other_constants(module), check_full_update=True)
    outcomes = [call_model(model, args) for model in (first, second, first)]
    del second
    return [*outcomes, call_model(first, args)]


@each_package
def test_two_loads(name: str, pair: Callable[[str], Pair], use: Use) -> None:
    made = pair(name)
    both = use(two_loads, made, made.args(), KNOWN[name].module)
    first, second, third, last = both.patched
    assert first == third == last
    assert first.outputs != second.outputs
    assert len(both.lines) == 4 * KNOWN[name].launches
