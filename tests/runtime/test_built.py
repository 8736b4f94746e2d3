"""The recorder as it comes with a wheel: it compiles without torch, and is chosen by processor."""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
from pathlib import Path

import pytest

from rewriter.instrumentation.rebuild import build_steps
from rewriter.instrumentation.rebuild.patch import recorder_object
from rewriter.instrumentation.rebuild.recipe import Flags
from rewriter.runtime import build, bundle, recorder_library
from rewriter.runtime.build import Unavailable

TORCH = "#include <torch/csrc/inductor/aoti_torch/c/shim.h>\n"
SLOW, QUICK = (
    "model name: a\nflags: sse2",
    f"flags: {' '.join(sorted(build.VARIANTS['x86_64'][0][2]))}",
)


@pytest.mark.programs
def test_functions_of_torch_are_declared_as_torch_declares_them(tmp_path: Path) -> None:
    found = importlib.util.find_spec("torch")
    assert found is not None
    assert found.origin is not None
    file = tmp_path / "both.cpp"
    file.write_text(f'{TORCH}#include "{bundle.SHIM}"\n')
    include = f"-I{Path(found.origin).parent / 'include'}"
    command = [build.compiler(), "-std=c++17", "-fsyntax-only", include, str(file)]
    assert subprocess.run(command, capture_output=True, text=True).stderr == ""
    text = file.read_text()
    file.write_text(text + 'extern "C" AOTITorchError aoti_torch_get_dim(int32_t);\n')
    assert "aoti_torch_get_dim" in subprocess.run(command, capture_output=True, text=True).stderr


def test_the_recorder_needs_no_header_of_torch() -> None:
    assert "#include <torch" not in bundle.recorder()


def test_every_function_of_torch_that_is_called_is_declared() -> None:
    (functions,) = recorder_library.stands_for().values()
    declared = set(functions)
    sources = [path for path in bundle.SOURCES.rglob("*.h") if path != bundle.SHIM]
    called = {
        word.split("(")[0]
        for path in sources
        for word in path.read_text().replace("&aoti", " aoti").split()
        if word.startswith("aoti_torch_") and "(" in word
    }
    assert called
    assert called <= declared


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(build, "BUILT", tmp_path)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    for name in ("recorder-avx2.o", "recorder.o", "recorder.so"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("processor", "found"), [(SLOW, ["recorder.o"]), (QUICK, ["recorder-avx2.o", "recorder.o"])]
)
def test_a_processor_gets_what_it_can_run(
    processor: str, found: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_processor", lambda: processor)
    assert [path.name for path in build.built("recorder", ".o")] == found
    assert list(build.built("lines", ".so")) == []


def test_a_package_gets_what_runs_where_its_own_code_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_processor", lambda: QUICK)
    other = ["-stdlib=libc++"], ["-fsanitize=address"]
    assert [recorder_object(Flags("g++", ("-O1", *flags))) for flags in other] == [None, None]
    assert recorder_object(Flags("g++", ("-O1",))) == folder / "recorder.o"
    assert recorder_object(Flags("g++", ("-march=native",))) == folder / "recorder-avx2.o"


def test_one_that_does_not_load_is_built_here(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWRITER_CACHE_DIR", str(tmp_path))
    opened = []

    def open_library(path: Path) -> Path:
        opened.append(path.parent.name)
        if path.parent == folder:
            raise Unavailable("damaged")
        return path

    made = build.open_or_build("recorder", lambda: "int one() { return 1; }", (), open_library)
    assert made.parent == tmp_path / "engine"
    assert opened == [folder.name, "engine"]
    assert list(made.parent.iterdir()) == [made]


def test_a_library_needs_what_was_not_there_when_it_was_linked(tmp_path: Path) -> None:
    source = 'extern "C" int other(); extern "C" __attribute__((visibility("default")))\n'
    source += "int two() { return other() + 1; }"
    compiler, flags = build.compiler(), build.FLAGS
    made = build.build(compiler, source, flags, tmp_path / "two.so", {"libother.so": ["other"]})
    needed = subprocess.run(["readelf", "-d", made], capture_output=True, text=True).stdout
    assert "[libother.so]" in needed
    with pytest.raises(OSError, match=r"libother\.so"):
        ctypes.CDLL(str(made))
    other = 'extern "C" __attribute__((visibility("default"))) int other() { return 1; }'
    flags = (*flags, "-Wl,-soname,libother.so")
    loaded = ctypes.CDLL(str(build.build(compiler, other, flags, tmp_path / "libother.so")))
    assert ctypes.CDLL(str(made)).two() == 2
    assert loaded.other() == 1


def test_compiled_kernels_are_found_by_their_device(tmp_path: Path) -> None:
    """As `load_built` of rewriter/runtime/cpp/engine/kernel_code.h looks for them."""
    files = [(80, tmp_path / "a.cubin"), (90, tmp_path / "b.cubin")]
    for target, path in files:
        path.write_bytes(f"code for {target}\0".encode())
    assembly = tmp_path / "kernels.s"
    assembly.write_text(build_steps._gpu_kernels(files))
    source = tmp_path / "reader.cpp"
    source.write_text(
        "#include <cstdint>\n"
        'extern "C" const int64_t inductor_rewriter_kernels[]'
        ' __attribute__((weak, visibility("hidden")));\n'
        'extern "C" const char* code(int target) {\n'
        "  const int64_t* at = inductor_rewriter_kernels;\n"
        "  for (; at && at[0]; at += 2) {\n"
        "    if (at[0] == target) return reinterpret_cast<const char*>(at[1]);\n"
        "  }\n"
        "  return nullptr;\n"
        "}\n"
    )
    for sources, found in (
        ([source], [None, None, None]),
        ([source, assembly], [b"80", b"90", None]),
    ):
        library = tmp_path / f"{len(sources)}.so"
        command = [build.compiler(), "-shared", "-fPIC", *map(str, sources), "-o", str(library)]
        subprocess.run(command, check=True)
        code = ctypes.CDLL(str(library)).code
        code.restype = ctypes.c_char_p
        texts = [code(target) for target in (80, 90, 100)]
        assert [text and text.removeprefix(b"code for ") for text in texts] == found
