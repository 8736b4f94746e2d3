"""`grammars/names.toml`: devices and kinds of launches, which other declarations refer to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rewriter.artifact.types import Wrapper
from rewriter.core.errors import FAILED, RewriterError
from rewriter.locate import vocabulary as module
from rewriter.locate.declarations import folder
from rewriter.locate.vocabulary import vocabulary

NAMES = (folder() / "names.toml").read_text(encoding="utf-8")

WRONG = {
    "no TOML": ("devices = ", "TOMLDecodeError"),
    "no devices": (NAMES.replace("[devices]", "[divices]"), "missing devices"),
    "a device without a number": (NAMES.replace("cuda = 1\n", 'cuda = "one"\n'), "cuda"),
    "libraries by number": (NAMES.replace('"rocm"', "7"), "libraries"),
    "a kind that runs elsewhere": (NAMES.replace('runs = "cpu"', 'runs = "mars"'), "mars"),
    "a fact that is not known": (NAMES.replace("keeps = true", "keep = true"), "keep"),
}


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(module, "folder", lambda: tmp_path)
    vocabulary.cache_clear()
    yield tmp_path / "names.toml"
    vocabulary.cache_clear()


@pytest.mark.parametrize("case", [*WRONG, "no file"])
def test_wrong_names_are_refused(case: str, names: Path) -> None:
    text, named = WRONG.get(case, ("", "FileNotFoundError"))
    if case in WRONG:
        names.write_text(text, encoding="utf-8")
    with pytest.raises(RewriterError) as caught:
        vocabulary()
    assert caught.value.slug == "grammar-invalid"
    assert caught.value.code == FAILED
    assert str(names) in caught.value.message
    assert named in caught.value.message


def test_devices_have_the_numbers_of_torch() -> None:
    import torch

    include = Path(torch.__file__).parent / "include"
    headers = ("torch/headeronly/core/DeviceType.h", "c10/core/DeviceType.h")
    header = next(include / name for name in headers if (include / name).is_file())
    numbers = re.findall(r"^\s*(\w+) = (\d+),", header.read_text(encoding="utf-8"), re.M)
    theirs = {name.lower(): int(number) for name, number in numbers}
    assert vocabulary().devices == {name: theirs[name] for name in vocabulary().devices}


def test_a_new_device_is_one_line(names: Path) -> None:
    names.write_text(NAMES.replace("[devices]", "[devices]\nnpu = 30"), encoding="utf-8")
    assert "npu" in vocabulary().accelerators
    assert "|npu|" in f"|{vocabulary().any_device}|"


@pytest.mark.parametrize("device", vocabulary().accelerators)
def test_an_artifact_names_its_devices(device: str) -> None:
    for line in (
        f"    buf0 = empty_strided_{device}((8, 8), (8, 1), torch.float32)",
        f"    arg0_1 = rand_strided((8,), (1,), device='{device}:0', dtype=torch.float32)",
        f"    aoti_torch_empty_strided(2, s, t, f, cached_torch_device_type_{device}, 0, &h);",
    ):
        path, source = Path("output_code.py"), f"def call(args):\n{line}\n".encode()
        assert Wrapper(path.name, source, "python", path).devices == (device,)
