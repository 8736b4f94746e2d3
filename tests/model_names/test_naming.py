"""Names of the model: what kernels compute and what inputs are, from graphs that torch left."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import dumps
import rewriter
from artifacts import get
from rewriter.cli import main
from rewriter.diagnosis import nonfinite
from rewriter.diagnosis.verdict_text import describe
from rewriter.dump import names as dumped
from rewriter.dump.reading import open_dump
from rewriter.execution.hook import naming
from rewriter.model_names import trace
from rewriter.model_names.attribution import attribute, values_of
from rewriter.model_names.graph import parse
from rewriter.model_names.names import model_name, of_artifact, of_wrapper

TRACES = Path(__file__).parents[2] / "fixtures" / "traces"
NAMED = TRACES / "log-names"
GRAPH = """class GraphModule(torch.nn.Module):
    def forward(
        self,
        primals_1: "f32[4][1]cpu",  # PlainAOTInput(idx=0)
        primals_2: "f32[4]",  # ParamAOTInput(target='lin.weight')
        primals_3: "Sym(s33)",
    ):
        # File: /home/user/model.py:3 in forward, code: y = x.log(), 1
        log: "f32[4]" = torch.ops.aten.log.default(primals_1);  primals_1 = None
        add: "f32[4]" = torch.ops.aten.add.Tensor(log, 1)

        # No stacktrace found for following nodes
        topk = torch.ops.aten.topk.default(add, 3)
        getitem: "f32[3]" = topk[0];  topk = None
        # File: /home/user/model.py:3 in forward, code: y = x.log(), 1
        neg: "f32[4]" = -add
        return (getitem, None, neg)
"""


def test_a_graph_is_read() -> None:
    graph = parse(GRAPH)
    assert graph
    assert dict(graph.inputs) == {
        "primals_1": "PlainAOTInput(idx=0)",
        "primals_2": "ParamAOTInput(target='lin.weight')",
        "primals_3": "",
    }
    nodes = graph.nodes
    assert [(x.name, x.operator, x.reads) for x in nodes.values()] == [
        ("log", "log", ("primals_1",)),
        ("add", "add", ("log",)),
        ("topk", "topk", ("add",)),
        ("getitem", "getitem", ("topk",)),
        ("neg", "", ("add",)),
    ]
    assert nodes["getitem"].item == 0
    assert nodes["topk"].place is None
    places = [nodes[name].place for name in ("add", "neg")]
    assert [(x.short, x.turn) for x in places if x] == [("model.py:3", 0), ("model.py:3", 1)]
    assert graph.outputs == ("getitem", "None", "neg")
    assert graph.first_use("primals_1") == nodes["log"].place


@pytest.mark.parametrize("text", ["", "def forward", "def forward(self):", "x" * 1000])
def test_what_is_no_graph(text: str) -> None:
    graph = parse(text)
    assert graph is None or not graph.nodes


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("L['self']._modules['blocks']._modules['1']._parameters['temp']", "blocks.1.temp"),
        ("L['self']._buffers['scale']", "scale"),
        ("L['x']", "x"),
        ("L['batch']['image']", "batch.image"),
        ("L['layers'][0].weight", "layers.0.weight"),
        ("G['w']", "w"),
        ("G['linear']._parameters['weight']", "linear.weight"),
        ("L['other']._parameters['weight']", "other.weight"),
        ("", ""),
    ],
)
def test_names_of_inputs(source: str, name: str) -> None:
    assert model_name(source) == name


def test_a_log_names_kernels_and_inputs() -> None:
    names = of_artifact(rewriter.open(NAMED))
    forward, backward = names["0_0_0/forward.py"], names["0_0_0/backward.py"]
    assert {index: forward.nodes[index] for index in (0, 2, 4, 6)} == {
        0: ("h",),
        2: ("h_1", "truediv", "x", "h_2"),
        4: ("h_1", "truediv", "x", "h_3", "truediv_1", "x_1"),
        6: ("mul", "log_softmax"),
    }
    given = {name: one.name for name, one in forward.inputs.items()}
    assert given["primals_3"] == "x"
    assert given["primals_11"] == "blocks.1.temp"
    assert given["primals_14"] == "scale"
    assert forward.inputs["primals_11"].at == "model.py:12"
    assert backward.inputs["primals_11"].name == "blocks.1.temp"
    assert backward.inputs["tangents_1"].name == "output_0.grad"
    assert backward.inputs["addmm"].at == "model.py:11"
    # The kernel of a line that stands in a loop: which of its turns is not known in a backward.
    assert backward.nodes[8] == ("model.py:10",)


def test_a_log_of_a_program_that_compiled_nothing(tmp_path: Path) -> None:
    """All came from the cache, and the wrappers had probes."""
    (log,) = NAMED.iterdir()
    text = log.read_bytes().replace(
        b'{"artifact": {"name": "inductor_post_grad_graph", "encoding": "string"}',
        b'{"inductor_post_grad_graph": {}',
    )
    assert text != log.read_bytes()
    (tmp_path / "a.log").write_bytes(text)
    assert of_artifact(rewriter.open(tmp_path)) == of_artifact(rewriter.open(NAMED))
    for wrapper in rewriter.open(NAMED).wrappers:
        probed = rewriter.instrument(replace(rewriter.open(NAMED), wrappers=(wrapper,))).source
        entry = b'{"inductor_output_code": {}, "frame_id": 0, "frame_compile_id": 0}'
        head = b"V1121 15:11:18.209000 1 torch/_inductor/graph.py:1] "
        line = head + entry + b"\n\t" + probed.replace(b"\n", b"\n\t") + b"\n"
        (tmp_path / "b.log").write_bytes(line)
        assert trace.digest(wrapper.source) in trace.read(tmp_path / "b.log")


@pytest.mark.parametrize("folder", ["debug", "log-python", "log-cpp", "log-names"])
def test_launches_have_source_nodes(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Of 66 launches 39 had some without the graphs; all have now."""
    assert main(["list", str(TRACES / folder), "--json"]) == 0
    launches = json.loads(capsys.readouterr().out)["launches"]
    without = [one for one in launches if not one["source_nodes"]]
    assert not without


def test_every_named_operation_is_what_torch_says() -> None:
    """The forward of `log-names`, as INDUCTOR_PROVENANCE=1 gives it (cppCodeToPost)."""
    artifact = rewriter.open(NAMED)
    wrapper = next(one for one in artifact.wrappers if one.graph == "forward")
    told = next(
        told
        for log in NAMED.iterdir()
        for key, told in trace.read(log).items()
        if key == trace.digest(wrapper.source)
    )
    graph = parse(told.lowered)
    assert graph
    found = attribute(wrapper.located.launches, wrapper.located.entries[0], graph)
    expected = {
        0: "var_mean rsqrt add add_1 mul_1 mul sub getitem_1",
        1: "addmm",
        2: "var_mean_1 add_3 div mul_4 mul_2 add_2 erf mul_3 rsqrt_1 add_4 add_5 mul_6 mul_5 sub_1 "
        "getitem_3",
        3: "addmm_1",
        4: "add_7 add_3 div mul_4 mul_2 add_2 erf mul_3 div_1 mul_9 mul_7 add_6 erf_1 mul_8",
        5: "addmm_2",
        6: "sub_2 mul_10 amax log sum_1 exp sub_3",
    }
    for index, nodes in expected.items():
        # An item of a tuple is no operation of its own.
        extra = {name for name in found[index] if graph.nodes[name].operator == "getitem"}
        assert set(found[index]) - extra == set(nodes.split()) - extra


USER_TRITON = """class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "f32[32, 8][8, 1]cuda:0", arg1_1: "f32[32, 8][8, 1]cuda:0"):
        # File: /home/user/model.py:20 in model, code: y = add(x, y.relu())
        relu: "f32[32, 8][8, 1]cuda:0" = torch.ops.aten.relu.default(arg1_1);  arg1_1 = None

        # File: /home/user/model.py:12 in add, code: out = torch.empty_like(x)
        empty: "f32[32, 8][8, 1]cuda:0" = torch.ops.aten.empty.memory_format([32, 8])

        # File: /home/user/model.py:14 in add, code: add_k[grid](x, y, out, n, 2.5)
        triton_kernel_wrapper_mutation_1 = torch.ops.higher_order.triton_kernel_wrapper_mutation(kernel_idx = 0, constant_args_idx = 0, grid = [(4, 1, 1)], tma_descriptor_metadata = {}, kwargs = {'in_ptr0': arg0_1, 'in_ptr1': relu, 'out_ptr': empty});  arg0_1 = relu = triton_kernel_wrapper_mutation_1 = None

        # File: /home/user/model.py:21 in model, code: z = mul(y + 1)
        add: "f32[32, 8][8, 1]cuda:0" = torch.ops.aten.add.Tensor(empty, 1);  empty = None
        empty_1: "f32[32, 8][8, 1]cuda:0" = torch.ops.aten.empty.memory_format([32, 8])

        # File: /home/user/model.py:17 in mul, code: mul_k[grid](x, out, n)
        triton_kernel_wrapper_mutation = torch.ops.higher_order.triton_kernel_wrapper_mutation(kernel_idx = 1, constant_args_idx = 1, grid = [(4, 1, 1)], tma_descriptor_metadata = {}, kwargs = {'in_ptr0': add, 'out_ptr': empty_1});  add = triton_kernel_wrapper_mutation = None

        # File: /home/user/model.py:22 in model, code: return z.sum(-1)
        sum_1: "f32[32][1]cuda:0" = torch.ops.aten.sum.dim_IntList(empty_1, [-1]);  empty_1 = None
        return (sum_1,)
"""  # noqa: E501


def test_kernels_of_the_user_have_their_lines() -> None:
    wrapper = rewriter.open(get("cuda-torch2.11/usertriton").path).only
    names = of_wrapper(wrapper.located, trace.CompilationTrace(lowered=USER_TRITON))
    lines = {index: [str(line) for line in known] for index, known in names.lines.items()}
    assert lines == {
        0: ["model.py:20 in model: y = add(x, y.relu())"],
        1: ["model.py:14 in add: add_k[grid](x, y, out, n, 2.5)"],
        2: ["model.py:21 in model: z = mul(y + 1)"],
        3: ["model.py:17 in mul: mul_k[grid](x, out, n)"],
        4: ["model.py:22 in model: return z.sum(-1)"],
    }


LIBRARY = "/usr/lib/python3/site-packages/torch/nn/attention/flex_attention.py"
FLEX = f"""class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "f32[2, 8][8, 1]cpu", arg1_1: "f32[2, 8]", arg2_1: "f32[2, 8]"):
        # File: {LIBRARY}:2462 in flex_attention, code: out, lse = flex_attention_hop(
        sdpa_score0 = self.sdpa_score0

        # File: /home/user/model.py:13 in model, code: q = q * 2
        mul: "f32[2, 8][8, 1]cpu" = torch.ops.aten.mul.Tensor(arg0_1, 2);  arg0_1 = None

        # File: {LIBRARY}:2462 in flex_attention, code: out, lse = flex_attention_hop(
        flex_attention = torch.ops.higher_order.flex_attention(mul, arg1_1, arg2_1, sdpa_score0);  mul = arg1_1 = arg2_1 = sdpa_score0 = None
        getitem_2: "f32[2, 8][8, 1]cpu" = flex_attention[0];  flex_attention = None

        # File: /home/user/model.py:15 in model, code: return out.relu()
        relu: "f32[2, 8][8, 1]cpu" = torch.ops.aten.relu.default(getitem_2);  getitem_2 = None
        return (relu,)
"""  # noqa: E501
FLEX_OF_DYNAMO = f"""class GraphModule(torch.nn.Module):
    def forward(self, L_q_: "f32[2, 8]", L_k_: "f32[2, 8]", L_v_: "f32[2, 8]"):
        # File: {LIBRARY}:2462 in flex_attention, code: out, lse = flex_attention_hop(
        score_mod_0 = self.score_mod_0
        flex_attention = torch.ops.higher_order.flex_attention(L_q_, L_k_, L_v_, score_mod_0)

    class score_mod_0(torch.nn.Module):
        def forward(self, child: "f32[]", child_1: "i32[]", child_2: "i32[]"):
            # File: /home/user/model.py:8 in score, code: return (s - (q - k)).log()
            sub: "i32[]" = child_1 - child_2
            return sub.log()
"""
FLEX_WRAPPER = """
from torch._inductor.async_compile import AsyncCompile
async_compile = AsyncCompile()
cpp_fused_mul_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''''')
cpp_fused_flex_attention_mul_1 = async_compile.cpp_pybinding(['const float*', 'const float*', 'const float*', 'float*'], r'''''')
cpp_fused_relu_2 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''''')
async_compile.wait(globals())

def call(args):
    arg0_1, arg1_1, arg2_1 = args
    args.clear()
    buf0 = empty_strided_cpu((2, 8), (8, 1), torch.float32)
    cpp_fused_mul_0(arg0_1, buf0)
    buf1 = empty_strided_cpu((2, 8), (8, 1), torch.float32)
    cpp_fused_flex_attention_mul_1(buf0, arg1_1, arg2_1, buf1)
    buf2 = empty_strided_cpu((2, 8), (8, 1), torch.float32)
    cpp_fused_relu_2(buf1, buf2)
    return (buf2, )
"""  # noqa: E501


def test_flex_attention_has_the_lines_of_what_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "output_code.py").write_text(FLEX_WRAPPER)
    located = rewriter.open(tmp_path / "output_code.py").only.located
    names = of_wrapper(located, trace.CompilationTrace(lowered=FLEX, dynamo=FLEX_OF_DYNAMO))
    lines = {index: [line.short for line in known] for index, known in names.lines.items()}
    assert lines == {
        0: ["model.py:13"],
        1: ["flex_attention.py:2462", "model.py:8"],
        2: ["model.py:15"],
    }


PART = """class <lambda>(torch.nn.Module):
    def forward(self, arg2_1: "f32[4, 16][16, 1]cpu"):
        arg1_1: "f32[16][1]cpu" = self._frozen_param1
        weight: "f32[16, 16][16, 1]cpu" = self._frozen_param3

        # File: /home/user/model.py:6 in model, code: return linear(x).log()
        _mkl_linear: "f32[4, 16][16, 1]cpu" = torch.ops.mkl._mkl_linear(arg2_1, weight, weight, arg1_1, 4)
        log: "f32[4, 16][16, 1]cpu" = torch.ops.aten.log.default(_mkl_linear);  _mkl_linear = None
        return (log,)
"""  # noqa: E501
PART_WRAPPER = """
from torch._inductor.async_compile import AsyncCompile
async_compile = AsyncCompile()
cpp_fused_addmm_log_0 = async_compile.cpp_pybinding(['float*', 'const float*'], r'''''')
async_compile.wait(globals())

def call(args):
    arg2_1, = args
    args.clear()
    buf0 = torch.ops.mkl._mkl_linear.default(arg2_1, _frozen_param3, _frozen_param3, None, 4)
    buf1 = buf0; del buf0  # reuse
    cpp_fused_addmm_log_0(buf1, _frozen_param1)
    return (buf1, )
"""


def test_a_call_without_the_bias_of_its_node_is_not_what_the_node_is(tmp_path: Path) -> None:
    """Inductor has the next kernel add the bias: what the call leaves is no value of the graph."""
    (tmp_path / "output_code.py").write_text(PART_WRAPPER)
    located = rewriter.open(tmp_path / "output_code.py").only.located
    graph = parse(PART)
    assert graph
    held = values_of(located.launches, located.entries[0], graph).held
    assert "_mkl_linear" not in held.values()
    assert held["buf0", 1] == "log"
    names = of_wrapper(located, trace.CompilationTrace(lowered=PART))
    assert [line.short for lines in names.lines.values() for line in lines] == 2 * ["model.py:6"]


def test_another_models_graph_names_nothing(tmp_path: Path) -> None:
    folder = next((TRACES / "debug").rglob("model__0_backward*"))
    wrapper = get("cpu-torch2.13/mlp").path
    shutil.copy(wrapper, tmp_path / "output_code.py")
    shutil.copy(folder / "fx_graph_readable.py", tmp_path)
    names = of_artifact(rewriter.open(tmp_path))
    assert not any(one.nodes for one in names.values())


def test_provenance_of_torch_comes_first(tmp_path: Path) -> None:
    folder = next((TRACES / "debug").rglob("model__0_forward*"))
    shutil.copytree(folder, tmp_path / "one")
    mappings = {
        "cppCodeToPost": {"cpp_fused_relu_0:2": ["relu"], "x": 3, "y:1": 4},
        "postToPre": {"relu": ["activation"]},
    }
    name = "inductor_provenance_tracking_node_mappings.json"
    (tmp_path / "one" / name).write_text(json.dumps(mappings))
    (names,) = of_artifact(rewriter.open(tmp_path)).values()
    assert names.nodes[1] == ("activation",)
    (tmp_path / "one" / name).write_text("[" * 100_000)
    (names,) = of_artifact(rewriter.open(tmp_path)).values()
    assert names.nodes[1] == ("relu",)


def test_damaged_logs_name_less(tmp_path: Path) -> None:
    (log,) = NAMED.iterdir()
    data = log.read_bytes()
    whole = trace.read(log)
    rng = random.Random(5)
    for number in range(40):
        at = rng.randrange(len(data))
        cut = data[:at] + (data[at + rng.randrange(2000) :] if number % 2 else b"")
        other = tmp_path / "x.log"
        other.write_bytes(cut)
        found = trace.read(other)
        assert len(found) <= len(whole)
        for told in found.values():
            parse(told.lowered)
            parse(told.dynamo)


def log_of(program: str, folder: Path) -> Path:
    """The log of TORCH_TRACE of a program, which has no kernels of its own to be compiled."""
    cache = str(folder / "cache")
    environment = {**os.environ, "TORCH_TRACE": str(folder), "TORCHINDUCTOR_CACHE_DIR": cache}
    (folder / "program.py").write_text(program)
    subprocess.run([sys.executable, str(folder / "program.py")], env=environment, check=True)
    (log,) = folder.glob("*.log")
    return log


AHEAD = """
import torch
from torch.fx.experimental.proxy_tensor import make_fx

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8, bias=False)
    def forward(self, x):
        return self.down(self.up(x))

x = torch.ones(8, 8)
with torch.no_grad():
    torch.compile(Model().forward, fullgraph=True).aot_compile(((x,), {}))
    torch._inductor.standalone_compile(make_fx(torch.mm)(x, x), [x, x])
"""


@pytest.mark.programs
@pytest.mark.usefixtures("warm_python", "vector_instructions")
def test_what_is_compiled_ahead_of_time_has_the_names_of_its_model(tmp_path: Path) -> None:
    """As vLLM does on a CPU: torch writes no frame for such a graph, which is that of the model.
    What is compiled by itself later in the process is not."""
    log = log_of(AHEAD, tmp_path)
    found = {}
    for wrapper in rewriter.open(log).wrappers:
        told = trace.read(log)[trace.digest(wrapper.source)]
        inputs = of_wrapper(wrapper.located, told).inputs.values()
        found[len(wrapper.launches)] = [one.name for one in inputs]
    assert found == {2: ["up.weight", "up.bias", "x", "down.weight"], 1: []}


PIECES = """
import torch
from torch._inductor.compile_fx import compile_fx
from torch.fx.passes.split_module import split_module

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)
    def forward(self, x):
        return self.down(self.up(x))

class Pieces(torch.fx.Interpreter):
    def call_module(self, target, args, kwargs):
        piece = self.fetch_attr(target)
        result = piece(*args)
        self.module.__dict__[target] = compile_fx(piece, list(args))
        return result

def backend(graph, given):
    calls = [node for node in graph.graph.nodes if node.op == "call_function"]
    whole = split_module(graph, None, lambda node: int(calls.index(node) > 0))
    Pieces(whole).run(*given)
    return whole

with torch.no_grad():
    torch.compile(Model(), backend=backend)(torch.ones(4, 8))
"""


@pytest.mark.programs
@pytest.mark.usefixtures("warm_python", "vector_instructions")
def test_a_piece_of_a_model_has_no_names_of_other_inputs(tmp_path: Path) -> None:
    """As SGLang does: its backend splits the graph and compiles each piece by itself."""
    log = log_of(PIECES, tmp_path)
    last = rewriter.open(log).wrappers[-1]
    told = trace.read(log)[trace.digest(last.source)]
    assert told.dynamo
    inputs = of_wrapper(last.located, told).inputs
    assert inputs
    assert {one.name for one in inputs.values()} == {""}


@pytest.fixture
def named_dump(tmp_path: Path) -> Path:
    """A dump of one call of the wrapper in `log-names`, as `rewriter run -- COMMAND` leaves it."""
    source = next(x for x in rewriter.open(NAMED).wrappers if x.graph == "forward").source
    path = tmp_path / "cache" / "ww" / "cwwforward.py"
    path.parent.mkdir(parents=True)
    path.write_bytes(source)
    given = [dumps.value("primals_6", nan=2)]
    launches = [
        dumps.launch(2, "cpp_fused_add_div_gelu_native_layer_norm_1", given, [dumps.value("buf7")])
    ]
    dump = dumps.write(tmp_path / "dump", launches, inputs=given, artifact=path.name)
    run = dump / "rank0" / "run0" / "run.json"
    digest = hashlib.sha256(source).hexdigest()
    run.write_text(json.dumps({**json.loads(run.read_text()), "sha256": digest}))
    naming.write(dump, [rewriter.open(path).only], NAMED, {})
    return dump


def test_a_dump_has_the_names(named_dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run,) = open_dump(named_dump).runs
    assert run.table[2].source_nodes == ("h_1", "truediv", "x", "h_2")
    assert run.names.inputs["primals_6"].name == "blocks.0.temp"
    main(["report", str(named_dump), "--json"])
    assert "truediv" in capsys.readouterr().out
    (verdict,) = nonfinite.search(named_dump).verdicts
    assert "  in    primals_6 (blocks.0.temp at model.py:12)  f32" in describe(
        verdict, next_command=""
    )


@pytest.mark.parametrize("text", ["", "[]", "[" * 9999, '{"wrappers": {"x": 3, "y": {}}}', "\xff"])
def test_damaged_names_of_a_dump(text: str, named_dump: Path) -> None:
    (named_dump / dumped.FILE).write_text(text, encoding="latin-1")
    (run,) = open_dump(named_dump).runs
    assert not run.table[2].source_nodes
    assert not run.names.inputs


def test_damage_of_one_wrappers_names_leaves_those_of_the_others(tmp_path: Path) -> None:
    sound = {"source_nodes": {"0": ["linear"]}, "inputs": {"arg0_1": ["x", "model.py:1"]}}
    damaged = {"source_nodes": {"0": "linear"}, "inputs": {}}
    content = {"format": "rewriter.names", "version": 1, "wrappers": {"a": damaged, "b": sound}}
    (tmp_path / dumped.FILE).write_text(json.dumps(content))
    names = dumped.read(tmp_path)
    assert [*names] == ["b"]
    assert names["b"].nodes == {0: ("linear",)}


@pytest.mark.parametrize(
    ("head", "declared", "inputs"),
    [
        ('self, a: "f32[4, 2][2, 1]cpu", mesh, b: "f32[2]"', "", ["a", "mesh", "b"]),
        ('self, a : "f32[2]", n: "Sym(s0)"', "", ["a", "n"]),
        ("self, x : torch.Tensor, y=None", "", ["x", "y"]),
        ("self, m: torch.distributed.DeviceMesh", "", ["m"]),
        ("self, d, k", '    d_a: "f32[2]"; d_b: "f32[2]"; k: "f32[2]"; \n', ["d_a", "d_b", "k"]),
        (
            "\n        self,\n        a: \"f32[2]\",  # PlainAOTInput(idx=0)\n"
            "    mesh,  # SubclassGetAttrAOTInput(base=PlainAOTInput(idx=1), attr='device_mesh')\n"
            "    ", "", ["a", "mesh"],
        ),
    ],
)  # fmt: skip
def test_inputs_keep_their_places_whatever_they_are(
    head: str, declared: str, inputs: list[str]
) -> None:
    graph = parse(f"    def forward({head}):\n{declared}        return (a,)\n")
    assert graph is not None
    assert list(graph.inputs) == inputs
