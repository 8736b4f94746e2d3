"""Which releases of torch a package fits."""

from __future__ import annotations

import json
import re

import pytest

import interfaces
from artifacts import CPP_FIXTURES, Fixture
from rewriter.core import toml
from rewriter.instrumentation.rebuild.release import Release, Releases, releases
from rewriter.locate.declarations import folder

FACTS = toml.read(folder() / "aoti_interface.toml")
EVERY = frozenset(FACTS["functions"]["2.5"])
ANY = Releases((2, 5), None)

# What the libraries of `cuda-torch2.11/mlp` and of a linear layer compiled with 2.13 export, less
# `EVERY` and other symbols.
EXPORTS_2_11 = [
    "AOTInductorModelContainerExtractConstantsMap",
    "AOTInductorModelContainerFreeInactiveConstantBuffer",
    "AOTInductorModelContainerGetConstantDataSize",
    "AOTInductorModelContainerGetConstantType",
    "AOTInductorModelContainerGetConstantsBlobSize",
    "AOTInductorModelContainerRunSingleThreaded",
    "AOTInductorModelContainerUpdateUserManagedConstantBuffer",
    "AOTInductorModelContainerUpdateUserManagedConstantBufferPairs",
    "AOTInductorModelUpdateConstantsFromBlob",
    "_ZN5torch12aot_inductor16AOTInductorModelD2Ev",
    "_binary_constants_bin_start",
]
EXPORTS_2_13 = [
    *EXPORTS_2_11,
    "AOTInductorGetLastError",
    "AOTInductorModelContainerExtractConstantsMapEntries",
    "AOTInductorModelContainerUpdateConstantBufferFromCpu",
    "AOTInductorModelContainerUpdateConstantBufferFromCpuPairs",
    "AOTInductorModelContainerUpdateConstantBufferPairs",
    "AOTInductorModelContainerUpdateInactiveConstantBufferPairs",
    "AOTInductorModelCreateV2",
    "AOTInductorModelUpdateConstantsMapV2",
]
LATEST = [name for names in FACTS["functions"].values() for name in names]

AOTI = [fixture for fixture in CPP_FIXTURES if fixture.kind.startswith("aoti")]


def made_by(fixture: Fixture) -> Release:
    return interfaces.number(fixture.folder.partition("-torch")[2])


def command_of(wrapper: str) -> str:
    commands = re.findall(r"^// Compile cmd\n// (.+)$", wrapper, re.MULTILINE)
    return commands[-1] if commands else ""


# By `fixtures/backends.py`: the code generator alone, on a machine without the device. Nothing was
# compiled, so there is no metadata.
GENERATED = frozenset({"mps-torch2.15"})


def found_in(fixture: Fixture) -> Releases:
    wrapper = fixture.data.decode()
    path = fixture.path.parent / "wrapper_metadata.json"
    metadata = {} if fixture.folder in GENERATED else json.loads(path.read_text())
    return releases((), wrapper, command_of(wrapper), metadata)


@pytest.mark.parametrize("fixture", AOTI, ids=str)
def test_a_real_package_excludes_what_is_not_next_to_its_release(fixture: Fixture) -> None:
    found, (major, minor) = found_in(fixture), made_by(fixture)
    others = [(2, other) for other in range(5, 16) if abs(other - minor) > 1]
    assert [other for other in others if found.admits(other)] == []
    assert found.admits((major, minor)), found.explained


@pytest.mark.parametrize("fixture", AOTI, ids=str)
def test_each_part_of_a_real_package_admits_its_release(fixture: Fixture) -> None:
    wrapper, true = fixture.data.decode(), made_by(fixture)
    assert releases((), wrapper, "", {}).admits(true)
    assert releases((), "", command_of(wrapper), {}).admits(true)
    # A wrapper's library exports what it defines.
    defined = re.findall(r"^AOTIRuntimeError (AOTInductor\w+)\(", wrapper, re.MULTILINE)
    assert len(defined) > len(EVERY)
    assert releases(defined, "", "", {}).admits(true)


@pytest.mark.parametrize(
    ("folder", "text"),
    [
        ("cpu-torch2.6", "torch 2.6"),
        ("cpu-torch2.8", "torch 2.8"),
        ("cuda-torch2.11", "torch 2.11"),
        ("cpu-torch2.13", "torch 2.13"),
        ("cpu-torch2.15", "torch 2.15 or later"),
    ],
)
def test_a_package_with_weights_tells_its_release(folder: str, text: str) -> None:
    fixtures = [each for each in AOTI if (each.folder, each.model) == (folder, "mlp")]
    assert fixtures
    assert {str(found_in(each)) for each in fixtures} == {text}


@pytest.mark.parametrize(
    ("exports", "text"),
    [
        pytest.param([], "torch 2.5 or later", id="no library"),
        pytest.param(["malloc", "AOTInductorModelRunner"], "torch 2.5 or later", id="others"),
        pytest.param(["xAOTInductorGetLastError"], "torch 2.5 or later", id="part of a name"),
        pytest.param(EXPORTS_2_11, "torch 2.10 or later", id="some of them: nothing is missing"),
        pytest.param([*EVERY, *EXPORTS_2_11], "torch 2.10 to 2.12", id="2.11"),
        pytest.param([*EVERY, *EXPORTS_2_13], "torch 2.13", id="2.13"),
        pytest.param(
            sorted({*EVERY, *EXPORTS_2_13} - {"AOTInductorModelContainerRunSingleThreaded"}),
            "torch 2.13",
            id="less one",
        ),
        pytest.param([*LATEST, "AOTInductorModelNew"], "torch 2.15 or later", id="future"),
        pytest.param(
            sorted({*LATEST} - {"AOTInductorGetLastError"}), "torch 2.15 or later", id="future less"
        ),
    ],
)
def test_exports(exports: list[str], text: str) -> None:
    assert str(releases(exports, "", "", {})) == text


def entries(key: str) -> list[object]:
    return [
        pytest.param(entry, text, id=f"{entry['what']} {number}")
        for entry in FACTS["text"]
        for number, text in enumerate(entry[key])
    ]


def evidence(entry: dict[str, str], text: str) -> str:
    wrapper, command = (text, "") if entry["place"] == "wrapper" else ("", text)
    return " ".join(releases((), wrapper, command, {}).evidence)


@pytest.mark.parametrize(("entry", "text"), entries("invalid"))
def test_invalid_examples(entry: dict[str, str], text: str) -> None:
    assert f"{entry['what']} (" not in evidence(entry, text)


@pytest.mark.parametrize(("entry", "text"), entries("valid"))
def test_valid_examples(entry: dict[str, str], text: str) -> None:
    assert f"{entry['what']} (" in evidence(entry, text)


@pytest.mark.parametrize(
    "wrapper",
    [
        pytest.param("// AOTIRuntimeError AOTInductorModelCreateV2(", id="comment"),
        pytest.param("// kernel \\\nAOTIRuntimeError AOTInductorModelCreateV2(", id="continued"),
        pytest.param("/*\nAOTIRuntimeError AOTInductorModelCreateV2(\n*/", id="block"),
        pytest.param('R"(\nAOTIRuntimeError AOTInductorModelCreateV2(\n)";', id="raw string"),
        pytest.param('R"x(\n)"\nconst char* AOTInductorGetLastError()\n)x";', id="delimiter"),
        pytest.param("'\"'; // \"\n/*\nconst char* AOTInductorGetLastError()\n*/", id="quote"),
        pytest.param("    AOTIRuntimeError AOTInductorModelCreateV2(", id="within"),
        pytest.param("// #include <torch/csrc/inductor/aoti_include/cpu.h>", id="no include"),
        pytest.param("#include <torch/csrc/inductor/aoti_include/my.h>", id="other header"),
        pytest.param("/*\n#include <torch/csrc/inductor/aoti_include/cpu.h>\n*/", id="in a block"),
    ],
)
def test_a_text_that_is_not_the_wrappers_own_says_nothing(wrapper: str) -> None:
    assert releases((), wrapper, "", {}) == ANY


def test_metadata_and_headers() -> None:
    assert releases((), "", "", {"AOTI_DEVICE_KEY": "cpu", "MACHINE": "x86_64"}) == ANY
    assert releases((), "", "", {"AOTI_MACHINE": "x86_64"}).first == (2, 10)
    header = "#include <torch/csrc/inductor/aoti_include/mps.h>\n"
    assert releases((), header, "", {}) == Releases(
        (2, 8), None, ("includes aoti_include/mps.h (since 2.8)",)
    )


@pytest.mark.parametrize(
    ("command", "text"),
    [
        pytest.param("g++ -std=c++20 a.cpp -std=c++17", "torch 2.10 to 2.12", id="contradiction"),
        pytest.param("g++ -fmath-errno a.cpp", "torch 2.10 to 2.12", id="later than exported"),
        pytest.param("g++ -D_GLIBCXX_USE_CXX11_ABI=1", "torch 2.10 to 2.12", id="earlier"),
        pytest.param("g++ 'a.cpp -std=c++17", "torch 2.10 to 2.12", id="unreadable"),
        pytest.param("g++ -std=c++17 a.cpp", "torch 2.10 to 2.11", id="within"),
    ],
)
def test_the_library_counts_more_than_the_command(command: str, text: str) -> None:
    assert str(releases([*EVERY, *EXPORTS_2_11], "", command, {})) == text


def test_what_bounds_the_range_is_explained() -> None:
    found = releases([*EVERY, *EXPORTS_2_11], "", "g++ -std=c++17", {})
    assert found.explained == (
        "torch 2.10 to 2.11: it exports AOTInductorModelContainerGetConstantsBlobSize (since 2.10) "
        "and was compiled with -std=c++17 (until 2.11)"
    )
    assert ANY.explained == "torch 2.5 or later"


@pytest.mark.parametrize(
    ("release", "development", "admitted"),
    [
        ((2, 9), False, False),
        ((2, 9), True, False),
        ((2, 13), False, False),
        ((2, 14), True, False),
        ((2, 10), False, True),
        ((2, 12), False, True),
        ((2, 13), True, True),  # 2.13.0a0 may be like 2.12
    ],
)
def test_admitted_releases(release: Release, development: bool, admitted: bool) -> None:
    found = Releases((2, 10), (2, 12))
    assert found.admits(release, development=development) is admitted


def test_releases_to_come_are_admitted_unless_something_excludes_them() -> None:
    assert releases(LATEST, "", "g++ -std=c++20", {}).admits((2, 16))
    assert not releases([*EVERY, *EXPORTS_2_13], "", "", {}).admits((2, 16))


def test_the_installed_torch_is_as_recorded() -> None:
    if interfaces.release() > interfaces.number(FACTS["newest"]):
        pytest.skip("a torch that nobody has looked at: python fixtures/interfaces.py")
    assert interfaces.differences() == []
