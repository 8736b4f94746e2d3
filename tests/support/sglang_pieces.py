"""SGLang's compilation backend by itself: a model of two layers, in pieces between its attentions.

The backend compiles each piece with Inductor for any number of tokens, as it does before it
captures CUDA graphs, which is left out here. The model has a splitting operator of its own in place
of the engine's attention, and random weights. Prints a hash of what it computes for each batch.
"""

from __future__ import annotations

import hashlib
import math
import sys
from types import ModuleType

import torch
import torch.distributed as dist
from sglang.srt.compilation.compilation_config import CompilationConfig, register_split_op
from sglang.srt.compilation.compile import install_torch_compiled
from sglang.srt.compilation.compile_phase import enable_torch_compile_warmup
from sglang.srt.model_executor.runner_backend_utils import tc_piecewise_cuda_graph as phase
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

HIDDEN, HEADS = 64, 4


@register_split_op("only_attention")
@torch.library.custom_op("sglang::only_attention", mutates_args=("out",))
def only_attention(q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> None:
    def heads(x: Tensor) -> Tensor:
        return x.view(-1, HEADS, HIDDEN // HEADS).transpose(0, 1)

    scores = heads(q) @ heads(k).mT / math.sqrt(HIDDEN // HEADS)
    mask = torch.ones(len(q), len(q), dtype=torch.bool, device=q.device).tril()
    weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
    out.copy_((weights @ heads(v)).transpose(0, 1).reshape(out.shape))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)
        self.qkv, self.o = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(2 * HIDDEN, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.first(x)).chunk(3, -1)
        attended = torch.empty_like(q)
        torch.ops.sglang.only_attention(q, k, v, attended)
        x = x + self.o(attended)
        gate, up = self.up(self.second(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(97, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(2))

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embed(input_ids)
        for layer in self.layers:
            x = layer(x)
        return x


def main(nan: str) -> None:
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    torch.manual_seed(0)
    model = Model().eval()
    if nan:
        model.get_parameter(nan).data.view(-1)[5] = float("nan")
    # The backend imports it for CUDA graphs, and it refuses to be imported without a device.
    capture = ModuleType("weak_ref_tensor")
    capture.weak_ref_tensors = None  # type: ignore[attr-defined]
    sys.modules["sglang.srt.model_executor.runner_backend_utils.weak_ref_tensor"] = capture
    config = CompilationConfig([4, 8], compiler="inductor")
    with torch.no_grad(), phase.enable_tc_piecewise_cuda_graph(), enable_torch_compile_warmup():
        install_torch_compiled(
            model, dynamic_arg_dims={"input_ids": 0}, compile_config=config, graph_pool=0
        )
        for count in (7, 12, 5):
            out = model(torch.arange(count) * 3 % 97)
            print(count, hashlib.sha256(out.numpy().tobytes()).hexdigest()[:12], flush=True)


if __name__ == "__main__":
    main("".join(sys.argv[1:]))
