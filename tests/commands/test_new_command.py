"""A command is two files and a line, as the page on extending has it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import schemas
from pages import page
from rewriter import cli, commands
from rewriter.commands import _documents

WRAPPER = """
from torch._inductor.select_algorithm import extern_kernels

def call(args):
    arg0_1, arg1_1 = args
    args.clear()
    extern_kernels.mm(arg0_1, arg1_1, out=buf0)
    extern_kernels.addmm(arg0_1, arg1_1, buf0, out=buf1)
    extern_kernels.mm(buf0, buf1, out=buf2)
    return (buf2, )
"""


@pytest.fixture
def _kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = page("project/extending.md").code("python", "A new command")
    for package, source in zip((commands, _documents), sources, strict=True):
        folder = tmp_path / package.__name__
        folder.mkdir()
        (folder / "kernels.py").write_text(source, encoding="utf-8")
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
        monkeypatch.delattr(package, "kernels", raising=False)
        monkeypatch.delitem(sys.modules, f"{package.__name__}.kernels", raising=False)
    monkeypatch.setitem(commands.SUMMARIES, "kernels", "list the kernels of an artifact")  # type: ignore[arg-type]
    monkeypatch.setattr(schemas, "DOCUMENTS", schemas.every_document())


@pytest.mark.usefixtures("_kernels")
def test_the_command_of_the_page_works(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "output_code.py"
    file.write_text(WRAPPER, encoding="utf-8")
    assert cli.main(["kernels", str(file)]) == 0
    assert capfd.readouterr().out == "2  extern_kernels.mm\n1  extern_kernels.addmm\n"
    assert cli.main(["kernels", str(file), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["kernels"] == [
        {"name": "extern_kernels.mm", "launches": 2},
        {"name": "extern_kernels.addmm", "launches": 1},
    ]
    assert cli.main(["--help"]) == 0
    assert "kernels     list the kernels of an artifact" in capfd.readouterr().out
