"""Libraries of AOTInductor without their sources, run by themselves.

What is recorded is what the source says that there is, and the outputs are those of the package.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import rewriter
from capture import Exported, Packaged
from rewriter.cli import main
from rewriter.core.types import Json
from rewriter.dump.reading import open_dump

# Not `warm_python`: what is loaded before torch has to come before it here, too.
OPERATORS = str(Path(__file__).parents[2] / "fixtures/models.py")


def ran(exported: Exported, folder: Path, capfd: pytest.CaptureFixture[str], *options: str) -> Json:
    """Run the library, alone but for what the proxy executor reads, and return the document."""
    assert exported.so is not None
    library = folder / exported.so.name
    shutil.copy(exported.so, library)
    if exported.json is not None:
        shutil.copy(exported.json, library.with_suffix(".json"))
    torch.save(list(exported.inputs), folder / "inputs.pt")
    given = ["--args", str(folder / "inputs.pt"), "-d", str(folder / "library.dump")]
    capfd.readouterr()
    main(["run", str(library), *given, "--import", OPERATORS, "--json", *options])
    out, err = capfd.readouterr()
    assert out, err
    return json.loads(out)  # type: ignore[no-any-return]


def digests(document: Json) -> list[str]:
    return [output["sha256"] for output in document["outputs"]]


@pytest.mark.parametrize(
    "name",
    [
        "mlp",
        *(
            pytest.param(name, marks=pytest.mark.exhaustive)
            for name in (
                "conv",
                "customop",
                "dtypes",
                "dynamic",
                "scatter",
            )
        ),
    ],
)
def test_launches_are_those_of_the_source(
    name: str,
    exported: Callable[[str], Exported],
    packaged: Callable[[str], Packaged],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    plain = exported(name)
    document = ran(plain, tmp_path, capfd, "--probe", "print")
    assert document["message"] == ""
    source = rewriter.open(plain.wrapper)
    written = [launch.kernel for launch in source.launches]
    recorded = [launch["kernel"] for launch in document["launches"]]
    proxies = "aoti_torch_proxy_executor_call_function"
    assert recorded == [proxies if one.startswith("torch.ops.") else one for one in written]
    assert all(launch["runs"] == 1 for launch in document["launches"])
    # What the source says of each tensor is what was seen.
    for launch, seen in zip(source.launches, document["launches"], strict=True):
        outputs = [one for one in launch.args if one.type == "tensor" and one.role != "in"]
        assert len(seen["writes"]) >= min(len(outputs), 1)
    assert open_dump(tmp_path / "library.dump").runs

    package = tmp_path / "model.pt2"
    shutil.copy(packaged(name).path, package)
    given = ["--args", str(tmp_path / "inputs.pt"), "--import", OPERATORS, "--json"]
    main(["run", str(package), *given])
    assert digests(document) == digests(json.loads(capfd.readouterr().out))
