"""Programs that load wrappers as torch does, and compile nothing themselves."""

from __future__ import annotations

# A wrapper that needs no compiler; its launch is on line 15.
WRAPPER = """\
# AOT ID: ['0_inference']
import torch
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.select_algorithm import extern_kernels
empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu
async_compile = AsyncCompile()
async_compile.wait(globals())
del async_compile


def call(args):
    arg0_1, = args
    args.clear()
    buf0 = empty_strided_cpu((2, 2), (2, 1), torch.float32)
    extern_kernels.mm(arg0_1, arg0_1, out=buf0)
    return (buf0, )
"""
OTHER = WRAPPER.replace("mm(arg0_1, arg0_1", "addmm(arg0_1, arg0_1, arg0_1")
# Loads a text from a cache, where it is written unless it is there, and calls it. Prints whether
# the file of the wrapper is as it was written.
LOAD = f"""
import os, pathlib, sys
WRAPPER = {WRAPPER!r}
OTHER = {OTHER!r}
def load(cache=None, name="ab/cabwrapper.py", text=WRAPPER, call=True):
    import torch
    from torch._inductor.codecache import PyCodeCache
    if cache is None:
        cache = os.environ["TORCHINDUCTOR_CACHE_DIR"]
    path = pathlib.Path(cache, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_text(text)
    module = PyCodeCache.load_by_key_path(path.stem, str(path))
    result = module.call([torch.ones(2, 2)])[0].tolist() if call else module
    # In one write: lines of several processes do not mix.
    os.write(1, f"{{path.read_text() == text}} {{result}}\\n".encode() if call else b"")
    return result
"""
# What `load` prints of WRAPPER.
LOADED = "True [[2.0, 2.0], [2.0, 2.0]]"
