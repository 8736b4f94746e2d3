"""Fragments of real Triton kernels, evaluated by themselves: no GPU is needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from graph_calls import saved_row
from rewriter.artifact.opening import open_artifact
from rewriter.core.types import Phase
from rewriter.diagnosis.verification.bounded import Bounded, UncheckedError, exact
from rewriter.diagnosis.verification.evaluate import Evaluator
from rewriter.diagnosis.verification.fragments import check_fragment
from rewriter.diagnosis.verification.graph_types import TensorType, tensor_type
from rewriter.diagnosis.verification.received import LaunchValues
from rewriter.dump.documents import RunFacts
from rewriter.dump.reading import RunDump
from rewriter.dump.rows import TensorRow
from rewriter.locate.types import Argument, Launch
from rewriter.model_names.fragment import fragments, parse_fragment, with_items
from rewriter.model_names.graph import FxGraph, FxNode

_ARTIFACTS = Path(__file__).parents[3] / "fixtures" / "artifacts" / "cuda-torch2.11"


def _agree(graph: FxGraph, values: LaunchValues) -> list[bool]:
    """Whether the results of a launch agree with its fragment, by the names of its arguments."""
    return [one.comparison.agrees for one in check_fragment(graph, values)]


def _launches(model: str) -> Iterator[tuple[FxGraph, Launch]]:
    for file in sorted((_ARTIFACTS / model / "python").glob("*.py")):
        wrapper = open_artifact(file).only
        by_kernel = fragments(wrapper.plain.data.decode())
        for launch in wrapper.launches:
            if launch.kernel in by_kernel:
                yield by_kernel[launch.kernel], launch


def _filled(kind: TensorType) -> torch.Tensor:
    shape = [one or 4 for one in kind.shape]
    if kind.dtype.is_floating_point:
        return torch.rand(shape, dtype=torch.float32).to(kind.dtype) + 0.5
    return torch.randint(0, 2, shape).to(kind.dtype)


def _record(graph: FxGraph, launch: Launch, folder: Path) -> LaunchValues:
    """Put a launch, and what its fragment makes of random numbers, into a dump."""
    run = RunDump(folder, 0, 0, RunFacts())
    given: dict[str, TensorRow] = {}
    written: dict[str, TensorRow] = {}
    sizes = {"s77": 4, "s27": 4, "u0": 4, "s0": 4}
    full = with_items(graph)
    names = [x for x in full.types if x not in full.outputs]
    tensors = {x.name: x for x in launch.args if x.type == "tensor"}
    read = [x for x in tensors.values() if x.role != "out"]
    values: dict[str, Bounded] = {}
    for name, argument in _paired(names, read):
        kind = tensor_type(full.types[name], sizes)
        assert kind is not None
        tensor = _filled(kind)
        values[name] = exact(tensor)
        given[argument.name] = _row(run, argument, tensor, "before")
    evaluator = Evaluator(full, values, sizes)
    outputs = list(full.outputs)
    for argument in tensors.values():
        if argument.role == "in":
            continue
        name = outputs.pop(0) if argument.role == "inout" else outputs.pop()
        value = evaluator.value(name)
        written[argument.name] = _row(run, argument, value.value.to(value.dtype), "after")
    return LaunchValues(run, launch, given, written)


def _paired(names: list[str], read: list[Argument]) -> list[tuple[str, Argument]]:
    """Arguments by the names that the fragment has for the first launch of the kernel."""
    known = {x.buffer: x for x in read}
    pairs = [(name, known.pop(name)) for name in names if name in known]
    rest = [name for name in names if name not in {one for one, _ in pairs}]
    return pairs + list(zip(rest, known.values(), strict=True))


def _row(run: RunDump, argument: Argument, tensor: torch.Tensor, phase: Phase) -> TensorRow:
    about = {"launch": 0, "role": argument.role, "device": "cuda:0"}
    return saved_row(run.path, argument.name, tensor, phase, **about)


@pytest.mark.parametrize("model", ["gpt", "mlp", "mlp_dyn"])
def test_launches_agree_with_their_fragments_and_a_wrong_element_does_not(
    model: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    checked = set()
    for graph, launch in _launches(model):
        if launch.kernel in checked:
            continue
        checked.add(launch.kernel)
        folder = tmp_path / launch.kernel
        folder.mkdir()
        recorded = _record(graph, launch, folder)
        assert all(_agree(graph, recorded)), launch.kernel
        row = list(recorded.written.values())[-1]
        tensor = torch.load(folder / row.file)
        tensor.reshape(-1)[0] += 0.01
        torch.save(tensor, folder / row.file)
        assert not all(_agree(graph, recorded)), launch.kernel
    assert len(checked) >= 2


def test_a_fragment_is_read_as_a_graph() -> None:
    graph = parse_fragment(
        """#   %arg0_1 : Tensor "f32[8, s0][s0, 1]cuda:0" = PlaceHolder[target=arg0_1]
#   %iota : Tensor "i64[8][1]cuda:0"[num_users=1] = call_function[target=torch.ops.prims.iota.default](args = (8,), kwargs = {start: 0, step: 1, dtype: torch.int64, device: cuda:0, requires_grad: False})
#   %sort : [num_users=2] = call_function[target=torch.ops.aten.sort.default](args = (%arg0_1, 0), kwargs = {})
#   return %getitem,%iota"""  # noqa: E501
    )
    assert graph.outputs == ("getitem", "iota")
    assert graph.types == {"arg0_1": "f32[8, s0][s0, 1]cuda:0"}
    assert graph.nodes["iota"].call == (
        "prims.iota.default(8, start=0, step=1, dtype=torch.int64, "
        "device=device(type='cuda', index=0), requires_grad=False)"
    )
    assert graph.nodes["sort"].reads == ("arg0_1",)
    assert with_items(graph).nodes["getitem"].item == 0


def _of_text(
    text: str,
    given: dict[str, torch.Tensor],
    written: dict[str, torch.Tensor],
    folder: Path,
    sizes: dict[str, int],
    numbers: frozenset[str] = frozenset(),
) -> list[bool]:
    """As `_agree`, of a launch in front of whose kernel this fragment stands; of the tensors that
    it is given, `numbers` are passed as numbers."""
    roles = {**dict.fromkeys(given, "in"), **dict.fromkeys(written, "out")}
    kinds = {x: "other" if x in numbers else "tensor" for x in roles}
    args: Any = tuple(Argument(x, x, x, role, kinds[x]) for x, role in roles.items())  # type: ignore[arg-type]
    launch = Launch(0, "", "triton_poi_fused_0", "triton", 1, args, (), (), None)  # type: ignore[arg-type]
    by_name = {x.name: x for x in args}
    run = RunDump(folder, 0, 0, RunFacts())
    before = {x: _row(run, by_name[x], tensor, "before") for x, tensor in given.items()}
    after = {x: _row(run, by_name[x], tensor, "after") for x, tensor in written.items()}
    graph = parse_fragment(text)
    found = check_fragment(graph, LaunchValues(run, launch, before, after), sizes)
    return [one.agrees for one in found]


def test_sizes_of_the_call_are_known(tmp_path: Path) -> None:
    """A size that no tensor has by itself is one of the call; of another size, nothing is said of
    what the kernel computes. Least of all is it a copy of what it is given."""
    text = """#   %mm : Tensor "f32[s52*s27, 6][6, 1]cuda:0" = PlaceHolder[target=mm]
#   %arg5_1 : Tensor "f64[][]cpu" = PlaceHolder[target=arg5_1]
#   %view : Tensor "f32[s52, s27, 6][6*s27, 6, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.reshape.default](args = (%mm, [%arg0_1, %arg1_1, 6]), kwargs = {})
#   %permute : Tensor "f32[s52, 6, s27][6*s27, 1, 6]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.permute.default](args = (%view, [0, 2, 1]), kwargs = {})
#   %mul : Tensor "f32[s52, 6, s27][6*s27, 1, 6]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%permute, %arg5_1), kwargs = {})
#   return %mul"""  # noqa: E501
    x = torch.randn(8, 6)
    given = {"buf0": x, "arg5_1": torch.tensor(2.0, dtype=torch.float64)}
    made = (2 * x.reshape(2, 4, 6)).permute(0, 2, 1).contiguous()
    sizes = {"arg0_1": 2, "s52": 2, "arg1_1": 4, "s27": 4}
    about = (text, given, {"buf1": made}, tmp_path)
    assert _of_text(*about, sizes, frozenset({"arg5_1"})) == [True]
    wrong = (text, given, {"buf1": made + 1}, tmp_path)
    assert _of_text(*wrong, sizes, frozenset({"arg5_1"})) == [False]
    with pytest.raises(UncheckedError):
        _of_text(*about, {})


def test_what_prepares_a_call_of_the_program_is_torchs_part(tmp_path: Path) -> None:
    """The part names a value as the graph does, which the launch has as a buffer of a kernel of the
    program, and the call behind it, which reads a value that this launch does not."""
    text = """#   %buf1 : Tensor  = PlaceHolder[target=buf1]
#   %sin : Tensor "f32[8][1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.sin.default](args = (%empty,), kwargs = {})
#   %mix : Tensor "f32[8][1]cuda:0"[num_users=1] = call_function[target=torch.ops.mine.mix.default](args = (%sin, %arg1_1), kwargs = {})
#   return %buf4"""  # noqa: E501
    x = torch.randn(8)
    assert _of_text(text, {"buf0": x}, {"buf4": x.sin()}, tmp_path, {}) == [True]
    with pytest.raises(UncheckedError, match="buf4 is not sin"):  # it may be another value
        _of_text(text, {"buf0": x}, {"buf4": x}, tmp_path, {})


def _launched(
    model: str,
    kernel: str,
    given: dict[str, torch.Tensor],
    written: dict[str, torch.Tensor],
    folder: Path,
    **numbers: int,
) -> list[bool]:
    """As `_agree`, of a launch of a model that is given these tensors."""
    graph, launch = next(x for x in _launches(model) if x[1].kernel.endswith(kernel))
    run = RunDump(folder, 0, 0, RunFacts())
    by_name = {x.name: x for x in launch.args}
    before = {x: _row(run, by_name[x], tensor, "before") for x, tensor in given.items()}
    after = {x: _row(run, by_name[x], tensor, "after") for x, tensor in written.items()}
    return _agree(graph, LaunchValues(run, launch, before, after, numbers))


def test_elements_that_are_added_are_added_to_what_was_there(tmp_path: Path) -> None:
    """Of a kernel of atomic additions, the placeholder and the node have one name."""
    index = torch.randint(0, 16, (4, 8))
    added, zeros, base = torch.randn(4, 8), torch.zeros(16, 8), torch.randn(16, 8)
    given = {"arg1_1": index, "arg2_1": added, "buf0": zeros, "buf4": base}
    put = base.index_put((index[:, 0],), added, accumulate=True)
    right = {"buf0": zeros.scatter_add(0, index, added), "buf4": put}
    names = ("scatter", "index_put_scatter_add_select_zeros_2")
    assert _launched(*names, given, right, tmp_path) == [True, True]
    assert _launched(*names, given, {**right, "buf4": put + 1}, tmp_path) == [True, False]


def test_an_input_that_is_changed_is_what_the_graph_copies_to_it(tmp_path: Path) -> None:
    """It has no name of its own in what the fragment returns; left as it was, it is wrong."""
    x, y = torch.randn(8), torch.randn(4, 8)
    given, made = {"arg0_1": x, "arg1_1": y}, x + y.sum(0)
    names = ("mutate", "add_copy__sum_0")
    assert _launched(*names, given, {"buf0": made, "arg0_1": made}, tmp_path) == [True, True]
    assert _launched(*names, given, {"buf0": made, "arg0_1": x}, tmp_path) == [False, True]


def test_a_result_that_the_fragment_has_no_node_for_is_not_taken_for_another(
    tmp_path: Path,
) -> None:
    """What flex attention computes before its backward template has the shape of a sum."""
    x, grads, logs = torch.randn(2, 4, 256, 64), torch.randn(2, 4, 256, 64), torch.randn(2, 4, 256)
    given = {"getitem": x, "tangents_1": grads, "getitem_1": logs}
    wrote = {"buf1": grads * (1 - torch.tanh(x) ** 2), "buf4": torch.randn(2, 4, 256)}
    kernel = "squeeze_sum_tanh_tanh_backward_unsqueeze_0"
    with pytest.raises(UncheckedError, match="flex_attention_backward"):
        _launched("flex_training", kernel, given, wrote, tmp_path)


def test_pooling_has_two_results_of_which_one_is_read(tmp_path: Path) -> None:
    x = torch.rand(2, 8, 8, 8).to(memory_format=torch.channels_last)
    mean = torch.nn.functional.max_pool2d(x, 2).mean((2, 3))
    names = ("conv", "max_pool2d_with_indices_mean_relu_5")
    assert _launched(*names, {"buf6": x}, {"buf8": mean}, tmp_path) == [True]
    assert _launched(*names, {"buf6": x}, {"buf8": mean * 1.01}, tmp_path) == [False]


def test_a_number_out_of_a_tensor_is_an_argument(tmp_path: Path) -> None:
    names = ("unbacked", "full_mul_2")
    wrote = {"buf11": torch.full((4,), 7.0)}
    with pytest.raises(UncheckedError):  # which of the two it is, is not known
        _launched(*names, {}, wrote, tmp_path, u1=7, u0=3)
    assert _launched(*names, {}, wrote, tmp_path, u1=7) == [True]
    assert _launched(*names, {}, wrote, tmp_path, u1=6) == [False]


def test_an_item_that_the_fragment_names_is_that_of_its_tuple() -> None:
    graph = parse_fragment(
        """#   %sort : [num_users=1] = call_function[target=torch.ops.aten.sort.default](args = (%x, 0), kwargs = {})
#   %getitem_1 : Tensor "i64[8][1]cuda:0"[num_users=1] = call_function[target=operator.getitem](args = (%sort, 1), kwargs = {})
#   return %getitem,%getitem_1"""  # noqa: E501
    )
    nodes = with_items(graph).nodes
    assert [(nodes[x].item, nodes[x].reads) for x in ("getitem", "getitem_1")] == [
        (0, ("sort",)),
        (1, ("sort",)),
    ]


def test_an_item_that_the_cpu_does_not_compute_is_not_known() -> None:
    """Such as the seed of attention on a GPU."""
    pair = FxNode("pair", "aminmax", ("x",), call="aten.aminmax.default(x)")
    graph = FxGraph({}, {"pair": pair, "seed": FxNode("seed", "getitem", ("pair",), None, 2)}, ())
    with pytest.raises(UncheckedError, match="seed is no result"):
        Evaluator(graph, {"x": exact(torch.ones(3))}).value("seed")
