"""A program that makes containers with torch, and one that loads them; see fixtures/containers.py.

The second loads each file as it was made and as it was patched, in one cache, and prints for each
whether the outputs are the same bits: what runs with an earlier file of the cache would show no
probes.
"""

MAKE = """
import sys
from pathlib import Path

import containers

containers.make(Path(sys.argv[1]), containers.product, cpp=sys.argv[2] == "cpp")
"""

LOAD = """
import os, shutil, sys
from pathlib import Path

import torch
import containers
from torch._dynamo.package import CompilePackage
from torch._dynamo.precompile_context import PrecompileContext
from torch._dynamo.utils import counters
from torch._inductor.standalone_compile import CompiledArtifact

cache = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
torch.manual_seed(1)
inputs = [torch.randn(shape) for shape in containers.SHAPES]


def standalone(path):
    return CompiledArtifact.load(path=str(path), format="binary")(*inputs)


def mega_cache(path):
    # torch keeps entries that there are, and may find one of those first.
    for folder in ("fxgraph", "aotautograd"):
        shutil.rmtree(cache / folder, ignore_errors=True)
    torch._dynamo.reset()
    torch.compiler.load_cache_artifacts(path.read_bytes())
    counters.clear()
    with torch._functorch.config.patch("bundled_autograd_cache", True):
        trained = [one.clone().requires_grad_() for one in inputs]
        output = torch.compile(containers.product)(*trained)
        output.sum().backward()
    assert counters["aot_autograd"]["autograd_cache_hit"] == 1, counters
    return [output.detach(), *(one.grad for one in trained)]


def aot_compile(path):
    with path.open("rb") as file:
        return torch.compiler.load_compiled_function(file)(*inputs)


def dynamo(path):
    torch._dynamo.reset()
    folder = cache / "dynamo" / CompilePackage.source_id_from_fn(containers.product)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, folder / "entry")
    PrecompileContext.clear()  # of the file that was loaded before
    counters.clear()
    with torch._dynamo.config.patch(caching_precompile=True):
        output = torch.compile(containers.product)(*inputs)
    assert counters["dynamo_cache"]["dynamo_cache_hit"] == 1, counters
    return output


LOADERS = {
    "mega-cache.bin": mega_cache,
    "standalone.bin": standalone,
    "standalone-aot.bin": standalone,
    "standalone-cpp.bin": standalone,
    "aot-compile.bin": aot_compile,
    "vllm-model": aot_compile,
    "dynamo.entry": dynamo,
}
plain, probed = map(Path, sys.argv[1:])
for name, load in LOADERS.items():
    if not (plain / name).exists():
        continue
    outputs = []
    for folder in (plain, probed):
        print(f"== {folder.name} {name}", flush=True)
        output = load(folder / name)
        outputs.append(output if isinstance(output, (list, tuple)) else [output])
    same = all(torch.equal(a, b) for a, b in zip(*outputs, strict=True))
    print(f"== bits {name} {same}", flush=True)
"""
