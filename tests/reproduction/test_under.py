"""What tools say of a launch, read without running them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rewriter.core.errors import RewriterError
from rewriter.reproduction.under import asan, gpu_tools

SOURCE = """extern "C"  void  kernel(const float* in_ptr0,
    float* out_ptr0)
{
    use(in_ptr0[9]);
}
"""
OVERFLOW = """argument 0 0x602000000100
argument 1 0x602000000200
==7==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x602000000120 at pc 0x1 bp 0x2 sp 0x3
READ of size 4 at 0x602000000120 thread T0
    #0 0x7f in _mm512_loadu_ps /usr/lib/gcc/avx512fintrin.h:6437
    #1 0x7f in kernel /some/where/asan/kernel.cpp:4
0x602000000120 is located 0 bytes after 32-byte region [0x602000000100,0x602000000120)
"""
OWN_SOURCE = """extern "C"  void  kernel(const float* in_ptr0,
    float* out_ptr0)
{
    std::unique_ptr<float []> buf_local = std::make_unique<float []>(32L);
    float tmp_buf[32];
    tmp5.store(local + x1);
}
"""
OWN = """argument 0 0x602000000100
==7==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x60c000000080 at pc 0x1 bp 0x2 sp 0x3
WRITE of size 64 at 0x60c000000080 thread T0
    #0 0x7f in _mm512_storeu_ps /usr/lib/gcc/avx512fintrin.h:6437
    #1 0x7f in kernel._omp_fn.0 /some/where/asan/kernel.cpp:6

0x60c000000080 is located 0 bytes to the right of 128-byte region [0x60c000000000,0x60c000000080)
allocated by thread T0 here:
    #0 0x7f in operator new[](unsigned long) ../../libsanitizer/asan/asan_new_delete.cpp:98
    #1 0x7f in kernel._omp_fn.0 /some/where/asan/kernel.cpp:4
"""
# The same without symbols, with each access, and at other addresses.
EVERY = """==8==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x60d000000080 at pc 0x1
WRITE of size 64 at 0x60d000000080 thread T0
0x60d000000080 is located 0 bytes to the right of 128-byte region [0x60d000000000,0x60d000000080)
==8==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x60d0000000c0 at pc 0x1 bp 0x2
WRITE of size 64 at 0x60d0000000c0 thread T0
==8==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x60d000000100 at pc 0x1 bp 0x2
READ of size 64 at 0x60d000000100 thread T0
"""
ON_THE_STACK = """ERROR: AddressSanitizer: stack-buffer-overflow on address 0x7f00000000a0 at pc 0x1
READ of size 4 at 0x7f00000000a0 thread T1
    #0 0x7f in kernel._omp_fn.0 /some/where/asan/kernel.cpp:6

Address 0x7f00000000a0 is located in stack of thread T1 at offset 160 in frame
    #0 0x7f in kernel._omp_fn.0 /some/where/asan/kernel.cpp:3

  This frame has 2 object(s):
    [0, 16) 'tmp4' (line 4)
    [32, 160) 'tmp_buf' (line 5) <== Memory access at offset 160 overflows this variable
"""
UNDEFINED = """/some/where/asan/kernel.cpp:4:12: runtime error: division by zero
    #0 0x7f in kernel /some/where/asan/kernel.cpp:4
/some/where/asan/kernel.cpp:4:12: runtime error: division by zero
"""
MEMCHECK = """argument given_0 0x7f0000000000 512 4
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at triton_poi_fused_add_0+0x110 in /cache/xy/cxy.py:22
=========     by thread (32,0,0) in block (0,0,0)
=========     Address 0x7f0000000200 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f0000000000 of size 512 bytes
"""


def parameters() -> list[asan._Parameter]:
    return [
        asan._Parameter("in_ptr0", "arg0_1", 0, 0, 4, 8),
        asan._Parameter("out_ptr0", "buf0", 1, 0, 4, 8),
    ]


FOREIGN = OWN.replace("kernel.cpp:4", "main.cpp:9").replace("0x60c", "0x602")
THINGS = OWN_SOURCE.replace("make_unique<float []>", "make_unique<Thing []>")


@pytest.mark.parametrize(
    ("output", "source", "line", "headline"),
    [
        (OVERFLOW, SOURCE, 4,
         "heap-buffer-overflow: reads 4 bytes at in_ptr0[8], which is arg0_1 (8 elements)"),
        (OWN, OWN_SOURCE, 6,
         "heap-buffer-overflow: writes element 32 of its own array of 32, buf_local"),
        (ON_THE_STACK, OWN_SOURCE, 6,
         "stack-buffer-overflow: reads element 32 of its own array of 32, tmp_buf"),
        # Memory that the kernel did not allocate is an argument.
        (FOREIGN, OWN_SOURCE, 6, "heap-buffer-overflow: writes 64 bytes at in_ptr0["),
        (OWN, THINGS, 6,
         "heap-buffer-overflow: writes 64 bytes outside of its own array buf_local"),
        (UNDEFINED, SOURCE, 4, "undefined behaviour: division by zero"),
    ],
    ids=["argument", "own", "on the stack", "not its own", "unknown elements", "undefined"],
)  # fmt: skip
def test_what_the_sanitizers_report_is_the_memory_and_the_line(
    output: str, source: str, line: int, headline: str
) -> None:
    (found,) = asan._findings(output, parameters(), source.splitlines())
    assert (found.line, found.text) == (line, source.splitlines()[line - 1].strip())
    assert found.headline.startswith(headline)
    assert found.is_own == (not found.argument and "array" in headline)


def test_an_array_of_the_kernels_own_is_followed_to_its_last_element() -> None:
    (found,) = asan._findings(OWN, parameters(), OWN_SOURCE.splitlines())
    further = asan._as_far_as(found, EVERY)
    assert further.headline == (
        "heap-buffer-overflow: writes elements 32 to 63 of its own array of 32, buf_local"
    )
    assert asan._as_far_as(found, "") == found


def test_a_clean_run_is_no_finding() -> None:
    assert asan._findings("argument 0 0x602000000100\n", parameters(), []) == ()


def test_memcheck_without_a_report_finds_nothing() -> None:
    output = "========= COMPUTE-SANITIZER\nargument given_0 0x7f0000000000 64 4\nreproduced\n"
    assert list(gpu_tools._findings(output, {"given_0": "arg0_1"})) == []


def test_memcheck_is_the_argument_and_the_line() -> None:
    (found,) = gpu_tools._findings(MEMCHECK, {"given_0": "arg0_1"})
    assert (found.file, found.line) == ("/cache/xy/cxy.py", 22)
    assert (found.parameter, found.argument, found.element, found.size) == (
        "given_0", "arg0_1", 128, 128,
    )  # fmt: skip


def test_a_tool_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(gpu_tools, "_TOOLKIT", tmp_path / "none")
    with pytest.raises(RewriterError) as caught:
        gpu_tools.run("compute-sanitizer", tmp_path, {}, timeout=1)
    assert (caught.value.slug, caught.value.code) == ("no-sanitizer", 3)
    assert "CUDA toolkit" in caught.value.hint


def test_an_old_triton_has_no_fpsan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "backends/nvidia").mkdir(parents=True)
    (tmp_path / "backends/nvidia/compiler.py").write_text("consan")
    monkeypatch.setattr(gpu_tools, "require_triton", lambda tool: tmp_path)
    with pytest.raises(RewriterError, match="no FpSan"):
        gpu_tools.run("fpsan", tmp_path, {}, timeout=1)


def test_without_triton_nothing_is_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RewriterError, match="Triton is not installed"):
        gpu_tools.require_triton("interpret")
