"""Python wrappers whose bodies are written short, for tests of what their buffers do.

The parts of a body are separated by ` | `. A wrapper has the kernels `write(source, target)` and
`update(buffer)`, and the input `arg0_1`. Written short are `buf0, buf1 = new`, which allocates
both, and `buf1 = took buf0` and `buf1 = reshaped buf0`, which take over the memory of another.
"""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import indent

_HEAD = """\
from torch._inductor.async_compile import AsyncCompile
import torch
from torch._inductor.select_algorithm import extern_kernels
empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu
reinterpret_tensor = torch._C._dynamo.guards._reinterpret_tensor
async_compile = AsyncCompile()
write = async_compile.cpp_pybinding(['const float*', 'float*'], '''
extern "C" void kernel(const float* in_ptr0, float* out_ptr0) { out_ptr0[0] = in_ptr0[0]; }
''')
update = async_compile.cpp_pybinding(['float*'], '''
extern "C" void kernel(float* in_out_ptr0) { in_out_ptr0[0] = in_out_ptr0[0] + 1; }
''')
def call(args):
    arg0_1, = args
    args.clear()
"""
VIEW = "reinterpret_tensor({}, (2, 2), (2, 1), 0)"
_TAKEN = re.compile(r"(\w+) = (took|reshaped) (\w+)$")


def _written(part: str) -> str:
    if part.endswith(" = new"):
        names = part.removesuffix(" = new").split(", ")
        return "\n".join(f"{x} = empty_strided_cpu((4, ), (1, ), torch.float32)" for x in names)
    if match := _TAKEN.match(part):
        name, how, other = match.groups()
        value = other if how == "took" else VIEW.format(other)
        return f"{name} = {value}; del {other}  # reuse"
    return part


def wrapper(folder: Path, body: str, returned: str = "(buf0, )") -> Path:
    """A wrapper with such a body, as a file in a folder."""
    lines = [*map(_written, body.split(" | ")), f"return {returned}", ""]
    path = folder / "output_code.py"
    path.write_text(_HEAD + indent("\n".join(lines), "    "))
    return path
