"""How a package is built again: flags, directories, routes, and what is refused before any work."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from artifacts import CPP_FIXTURES, Fixture, get
from rewriter.artifact.package import library as libraries
from rewriter.artifact.package.container import Zip
from rewriter.artifact.package.library import CONSTANTS, Constants, Library
from rewriter.artifact.package.model import Model, Package
from rewriter.core.errors import BAD_INPUT, FAILED, RewriterError
from rewriter.instrumentation.rebuild import machine as machines
from rewriter.instrumentation.rebuild import preflight, recipe
from rewriter.instrumentation.rebuild.machine import Machine, Torch
from rewriter.instrumentation.rebuild.recipe import Route

AOTI = [
    fixture
    for fixture in CPP_FIXTURES
    if fixture.kind == "aoti" and "Link cmd" in fixture.data.decode()
]


def model(source: bytes = b"", **changes: Any) -> Model:
    """A model of a package, of which only the text is given."""
    values: dict[str, Any] = {
        "name": "model",
        "members": ("m/x.wrapper.cpp", "m/x.wrapper.so"),
        "wrapper": "m/x.wrapper.cpp",
        "source": source,
        "kernels": {},
        "library": "m/x.wrapper.so",
        "operators": None,
        "metadata": {},
        "weights": "in the library",
    }
    return Model(**(values | changes))


def told(*lines: str, end: str = "\n") -> bytes:
    """A wrapper that ends in these commands."""
    return ("int x;" + end + "".join(f"{line}{end}" for line in lines)).encode()


KERNEL = b"int k;\n// Compile cmd\n// g++ k.kernel.cpp -O3 -fPIC -c -o k.kernel.o\n"


def of_fixture(fixture: Fixture) -> Model:
    """The model of a package that a fixture comes from, its members named as the commands are."""
    found = model(fixture.data)
    name = Path(next(part for part in found.command("Compile") if part.endswith(".cpp"))).name
    objects = [Path(part).name for part in found.command("Link") if part.endswith(".kernel.o")]
    kernels = {f"m/{part.removesuffix('.o')}.cpp": b"" for part in objects}
    # A toolkit that may be on this machine as well is not what is looked for.
    source = found.source.replace(b"/usr/local/cuda", b"/nowhere/cuda")
    return replace(found, source=source, wrapper=f"m/{name}", kernels=kernels)


CUDA = Torch("2.11.0+cu130", "13.0", Path("/nowhere/torch"))
HERE = Machine(
    system="linux",
    processor="x86_64",
    features=frozenset({"avx2", "avx512f", "avx512_vnni"}),
    torch=CUDA,
    python_include=Path("/nowhere/python"),
    cuda_include=Path("/nowhere/cuda"),
)
SHARED = Library(
    machine="X86_64",
    soname="",
    needed=("libtorch.so", "libstdc++.so.6", "libc.so.6"),
    exports=frozenset({CONSTANTS}),
    wants=frozenset(),
    constants=Constants(0, 8, ".ldata", writable=False),
)


def same(path: str) -> tuple[str, str]:
    return path, ""


def nowhere(path: str) -> tuple[str, str]:
    return "", f"dropped: {path}"


# --- Commands in a wrapper ------------------------------------------------------------------------

COMMANDS: dict[str, tuple[bytes, str, list[str]]] = {
    "nothing": (told(), "Compile", []),
    "the other one": (told("// Link cmd", "// g++ x.o"), "Compile", []),
    "a command in a string": (told('"// Compile cmd', '// g++ x.cpp"'), "Compile", []),
    "a command that is indented": (told(" // Compile cmd", " // g++ x.cpp"), "Compile", []),
    "a head alone": (told("// Compile cmd"), "Compile", []),
    "a head and code": (told("// Compile cmd", "g++ x.cpp"), "Compile", []),
    "an open quote": (told("// Compile cmd", "// g++ 'x.cpp"), "Compile", []),
    "one": (told("// Compile cmd", "// g++ x.cpp -c"), "Compile", ["g++", "x.cpp", "-c"]),
    "CRLF": (told("// Compile cmd", "// g++ x.cpp", end="\r\n"), "Compile", ["g++", "x.cpp"]),
    "spaces behind": (told("// Compile cmd ", "// g++ x.cpp  "), "Compile", ["g++", "x.cpp"]),
    "quotes": (
        told("// Compile cmd", "// g++ -DX=\"a b\" '-D Y'"),
        "Compile",
        ["g++", "-DX=a b", "-D Y"],
    ),
    "two, of which the last made the library": (
        told("// Compile cmd", "// g++ -O0 x.cpp", "// Link cmd", "// g++ x.o")
        + told("// Compile cmd", "// g++ -O1 x.cpp", "// Link cmd", "// g++ y.o"),
        "Compile",
        ["g++", "-O1", "x.cpp"],
    ),
    "the last of two links": (
        told("// Link cmd", "// g++ x.o") + told("// Link cmd", "// g++ y.o"),
        "Link",
        ["g++", "y.o"],
    ),
}


@pytest.mark.parametrize("what", COMMANDS)
def test_the_last_command_of_a_wrapper(what: str) -> None:
    source, step, expected = COMMANDS[what]
    assert list(model(source).command(step)) == expected  # type: ignore[arg-type]


# --- Flags --------------------------------------------------------------------------------------

FLAGS: dict[str, tuple[str, list[str], list[str]]] = {
    # What must not come through.
    "files and results": ("g++ x.cpp y.o -c -o x.o -O1", ["-O1"], []),
    "libraries": ("g++ x.cpp -lcuda -l torch -L/usr/lib -L /lib -O1", ["-O1"], []),
    "code for this processor": (
        "g++ x.cpp -march=native -mtune=native -mcpu=native -O1",
        ["-O1"],
        ["dropped: -march=native, so that it runs wherever the package does"],
    ),
    "a header that is not here": (
        "g++ x.cpp -include /nowhere/x.h -O1",
        ["-O1"],
        ["dropped: the precompiled header"],
    ),
    "a file of arguments": ("g++ @more x.cpp -O1", ["-O1"], []),
    "a plugin": ("g++ x.cpp -fplugin=/evil.so -fplugin-arg-x-y=z -O1", ["-O1"], []),
    "another program": ("g++ x.cpp -wrapper sh,-c -B/evil -B /evil -specs=x -O1", ["-O1"], []),
    # What must.
    "a macro behind a space": ("g++ x.cpp -D  X -D Y=1 -DZ", ["-DX", "-DY=1", "-DZ"], []),
    "a macro with a space in it": ("g++ x.cpp '-DX=a b' -D 'Y=c d'", ["-DX=a b", "-DY=c d"], []),
    "no macro": ("g++ x.cpp -UX -U Y", ["-UX", "-UY"], []),
    "directories": ("g++ x.cpp -I/a -I /b", ["-I/a", "-I/b"], []),
    "directories of the system": (
        "g++ x.cpp -isystem /a -isystem/b",
        ["-isystem/a", "-isystem/b"],
        [],
    ),
    "extensions that the package says": ("g++ x.cpp -mavx512f -mfma", ["-mavx512f", "-mfma"], []),
    "a processor by name": ("g++ x.cpp -march=x86-64-v3", ["-march=x86-64-v3"], []),
    "a nothing at the end": ("g++ x.cpp -O1 -D", ["-O1", "-D"], []),
}  # fmt: skip


@pytest.mark.parametrize("what", FLAGS)
def test_flags_of_a_compile_command(what: str) -> None:
    command, kept, notes = FLAGS[what]
    found = recipe.compile_flags(words(command), same)
    assert list(found.arguments) == kept
    assert set(notes) <= set(found.notes)


def words(command: str) -> tuple[str, ...]:
    return model(told("// Compile cmd", f"// {command}")).command("Compile")


def test_a_precompiled_header_is_kept_where_it_is(tmp_path: Path) -> None:
    header = tmp_path / "x.h"
    command = words(f"g++ x.cpp -march=native -include {header} -O1")
    assert recipe.compile_flags(command, same).arguments == ("-O1",)
    assert recipe.compile_flags(command, same, native=True).arguments == ("-march=native", "-O1")
    header.touch()  # not the one that was compiled
    assert recipe.compile_flags(command, same).arguments == ("-O1",)
    header.with_name("x.h.gch").touch()
    kept = ("-march=native", "-include", str(header), "-O1")
    assert recipe.compile_flags(command, same).arguments == kept
    assert recipe.compile_flags(command, same, native=True).arguments == kept
    assert recipe.compile_flags(command, same, header=False).arguments == ("-O1",)
    without = words("g++ x.cpp -march=native -O1")
    assert recipe.compile_flags(without, same).arguments == ("-O1",)


def test_a_directory_that_is_not_here_is_dropped_with_a_note() -> None:
    found = recipe.compile_flags(words("g++ x.cpp -I/a -isystem /b -isystem/c -O1"), nowhere)
    assert found.arguments == ("-O1",)
    assert found.notes == ("dropped: /a", "dropped: /b", "dropped: /c")


LINK_FLAGS: dict[str, tuple[str, list[str]]] = {
    "files and results": ("g++ x.o y.o -o x.so -c", []),
    "macros, directories, warnings": ("g++ x.o -DX -I/a -Wall -pedantic -std=c++17", []),
    "this processor": ("g++ x.o -march=native -mtune=native", []),
    "a plugin": ("g++ x.o -fplugin=/evil.so -B/evil", []),
    "libraries": ("g++ x.o -la -l b -L/a -L /b", ["-la", "-lb", "-L/a", "-L/b"]),
    "code": ("g++ x.o -shared -fPIC -O3 -mfma -flto", ["-fPIC", "-O3", "-mfma", "-flto"]),
}  # fmt: skip


@pytest.mark.parametrize("what", LINK_FLAGS)
def test_flags_of_a_link_command(what: str) -> None:
    command, kept = LINK_FLAGS[what]
    assert list(recipe.link_flags(words(command), same).arguments) == kept


COMPILERS: dict[str, tuple[str, str]] = {
    "no compiler but a program": ("rm x.cpp", "g++"),
    "an interpreter": ("python3 x.cpp", "g++"),
    "a shell": ("/bin/sh x.cpp", "g++"),
    "a launcher alone": ("ccache x.cpp", "g++"),
    "one that is not here": ("/nowhere/bin/g++-99 x.cpp", "g++"),
    "nothing": ("", "g++"),
    "a path": ("/usr/bin/g++ x.cpp", "g++"),
    "behind ccache": ("ccache /usr/bin/clang++ x.cpp -c", "clang++"),
    "behind a launcher with options": ("sccache --x g++-12 x.cpp", "g++-12"),
    "in front of options": ("clang++ -O1 -c x.cpp", "clang++"),
    "in front of an option's value": ("clang++ -I include -D X -c x.cpp", "clang++"),
    "for linking": ("clang++-18 x.o -o x.so", "clang++-18"),
    "c++": ("c++ x.cpp", "c++"),
    "of another target": ("x86_64-linux-gnu-g++ x.cpp", "x86_64-linux-gnu-g++"),
}


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs that a command might name."""
    folder = tmp_path / "tools"
    folder.mkdir()
    names = ("g++", "g++-12", "clang++", "clang++-18", "c++", "x86_64-linux-gnu-g++")
    for name in (*names, "rm", "python3", "sh", "ccache", "sccache"):
        (folder / name).write_text("")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CXX", raising=False)
    return folder


@pytest.mark.parametrize("what", COMPILERS)
def test_the_compiler_of_a_command(what: str, tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command, expected = COMPILERS[what]
    assert recipe.compile_flags(words(command), same).compiler == str(tools / expected)
    assert recipe.link_flags(words(command), same).compiler == str(tools / expected)
    monkeypatch.setenv("CXX", "clang++-18")
    assert recipe.compile_flags(words(command), same).compiler == str(tools / "clang++-18")


def test_a_machine_without_compiler(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("g++", "clang++"):
        (tools / name).unlink()
    assert recipe.compile_flags(words("g++ x.cpp"), same).compiler == ""
    monkeypatch.setenv("PATH", "")
    assert machines.compiler("clang++-18") == ""


# --- Directories ----------------------------------------------------------------------------------

PLACES: dict[str, tuple[str, str]] = {
    # Not to be taken for something of this machine.
    "something else": ("/nowhere/other/include", ""),
    "what ends like torch": ("/nowhere/pytorch/include", ""),
    "a directory of torch's sources": ("/src/torch/csrc", ""),
    "Python's libraries": ("/nowhere/lib/python3.12", ""),
    "no path": ("", ""),
    # To be.
    "headers of torch": ("/nowhere/site-packages/torch/include", "{torch}/include"),
    "headers of its C++ interface": (
        "/nowhere/torch/include/torch/csrc/api/include",
        "{torch}/include/torch/csrc/api/include",
    ),
    "headers that this torch has not": ("/nowhere/torch/include/THC", ""),
    "libraries of torch": ("/nowhere/torch/lib", "{torch}/lib"),
    "headers of Python": ("/usr/include/python3.12", "{python}"),
    "of a debug build": ("/usr/include/python3.12d", "{python}"),
    "headers of CUDA": ("/nowhere/cuda/include", "{cuda}/include"),
    "of a version": ("/nowhere/cuda-13.0/targets/x86_64-linux/include/", "{cuda}/include"),
    "of a wheel": ("/nowhere/site-packages/nvidia/cuda_runtime/include", "{cuda}/include"),
    "of a newer wheel": ("/nowhere/site-packages/nvidia/cu13/include", "{cuda}/include"),
    "libraries of CUDA": ("/nowhere/cuda-13.0/targets/x86_64-linux/lib", "{cuda}/lib64"),
    "stubs": ("/nowhere/cuda-13.0/targets/x86_64-linux/lib/stubs", "{cuda}/lib64/stubs"),
}


@pytest.fixture
def here(tmp_path: Path) -> Machine:
    """A machine with directories."""
    for name in ("torch/include/torch/csrc/api/include", "torch/lib", "python", "cuda/include"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "cuda/lib64/stubs").mkdir(parents=True)
    return replace(
        HERE,
        torch=replace(CUDA, root=tmp_path / "torch"),
        python_include=tmp_path / "python",
        cuda_include=tmp_path / "cuda/include",
    )


@pytest.mark.parametrize("what", PLACES)
def test_directories_of_another_machine(what: str, here: Machine, tmp_path: Path) -> None:
    path, expected = PLACES[what]
    places = {name: str(tmp_path / name) for name in ("torch", "python", "cuda")}
    found, note = recipe.directory(here, path)
    assert found == expected.format(**places)
    if path:
        assert note == (
            f"remapped: {path} to {found}" if found else f"dropped: {path}, not on this machine"
        )


def test_directories_that_are_here_stay(here: Machine, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    assert recipe.directory(here, str(tmp_path / "other")) == (str(tmp_path / "other"), "")
    # Another toolkit that is here as well is not the one that was asked for.
    (tmp_path / "cuda-12/include").mkdir(parents=True)
    assert recipe.directory(here, str(tmp_path / "cuda-12/include"))[0] == str(here.cuda_include)
    assert here.torch is not None
    own = f"{here.torch.root}/include"
    assert recipe.directory(here, own) == (own, "")
    # Another torch that is here as well is not the one that the package is checked against.
    (tmp_path / "venv/torch/include").mkdir(parents=True)
    assert recipe.directory(here, str(tmp_path / "venv/torch/include"))[0] == own


def test_directories_of_what_is_not_here(tmp_path: Path) -> None:
    bare = replace(HERE, torch=None, python_include=None, cuda_include=None)
    for path, _ in PLACES.values():
        assert recipe.directory(bare, path)[0] == ""
    # Libraries of a toolkit that is laid out in another way, or has no stubs.
    (tmp_path / "cuda/include").mkdir(parents=True)
    (tmp_path / "cuda/lib").mkdir()
    machine = replace(HERE, cuda_include=tmp_path / "cuda/include")
    assert recipe.directory(machine, "/nowhere/cuda/lib64")[0] == str(tmp_path / "cuda/lib")
    assert recipe.directory(machine, "/nowhere/cuda/lib64/stubs")[0] == ""


def test_the_toolkit_is_the_one_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for home in ("empty", "half", "whole", "other"):
        (tmp_path / home / "include").mkdir(parents=True)
    (tmp_path / "half/include/cuda.h").touch()
    for home in ("whole", "other"):
        for header in ("cuda.h", "cuda_runtime_api.h"):
            (tmp_path / home / "include" / header).touch()
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "whole"))
    assert machines.Machine.detect().cuda_include == tmp_path / "whole/include"
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "other"))
    assert machines.Machine.detect().cuda_include == tmp_path / "whole/include"
    for home in ("empty", "half", "nowhere"):
        monkeypatch.setenv("CUDA_HOME", str(tmp_path / home))
        assert machines.Machine.detect().cuda_include == tmp_path / "other/include"
    monkeypatch.delenv("CUDA_HOME")
    monkeypatch.delenv("CUDA_PATH")
    wheel = tmp_path / "site/nvidia/cuda_runtime/include"
    wheel.mkdir(parents=True)
    for header in ("cuda.h", "cuda_runtime_api.h"):
        (wheel / header).touch()
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    if not Path("/usr/local/cuda/include/cuda.h").exists():
        assert machines.Machine.detect().cuda_include == wheel


@pytest.mark.parametrize("fixture", AOTI, ids=str)
def test_real_commands_for_this_machine(fixture: Fixture, here: Machine, tmp_path: Path) -> None:
    found = recipe.choose(of_fixture(fixture), exporting(fixture), here)
    assert found.route == "link"
    assert found.wrapper is not None
    for part in found.wrapper.arguments:
        assert part.startswith("-")
        assert "native" not in part
        assert part not in ("-c", "-o", "-include")
        assert not part.startswith(("-l", "-L"))
        if part.startswith("-I"):
            assert Path(part[2:]).is_relative_to(tmp_path)
    arguments = found.wrapper.arguments
    assert f"-I{tmp_path / 'torch/include'}" in arguments
    assert f"-I{tmp_path / 'python'}" in arguments
    assert (f"-I{tmp_path / 'cuda/include'}" in arguments) == (
        "cuda/include" in fixture.data.decode()
    )
    assert any(part.startswith("-std=c++") for part in arguments)
    assert any(part.startswith("-DCPU_CAPABILITY") for part in arguments)
    whole = recipe.choose(of_fixture(fixture), exporting(fixture), here, "full")
    assert whole.link is not None
    assert "-ltorch" in whole.link.arguments
    assert f"-L{tmp_path / 'torch/lib'}" in whole.link.arguments
    assert len(whole.kernels) == len(of_fixture(fixture).kernels)
    assert any("torch/include" in note for note in whole.notes)


# --- Routes ---------------------------------------------------------------------------------------


def exporting(fixture: Fixture) -> Library:
    """The library of a fixture's package: it exports what the wrapper calls."""
    names = recipe._KERNEL_USE.findall(fixture.data.decode())
    return replace(SHARED, exports=frozenset({CONSTANTS, *names}))


CALL = b"  cpp_fused_relu_0(x, y);\n"
DEFINED = b'extern "C" void cpp_fused_relu_0(const float* x,\n  float* y)\n{\n}\n'
DECLARED = b'extern "C" void cpp_fused_relu_0(const float* x, float* y);\n'


def linked(*objects: str) -> Model:
    """A model whose library was linked from its wrapper and these objects."""
    return model(
        told("// Link cmd", " ".join(["// g++ /t/x.wrapper.o", *(f"/t/{x}" for x in objects)]))
    )


ROUTES: dict[str, tuple[Route, Model, Library | None, str]] = {
    "sources of a library": ("sources", model(), SHARED, "the package has a library"),
    "a link without library": ("link", model(library=None), None, "holds no library"),
    "all of no library": ("full", model(library=None), None, "holds no library"),
    "a name of its own": ("link", model(), replace(SHARED, soname="libx.so"), "(libx.so)"),
    "no constants to find": (
        "link",
        model(),
        replace(SHARED, exports=frozenset()),
        f"does not export {CONSTANTS}",
    ),
    "a kernel that is not exported": (
        "link",
        model(DECLARED + CALL),
        SHARED,
        "does not export cpp_fused_relu_0",
    ),
    "constants that were stripped": (
        "full",
        model(),
        replace(SHARED, constants=None),
        "it was stripped",
    ),
    "a kernel that is not in the package": (
        "full",
        linked("k.kernel.o"),
        SHARED,
        "the library holds k.kernel.o",
    ),
    "an object from elsewhere": ("full", linked("fancy.o"), SHARED, "the library holds fancy.o"),
    "a kernel of another package": ("full", linked("y/k.o"), SHARED, "the library holds k.o"),
    # Those that serve.
    "sources": ("sources", model(library=None), None, ""),
    "a link": ("link", model(), SHARED, ""),
    "a link to a kernel": (
        "link",
        model(DECLARED + CALL),
        replace(SHARED, exports=SHARED.exports | {"cpp_fused_relu_0"}),
        "",
    ),
    "a kernel in the wrapper itself": ("link", model(DEFINED + CALL), SHARED, ""),
    "all": ("full", model(), SHARED, ""),
    "all, with a name": ("full", model(), replace(SHARED, soname="libx.so"), ""),
    "all, of its own objects": (
        "full",
        replace(linked("k.kernel.o", "x/w.weights.o"), kernels={"m/k.kernel.cpp": KERNEL}),
        SHARED,
        "",
    ),
    "all, constants by their directory": ("full", linked("x/w.o"), SHARED, ""),
}


@pytest.mark.parametrize("what", ROUTES)
def test_obstacles_of_routes(what: str) -> None:
    route, found, library, says = ROUTES[what]
    said = recipe.obstacle(route, found, library)
    assert says in said
    assert bool(said) == bool(says)


@pytest.mark.parametrize("fixture", AOTI, ids=str)
def test_every_release_can_be_linked_and_built_in_full(fixture: Fixture) -> None:
    for route in ("link", "full"):
        assert recipe.obstacle(route, of_fixture(fixture), exporting(fixture)) == ""


def test_the_first_route_that_serves_is_taken() -> None:
    assert recipe.choose(model(), SHARED, HERE).route == "link"
    named = replace(SHARED, soname="libx.so")
    chosen = recipe.choose(model(), named, HERE)
    assert chosen.route == "full"
    assert "libx.so" in chosen.why
    assert recipe.choose(model(library=None), None, HERE).route == "sources"
    assert recipe.choose(model(), SHARED, HERE, "full").why == "asked for"


@pytest.mark.parametrize("wanted", [None, "link", "full", "sources"])
def test_no_route_says_why(wanted: Route | None) -> None:
    broken = replace(SHARED, soname="libx.so", constants=None)
    with pytest.raises(RewriterError) as caught:
        recipe.choose(model(), broken, HERE, wanted)
    assert caught.value.slug == "no-route"
    assert caught.value.code == BAD_INPUT
    for route in recipe.ROUTES:
        assert (f"{route}: " in caught.value.message) == (wanted in (None, route))


# --- Refused before any work ----------------------------------------------------------------------

CUDA_MODEL = of_fixture(get("cuda-torch2.11/mlp aoti"))
CUDA_MODEL = replace(
    CUDA_MODEL,
    metadata={
        "AOTI_DEVICE_KEY": "cuda",
        "AOTI_PLATFORM": "linux",
        "AOTI_MACHINE": "x86_64",
        "AOTI_CPU_ISA": "AVX512 AVX512_VNNI AMX_TILE",
    },
)
CPU_MODEL = replace(
    CUDA_MODEL,
    metadata=CUDA_MODEL.metadata | {"AOTI_DEVICE_KEY": "cpu"},  # type: ignore[operator]
)
AMX = replace(HERE, features=HERE.features | {"amx_tile"})


def _cpu(torch: Torch) -> Torch:
    return replace(torch, version="2.11.0+cpu", cuda="")


@dataclass(frozen=True)
class Case:
    """What is to be built where, and whether it is loaded there, too."""

    model: Model = CUDA_MODEL
    library: Library | None = SHARED
    machine: Machine = AMX
    runs_here: bool = True

    def checks(self) -> Iterator[preflight.Check]:
        return preflight.checks(self.model, self.library, self.machine, runs_here=self.runs_here)


def says(**metadata: str) -> Model:
    return replace(CUDA_MODEL, metadata=metadata)


EARLIER, LATER = (replace(CUDA, version=f"{release}.0+cu130") for release in ("2.6", "2.13"))
REFUSED: dict[str, tuple[str, Case]] = {
    "another system": ("wrong-machine", Case(machine=replace(AMX, system="darwin"))),
    "made on another system": ("wrong-machine", Case(says(AOTI_PLATFORM="windows"))),
    "another processor": (
        "wrong-machine",
        Case(machine=replace(AMX, processor="aarch64"), runs_here=False),
    ),
    "a library for another processor": (
        "wrong-machine",
        Case(library=replace(SHARED, machine="AARCH64"), runs_here=False),
    ),
    "metadata for another processor": (
        "wrong-machine",
        Case(replace(says(AOTI_MACHINE="aarch64"), library=None), None),
    ),
    "a lesser processor": ("wrong-machine", Case(CPU_MODEL, machine=HERE)),
    "the C++ library within": (
        "bad-library",
        Case(library=replace(SHARED, needed=("libtorch.so", "libc.so.6"))),
    ),
    "no command": ("no-build-command", Case(replace(CUDA_MODEL, source=b""))),
    "no torch": ("no-torch", Case(machine=replace(AMX, torch=None))),
    "an earlier torch": ("other-torch", Case(machine=replace(AMX, torch=EARLIER))),
    "a later torch": ("other-torch", Case(machine=replace(AMX, torch=LATER))),
    "torch for the CPU": ("no-cuda-torch", Case(machine=replace(AMX, torch=_cpu(CUDA)))),
    "no CUDA headers": ("no-cuda-headers", Case(machine=replace(AMX, cuda_include=None))),
}
PASSED = {
    "CUDA": Case(),
    "CUDA with libc++": Case(library=replace(SHARED, needed=("libc++.so.1",))),
    "a lesser processor, not loaded here": Case(CPU_MODEL, machine=HERE, runs_here=False),
    "the CPU, with torch for it and no headers": Case(
        CPU_MODEL, machine=replace(AMX, torch=_cpu(CUDA), cuda_include=None)
    ),
    "a package of 2.6, which says less": Case(says(AOTI_DEVICE_KEY="cpu"), machine=HERE),
}


def package(of: Model) -> Package:
    path = Path("a.pt2")
    return Package(
        path, (), container=Zip(path, of.members), root="m/", models=(of,), manifest=None
    )


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_built_here_is_refused(what: str) -> None:
    slug, case = REFUSED[what]
    code = FAILED if slug in ("no-torch", "no-cuda-headers") else BAD_INPUT
    with pytest.raises(RewriterError) as caught:
        preflight.require(case.checks(), package(case.model), case.model)
    assert caught.value.slug == slug
    assert caught.value.code == code
    assert caught.value.message.startswith("a.pt2: model 'model': ")
    assert caught.value.hint.endswith(".")
    # All of it is shown by `doctor`, the failure among it.
    every = list(case.checks())
    assert next(check.error for check in every if check.ok is False) == slug
    assert all(check.hint and check.error for check in every if check.ok is False)


@pytest.mark.parametrize("what", PASSED)
def test_what_can_be_built_here_passes(what: str) -> None:
    case = PASSED[what]
    passed = list(case.checks())
    preflight.require(iter(passed), package(case.model), case.model)
    noted = [check for check in passed if check.ok is None]
    assert len(noted) == ("not loaded here" in what)


def test_no_compiler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(RewriterError) as caught:
        preflight.require(preflight.checks(CPU_MODEL, SHARED, AMX), package(CPU_MODEL), CPU_MODEL)
    assert caught.value.slug == "no-compiler"
    assert caught.value.code == FAILED


# --- Real libraries -------------------------------------------------------------------------------

SOURCE = """
#include <string>
extern "C" unsigned char _binary_constants_bin_start[8] = {1, 2, 3, 4, 5, 6, 7, 8};
extern "C" unsigned char _binary_constants_bin_end[1] = {0};
extern "C" void wanted_elsewhere();
extern "C" __attribute__((weak)) void wanted_weakly();
extern "C" std::size_t cpp_fused_relu_0(const char* text) {
  wanted_elsewhere();
  if (wanted_weakly) wanted_weakly();
  return std::string(text).append(text).size();
}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`built("-shared")` is a library, or a program, with these options."""
    if not (compiler := shutil.which("g++")):
        pytest.skip("needs g++")
    folder = tmp_path_factory.mktemp("libraries")
    (folder / "x.cpp").write_text(SOURCE)
    (folder / "main.cpp").write_text("int main() {}\n")
    done: dict[tuple[str, ...], Path] = {}

    def get(*options: str, source: str = "x.cpp") -> Path:
        if (key := (*options, source)) not in done:
            output = folder / f"{len(done)}.so"
            command = [compiler, "-O1", source, "-o", str(output), *options]
            subprocess.run(command, cwd=folder, check=True, capture_output=True)
            done[key] = output
        return done[key]

    return get


SHARE = ("-shared", "-fPIC")


@pytest.mark.programs
def test_a_library_is_read(built: Callable[..., Path]) -> None:
    path = built(*SHARE)
    found = libraries.read(path, "x.so")
    assert found.soname == ""
    assert any(name.startswith("libstdc++.so") for name in found.needed)
    assert not found.is_static
    assert {CONSTANTS, "cpp_fused_relu_0"} <= found.exports
    assert "wanted_elsewhere" in found.wants
    assert "wanted_weakly" not in found.wants
    # Those with a version come from a library that the linker knows.
    assert not any(name.startswith("_ZSt") for name in found.wants)
    assert found.constants is not None
    data = path.read_bytes()[found.constants.offset :]
    assert data.startswith(bytes(range(1, 9)))
    assert found.constants.section == ".data"
    assert found.constants.writable
    assert recipe.obstacle("link", model(DECLARED + CALL), found) == ""
    assert libraries.provided([path], ["cpp_fused_relu_0", "wanted_elsewhere", "x"]) == {
        "cpp_fused_relu_0"
    }


@pytest.mark.programs
def test_a_library_with_the_cpp_library_in_it_is_refused(built: Callable[..., Path]) -> None:
    found = libraries.read(built(*SHARE, "-static-libstdc++"), "x.so")
    assert found.is_static
    (failed,) = (check for check in preflight.checks(CPU_MODEL, found, AMX) if check.ok is False)
    assert failed.error == "bad-library"


@pytest.mark.programs
def test_a_library_with_a_name_cannot_be_linked_to(built: Callable[..., Path]) -> None:
    found = libraries.read(built(*SHARE, "-Wl,-soname,libx.so"), "x.so")
    assert found.soname == "libx.so"
    assert "libx.so" in recipe.obstacle("link", model(), found)
    assert recipe.obstacle("full", model(), found) == ""


@pytest.mark.programs
def test_hidden_symbols_cannot_be_linked_to(built: Callable[..., Path]) -> None:
    found = libraries.read(built(*SHARE, "-fvisibility=hidden"), "x.so")
    assert "does not export" in recipe.obstacle("link", model(), found)
    # Without the linker they are still in the other table, until that is stripped.
    assert found.constants is not None
    assert recipe.obstacle("full", model(), found) == ""
    found = libraries.read(built(*SHARE, "-fvisibility=hidden", "-s"), "x.so")
    assert found.constants is None
    assert "stripped" in recipe.obstacle("full", model(), found)


@pytest.mark.programs
def test_a_stripped_library_can_be_linked_to(built: Callable[..., Path]) -> None:
    found = libraries.read(built(*SHARE, "-s"), "x.so")
    assert recipe.obstacle("link", model(DECLARED + CALL), found) == ""
    assert recipe.obstacle("full", model(), found) == ""


def _no_sections(data: bytes) -> bytes:
    """Without section headers: `strip --strip-section-headers`."""
    return data[:0x28] + bytes(8) + data[0x30:0x3C] + bytes(4) + data[0x40:]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "no ELF": lambda data: b"MZ" + data[2:],
    "the magic alone": lambda data: data[:4],
    "a head alone": lambda data: data[:64],
    "cut": lambda data: data[: len(data) // 2],
    "no section headers": _no_sections,
    "another class": lambda data: data[:4] + b"\1" + data[5:],
    "another order of bytes": lambda data: data[:5] + b"\2" + data[6:],
    "no class": lambda data: data[:4] + b"\0" + data[5:],
    "section headers behind the file": lambda data: data[:0x28] + b"\xff" * 8 + data[0x30:],
    "names of sections elsewhere": lambda data: data[:0x3E] + b"\xf0\xff" + data[0x40:],
    "zeros": lambda data: data[:64] + bytes(len(data) - 64),
    "ones": lambda data: data[:64] + b"\xff" * (len(data) - 64),
}


@pytest.mark.programs
@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_library_is_refused(
    what: str, built: Callable[..., Path], tmp_path: Path
) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(DAMAGE[what](built(*SHARE).read_bytes()))
    with pytest.raises(RewriterError) as caught:
        libraries.read(path, "a.pt2: m/x.so")
    assert caught.value.slug == "bad-library"
    assert caught.value.message.startswith("a.pt2: m/x.so: no shared object that can be ")


@pytest.mark.programs
@pytest.mark.parametrize("options", [("-static",), ("-static-pie",), ("-pie",), ("-c",)], ids=str)
def test_what_is_no_shared_object_is_refused(
    options: tuple[str, ...], built: Callable[..., Path]
) -> None:
    with pytest.raises(RewriterError) as caught:
        libraries.read(built(*options, source="main.cpp"), "x.so")
    assert caught.value.slug == "bad-library"
