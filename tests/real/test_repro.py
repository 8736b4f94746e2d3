"""`rewriter repro`: a recorded launch by itself, with torch alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import programs
from rewriter.cli import main
from rewriter.core.errors import RewriterError
from rewriter.reproduction.reproduce import reproduce

pytestmark = pytest.mark.usefixtures("warm_python")

# A C++ kernel on reused memory, a library call on a view, an operator with two results, one that
# updates its argument by a size of the call, and memory that two launches write parts of.
WRAPPER = """import torch
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.select_algorithm import extern_kernels
aten = torch.ops.aten
empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu
reinterpret_tensor = torch._C._dynamo.guards._reinterpret_tensor
async_compile = AsyncCompile()

cpp_fused_relu_0 = async_compile.cpp_pybinding(['float*', 'const int64_t'], r'''
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(float* in_out_ptr0, const int64_t ks0)
{
    for (int64_t x0 = 0; x0 < 4 * ks0; x0++)
        in_out_ptr0[x0] = in_out_ptr0[x0] > 0 ? in_out_ptr0[x0] : 0;
}
''')

cpp_fused_unused_1 = async_compile.cpp_pybinding(['float*'], r'''
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(float* in_out_ptr0) {}
''')

async_compile.wait(globals())
del async_compile


def call(args):
    arg0_1, arg1_1, arg2_1 = args
    args.clear()
    s77 = arg0_1
    buf0 = empty_strided_cpu((s77, 4), (4, 1), torch.float32)
    extern_kernels.mm(arg1_1, reinterpret_tensor(arg2_1, (4, 4), (1, 4), 0), out=buf0)
    buf1 = buf0; del buf0  # reuse
    ks0 = s77
    cpp_fused_relu_0(buf1, ks0)
    buf2 = torch.ops.aten.topk.default(buf1, 2, -1, True, True)
    buf3 = buf2[0]
    buf4 = buf2[1]
    aten.scatter_reduce_.two(buf1, 1, buf4, buf3, reduce='sum', include_self=True)
    buf5 = empty_strided_cpu((2, 4), (4, 1), torch.float32)
    extern_kernels.mm(reinterpret_tensor(buf1, (1, 4), (4, 1), 0), arg2_1,  # fmt: skip
        out=reinterpret_tensor(buf5, (1, 4), (4, 1), 0))
    extern_kernels.mm(reinterpret_tensor(buf1, (1, 4), (4, 1), 4), arg2_1,  # fmt: skip
        out=reinterpret_tensor(buf5, (1, 4), (4, 1), 4))
    buf6 = torch.ops.aten.sum.dim_IntList(buf5, [1])
    return (buf1, buf6)


def get_args():
    return [3, torch.randn(3, 4), torch.randn(4, 4)]
"""


def recorded(folder: Path, *options: str) -> Path:
    (folder / "w.py").write_text(WRAPPER)
    words = ["run", str(folder / "w.py"), "--probe", "save", "-d", str(folder / "w.dump")]
    assert main([*words, *options]) == 0
    return folder / "w.dump"


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory, warm_module: None) -> Path:
    return recorded(tmp_path_factory.mktemp("repro"))


def ran(directory: Path, code: int = 0) -> programs.Done:
    return programs.run(sys.executable, directory / "repro.py", code=code, timeout=300)


@pytest.mark.parametrize(
    ("launch", "results"),
    [(0, ["buf0"]), (1, ["buf1"]), (2, ["buf3", "buf4"]), (3, ["buf1"])],
    ids=["view", "cpp", "two-results", "update"],
)
def test_runs_alone_and_writes_the_same_bits(
    dump: Path, tmp_path: Path, launch: int, results: list[str]
) -> None:
    made = reproduce(dump, launch, tmp_path / "r")
    *lines, time, last = ran(made.directory).stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == results
    assert all("equal bit for bit" in line for line in lines)
    assert (time.startswith("time: "), last) == (True, "reproduced")
    text = (made.directory / "repro.py").read_text()
    assert "rewriter" not in text
    assert "cpp_fused_unused_1" not in text


def test_another_result_is_no_reproduction(dump: Path, tmp_path: Path) -> None:
    made = reproduce(dump, 0, tmp_path / "r")
    (file,) = made.directory.glob("given_*arg1_1.pt")
    torch.save(torch.load(file) + 1, file)
    printed = ran(made.directory, code=1).stdout
    assert "buf0: DIFFERS" in printed
    assert printed.endswith("not reproduced\n")


def test_memory_of_several_launches_is_asked_for(dump: Path, tmp_path: Path) -> None:
    with pytest.raises(RewriterError) as caught:
        reproduce(dump, 6, tmp_path / "r")
    assert caught.value.slug == "no-saved-arguments"
    assert "--launches 6 --args all --when both" in caught.value.hint
    assert not (tmp_path / "r").exists()
    more = recorded(tmp_path, "--launches", "6", "--args", "all", "--when", "both")
    ran(reproduce(more, 6, tmp_path / "r").directory)


@pytest.mark.parametrize(
    ("words", "slug"),
    [
        (["--launch", "99"], "no-such-launch"),
        (["--launch", "x"], "bad-launches"),
        (["--launch", "0", "--run", "rank7/run7"], "not-a-dump"),
        (["--launch", "0", "--import", "a; b"], "bad-module"),
    ],
    ids=["index", "no-index", "run", "module"],
)
def test_refuses(
    dump: Path,
    tmp_path: Path,
    words: list[str],
    slug: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert main(["repro", str(dump), *words, "-o", str(tmp_path / "r")]) == 2
    assert f"error[{slug}]" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_existing_directory_is_replaced_when_asked(dump: Path, tmp_path: Path) -> None:
    words = ["repro", str(dump), "--launch", "0", "-o", str(tmp_path / "r")]
    assert main(words) == 0
    assert main(words) == 2
    (tmp_path / "r" / "mine.txt").write_text("kept")
    (tmp_path / "r" / "given_9_old.pt").write_text("old")
    document = programs.document(*words, "--overwrite")
    assert (document["format"], document["kernel"]) == ("rewriter.repro", "extern_kernels.mm")
    assert {x.name for x in (tmp_path / "r").iterdir()} == {*document["files"], "mine.txt"}
