"""Each kind of launch by itself, with torch alone: in each language, and under tools."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import programs
from capture import Compiled, Packaged
from rewriter.cli import main
from rewriter.dump.reading import open_dump
from rewriter.reproduction.reproduce import reproduce

pytestmark = [pytest.mark.usefixtures("warm_python"), pytest.mark.exhaustive]
FIXTURES = Path(__file__).parents[2] / "fixtures"
KINDS = {"cpp", "extern_out", "extern_alloc", "fallback", "custom_op"}
# Runs scripts one after the other where nothing of ours can be imported.
ALONE = """
import contextlib, io, json, runpy, sys
from pathlib import Path

sys.modules["rewriter"] = None
found = {}
for directory in sorted(Path(sys.argv[1]).iterdir()):
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            runpy.run_path(str(directory / "repro.py"), run_name="__main__")
    except SystemExit as ended:
        found[directory.name] = [ended.code, printed.getvalue()]
    except Exception as error:
        found[directory.name] = [repr(error), printed.getvalue()]
print(json.dumps(found))
"""
OVERFLOW = """import torch
from torch._inductor.async_compile import AsyncCompile
empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu
async_compile = AsyncCompile()

cpp_fused_add_0 = async_compile.cpp_pybinding(
    ['const float*', 'const float*', 'float*', 'const int64_t'], r'''
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(const float* in_ptr0,
                       const float* in_ptr1,
                       float* out_ptr0,
                       const int64_t ks0)
{
    for (int64_t x0 = 0; x0 < 4 * ks0; x0++)
    {
        auto tmp0 = in_ptr0[x0];
        auto tmp1 = in_ptr1[x0 + 1];
        out_ptr0[x0] = tmp0 + tmp1;
    }
}
''')
async_compile.wait(globals())
del async_compile


def call(args):
    arg0_1, arg1_1, arg2_1 = args
    args.clear()
    s77 = arg0_1
    buf0 = empty_strided_cpu((s77, 4), (4, 1), torch.float32)
    ks0 = s77
    cpp_fused_add_0(arg1_1, arg2_1, buf0, ks0)
    return (buf0, )


def get_args():
    return [3, torch.randn(3, 4), torch.randn(3, 4)]
"""
RECORDED = ("--probe", "save", "--args", "all", "--when", "both", "--quiet")


def _reproduced(dump: Path, folder: Path) -> dict[str, Any]:
    """Each launch of a dump, run alone: exit code and output, by its kind and index."""
    seen: set[tuple[str, int]] = set()
    folder.mkdir()
    for run in open_dump(dump).runs:
        for step in run.steps:
            if step.launch is None or (run.artifact, step.launch) in seen:
                continue
            seen.add((run.artifact, step.launch))
            kind = run.launch_row(step.launch).kind
            reproduce(
                dump, step.launch, folder / f"{kind}-{step.launch}", run=run.name,
                iteration=step.iteration, imports=["models"],
            )  # fmt: skip
    ran = programs.run(sys.executable, "-c", ALONE, folder, PYTHONPATH=FIXTURES)
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def _check(found: dict[str, Any]) -> None:
    assert {name.partition("-")[0] for name in found} == KINDS
    wrong = {name: ran for name, ran in found.items() if ran[0] != 0}
    assert wrong == {}
    assert all(ran[1].endswith("reproduced\n") for ran in found.values())
    lines = [x for ran in found.values() for x in ran[1].splitlines() if not x.startswith("time")]
    assert all("equal bit for bit" in x or x == "reproduced" for x in lines)


@pytest.mark.parametrize("language", ["compiled", "compiled_cpp"], ids=["python", "cpp"])
def test_each_kind_in_a_wrapper_is_reproduced(
    language: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    compiled: Callable[[str], Compiled] = request.getfixturevalue(language)
    graph = compiled("every_form").graphs[0]
    (tmp_path / "w.py").write_text(graph.source)
    torch.save(graph.args, tmp_path / "args.pt")
    words = ["run", str(tmp_path / "w.py"), "--args", str(tmp_path / "args.pt"), *RECORDED]
    dump = tmp_path / "w.dump"
    main([*words, "--import", str(FIXTURES / "models.py"), "-d", str(dump)])
    _check(_reproduced(dump, tmp_path / "alone"))


def test_each_kind_in_a_package_is_reproduced(
    packaged: Callable[..., Packaged], tmp_path: Path
) -> None:
    package = packaged("every_form")
    torch.save(list(package.inputs["model"]), tmp_path / "args.pt")
    words = ["run", str(package.path), "--args", str(tmp_path / "args.pt"), *RECORDED]
    dump = tmp_path / "p.dump"
    main([*words, "--import", str(FIXTURES / "models.py"), "-d", str(dump)])
    _check(_reproduced(dump, tmp_path / "alone"))


def test_an_overflow_is_named_and_made_smaller(tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text(OVERFLOW)
    main(["run", str(tmp_path / "w.py"), "--probe", "save", "-d", str(tmp_path / "w.dump")])
    words = ["repro", tmp_path / "w.dump", "--launch", "0", "-o", tmp_path / "r"]
    document = programs.document(*words, "--under", "asan", "--minimise", code=1)
    (finding,) = document["under"]["findings"]
    assert (finding["kind"], finding["text"]) == (
        "heap-buffer-overflow", "auto tmp1 = in_ptr1[x0 + 1];",
    )  # fmt: skip
    assert (finding["argument"], finding["element"], finding["size"]) == ("arg2_1", 4, 4)
    smaller = document["minimised"]
    assert (smaller["confirmed"], smaller["kind"]) == (True, "heap-buffer-overflow in line 11")
    assert {x["name"]: x["after"] for x in smaller["changes"]} == {
        "arg0_1": "1", "arg1_1": "[1, 4], all zero", "arg2_1": "[1, 4], all zero", "buf0": "[1, 4]",
    }  # fmt: skip
    again = programs.run("sh", tmp_path / "r/asan/run.sh", code=None)
    assert again.returncode != 0
    assert "heap-buffer-overflow" in again.stderr
