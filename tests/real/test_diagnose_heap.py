"""`rewriter diagnose` on a program whose memory a kernel damaged, or something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from programs import document

pytestmark = [pytest.mark.usefixtures("warm_python"), pytest.mark.exhaustive]

# The kernel has an array of {held} numbers, and writes 34: what lies behind the array belongs to
# its block, so that nothing is damaged. The call then ends the process.
WRAPPER = """import os
import torch
from torch._inductor.async_compile import AsyncCompile
empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu
async_compile = AsyncCompile()

cpp_fused_add_0 = async_compile.cpp_pybinding(
    ['const {kind}*', 'float*'], r'''
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(const {kind}* in_ptr0,
                       float* out_ptr0)
{{
    std::unique_ptr<float []> buf_local = std::make_unique<float []>({held}L);
    float* local = buf_local.get();
    for (int64_t x0 = 0; x0 < 34; x0++)
    {{
        local[x0] = in_ptr0[x0];
    }}
    for (int64_t x0 = 0; x0 < 34; x0++)
    {{
        out_ptr0[x0] = local[33 - x0];
    }}
}}
''')
async_compile.wait(globals())
del async_compile


def call(args):
    arg0_1, = args
    args.clear()
    buf0 = empty_strided_cpu((34, ), (1, ), torch.float32)
    cpp_fused_add_0(arg0_1, buf0)
    {end}
    return (buf0, )


def get_args():
    return [{given}]
"""
FLOATS = {"kind": "float", "given": "torch.randn(34)"}
VICTIM = "os.write(2, b'free(): invalid pointer\\n'); os.abort()"
ENDS = {
    "abort": "os.abort()",
    "null": "__import__('ctypes').memset(0, 0, 1)",
}


def _diagnose(tmp_path: Path, capfd: pytest.CaptureFixture[str], **parts: object) -> dict[str, Any]:
    file = tmp_path / "w.py"
    file.write_text(WRAPPER.format(**(FLOATS | parts)))
    capfd.readouterr()
    found = document("diagnose", file, "-d", tmp_path / "d", code=1)
    said = "running 1 C++ kernel alone, compiled with AddressSanitizer"
    assert said in capfd.readouterr().err
    return found


def test_the_kernel_and_its_array_are_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = _diagnose(tmp_path, capfd, held=32, end=VICTIM)
    assert [(x["kind"], x["launch"]) for x in found["findings"]] == [("bounds", 0), ("crash", 0)]
    assert "writes elements 32 to 33 of its own array of 32, buf_local" in found["headline"]
    assert "on the values that were recorded" in found["headline"]
    assert [one["what"] for one in found["runs"]] == ["hash,inputs,names,print,save"]
    again = Path(found["finding"]["text"][1].removeprefix("once more: sh "))
    assert again.is_file()
    # The dump alone says the same.
    of_dump = document("diagnose", tmp_path / "d/values", code=1)
    assert of_dump["headline"] == found["headline"]


@pytest.mark.parametrize("end", ENDS)
def test_a_program_that_dies_for_another_reason_accuses_no_kernel(
    end: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = _diagnose(tmp_path, capfd, held=34, end=ENDS[end])
    (crash,) = found["findings"]
    assert crash["kind"] == "crash"
    assert not any("suspect" in line for line in crash["text"])
    clean = (
        "stores outside of a kernel's own array: none under AddressSanitizer, #0 cpp_fused_add_0"
    )
    assert any(line.startswith(clean) for line in found["ruled_out"])
