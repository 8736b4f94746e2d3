"""A serving engine as vLLM is one, in small: what it does with Inductor, and nothing else.

`python engine.py ROOT [ENGINE LAYER]` starts two processes. Each sets a cache directory below ROOT
itself, has Dynamo trace the model, splits the graph at attention, and compiles the pieces in
between with `standalone_compile` into binary artifacts, under the names that vLLM gives to them. A
later start loads the artifacts and compiles nothing. With ENGINE and LAYER, a weight of that layer
holds a NaN in that process. ENGINE_START=fork starts the processes so, with torch imported once.
"""

from __future__ import annotations

import fcntl
import importlib
import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

WIDTH, TOKENS, LAYERS = 16, 8, 3
FOLDER = "torch_compile_cache/0123456789"
_SIZES = (1, 64)


def core(number: int, root: Path, poisoned: tuple[int, int] | None) -> None:
    """One process of the engine."""
    cache = root / FOLDER
    folder = cache / f"rank_{number}_0" / "backbone"
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache / "inductor_cache")
    import torch
    import torch._inductor.config as config

    torch.set_num_threads(1)
    config.compile_threads = 1
    torch.manual_seed(0)
    model = _model()
    if poisoned and poisoned[0] == number:
        model.layers[poisoned[1]].up.weight.data[3, 5] = float("nan")
    with torch.no_grad(), (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the same is compiled once
        x = torch.randn(TOKENS, WIDTH)
        step = torch.compile(
            model, backend=lambda graph, _: _Backend(graph, folder), fullgraph=True
        )
        step(x)
        fcntl.flock(lock, fcntl.LOCK_UN)
        out = step(x)
    text = f"engine {number}: {out.isnan().sum().item()} NaN, sum {out.nansum().item().hex()}\n"
    os.write(1, text.encode())


def _model() -> Any:
    from torch import Tensor, nn
    from torch.nn.functional import relu, scaled_dot_product_attention

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
            self.out = nn.Linear(WIDTH, WIDTH)
            self.up = nn.Linear(WIDTH, WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(x).view(1, TOKENS, 3, WIDTH).unbind(2)
            attended = scaled_dot_product_attention(q, k, v)
            x = x + self.out(attended.view(TOKENS, WIDTH))
            return x + relu(self.up(x))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

    return Model()


class _Backend:
    """Runs a graph piece by piece: attention as it is, what stands in between compiled."""

    def __init__(self, graph: Any, folder: Path) -> None:
        from torch.fx.passes.split_module import split_module

        pieces: dict[Any, int] = {}
        number = 0
        for node in graph.graph.nodes:
            splits = "scaled_dot_product_attention" in str(node.target)
            number += splits
            pieces[node] = number
            number += splits
        self._graph = split_module(
            graph, graph, lambda node: pieces[node], keep_original_order=True
        )
        self._folder = folder
        self._index = folder / "vllm_compile_cache.py"
        self._entries: dict[Any, Any] = (
            eval(self._index.read_text()) if self._index.exists() else {}
        )
        self._compiled: dict[str, Any] = {}
        text = self._graph.print_readable(print_output=False)
        (folder / "computation_graph.py").write_text(text)

    def __call__(self, *inputs: Any) -> Any:
        import torch

        backend = self

        class Run(torch.fx.Interpreter):
            def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
                module = self.fetch_attr(target)
                if int(target.removeprefix("submod_")) % 2:
                    return module(*args)
                if target not in backend._compiled:
                    backend._compiled[target] = backend._load(target, module, args)
                result = backend._compiled[target](*args)
                return result if len(result) > 1 else result[0]

        return Run(self._graph).run(*inputs)

    def _load(self, target: str, module: Any, args: Any) -> Any:
        from torch._inductor import CompiledArtifact, standalone_compile

        number = int(target.removeprefix("submod_")) // 2
        key = (_SIZES, number, "inductor_standalone")
        if key in self._entries:
            path = self._folder / Path(self._entries[key][1]).name  # it may have been moved
            return CompiledArtifact.load(path=str(path), format="binary")
        name = f"artifact_compile_range_{_SIZES[0]}_{_SIZES[1]}_subgraph_{number}"
        artifact = standalone_compile(module, list(args), dynamic_shapes="from_example_inputs")
        artifact.save(path=str(self._folder / name), format="binary")
        self._entries[key] = (name, str(self._folder / name))
        self._index.write_text(repr(self._entries))
        os.write(1, f"compiled {target}\n".encode())
        return artifact


def main() -> None:
    root = Path(sys.argv[1])
    poisoned = (int(sys.argv[2]), int(sys.argv[3])) if sys.argv[2:] else None
    start = os.environ.get("ENGINE_START", "spawn")
    if start == "fork":
        importlib.import_module("torch._inductor.compile_fx")
    context = multiprocessing.get_context(start)
    cores = [
        context.Process(target=core, args=(number, root, poisoned), name=f"EngineCore_{number}")
        for number in range(2)
    ]
    for one in cores:
        one.start()
    for one in cores:
        one.join()


if __name__ == "__main__":
    main()
