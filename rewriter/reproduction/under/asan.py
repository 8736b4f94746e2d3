"""A C++ kernel under AddressSanitizer and UBSan: a program of its own, each argument a block of its
own of exactly its size."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rewriter.core import json_text
from rewriter.core.types import Json
from rewriter.reproduction.under.host import launches
from rewriter.reproduction.under.tool import (
    Finding,
    Memory,
    UnderResult,
    again,
    execute,
    last_line,
    line_of,
    nearest,
    no_tool,
    not_for,
)

UNDEFINED = "undefined behaviour"  # the kind of what does not end the program
FOLDER, KERNEL, PROGRAM, AGAIN = "asan", "kernel.cpp", "main.cpp", "run.sh"
_NOTE = "Reads of memory that nothing wrote are not seen: that takes clang's MemorySanitizer."
_FLAGS = (
    "-fsanitize=address,undefined", "-fsanitize-recover=address", "-fno-sanitize=vptr,alignment",
    "-fno-omit-frame-pointer", "-g", "-O1",
)  # fmt: skip
# Flags that `_FLAGS` replaces, and those that only a Python extension needs.
_DROPPED = (
    "-shared", "-fPIC", "-O3", "-O2", "-O1", "-O0", "-g", "-g1", "-DNDEBUG", "-Wall", "-pedantic",
    "-ltorch_python",
)  # fmt: skip
_OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:symbolize=1:print_legend=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    # Threads go on while one of them reports, and overwrite what it is reported from.
    "OMP_NUM_THREADS": "1",
}
# After an error, go on: each further access is reported, too, in short. The limit also holds for
# kernels that ask for a number of threads.
_GOING_ON = {
    "ASAN_OPTIONS": "detect_leaks=0:symbolize=0:print_legend=0:halt_on_error=0"
    ":suppress_equal_pcs=0",
    "OMP_THREAD_LIMIT": "1",
}
_FARTHEST = 1 << 20  # bytes behind an array, or beside an argument, that are taken for a part of it
_ERROR = re.compile(r"ERROR: AddressSanitizer: (?P<kind>[\w-]+)")
_ACCESS = re.compile(
    r"^(?P<what>READ|WRITE) of size (?P<size>\d+) at (?P<at>0x[0-9a-f]+)", re.MULTILINE
)
_ADDRESS = re.compile(r"on (?:unknown )?address (0x[0-9a-f]+)")
_FRAME = re.compile(rf"^\s*#\d+ .*/{re.escape(KERNEL)}:(\d+)", re.MULTILINE)
_UNDEFINED = re.compile(
    r"^(?P<file>\S+?):(?P<line>\d+):\d+: runtime error: (?P<what>.+)$", re.MULTILINE
)
_REGION = re.compile(r"-byte region \[(0x[0-9a-f]+),(0x[0-9a-f]+)\)")
_ALLOCATED = re.compile(r"^allocated by thread.*", re.MULTILINE)
_FRAME_OFFSET = re.compile(r"is located in stack of thread \S+ at offset (\d+) in frame")
_VARIABLE = re.compile(r"^\s*\[(\d+), (\d+)\) '(\w+)'.*<== Memory access", re.MULTILINE)
_SIZES = {
    "float": 4, "double": 8, "bool": 1, "char": 1, "int": 4, "half": 2, "Half": 2, "BFloat16": 2,
    **{f"{sign}int{bits}_t": bits // 8 for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
_DECLARED = re.compile(r"\b(\w+)(?:\s*\[\]>|\s*\*)?\s+(\w+)\s*[\[=({]")
_MADE = re.compile(r"(?:make_unique<|\bnew )(?:\w+::)*(\w+)")
_ARGUMENT = re.compile(r"^argument (\d+) (0x[0-9a-f]+)$", re.MULTILINE)
_SIGNATURE = re.compile(r'extern "C"[^(]*\bkernel\s*\(([^)]*)\)')
_HEAD = """// What the launch was handed, each in a block of exactly its size.
#include "kernel.cpp"
#include <cstdio>
#include <cstdlib>
#include <sanitizer/asan_interface.h>
#include <unistd.h>

static void reported(const char*) {
    static int reports = 0;
    if (++reports == 4096) _exit(4);
}

static char* given(int number, const char* file, size_t bytes) {
    void* block = nullptr;
    if (posix_memalign(&block, 64, bytes)) exit(3);
    FILE* stream = fopen(file, "rb");
    if (!stream || fread(block, 1, bytes, stream) != bytes) exit(3);
    fclose(stream);
    fprintf(stderr, "argument %d %p\\n", number, block);
    return static_cast<char*>(block);
}

int main(int argc, char** argv) {
"""


@dataclass(frozen=True)
class _Parameter:
    """A parameter of the kernel that is memory: where in which block it begins."""

    name: str
    argument: str
    block: int
    offset: int
    item: int
    size: int


def run(directory: Path, arguments: Mapping[str, str], *, timeout: float) -> UnderResult:
    """Build and run the kernel of a `repro.py` under the sanitizers of g++.

    `arguments` gives the dump's name of an argument for the variable that it has in the script.
    Leaves the sources in the directory, `asan/`. Raises `RewriterError` where the launch is none of
    a C++ kernel, or the sanitizers are not there.
    """
    folder = directory / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    captured = _captured(directory, folder, timeout)
    command = build(folder, captured, timeout)
    findings, output = watch(folder, captured, arguments, timeout)
    program = again(_OPTIONS, ["./program", *_words(captured["calls"][0], captured["memory"])])
    lines = ("set -e", 'cd "$(dirname "$0")"', shlex.join(command), program, "")
    (folder / AGAIN).write_text("\n".join(lines), encoding="utf-8")
    return UnderResult("asan", findings, shlex.join(["sh", str(folder / AGAIN)]), output, _NOTE)


def build(folder: Path, captured: Json, timeout: float) -> list[str]:
    """Write and compile the program for what a launch was handed; the command that compiled it."""
    if not captured["calls"]:
        raise not_for("asan", "it watches kernels in C++, and this launch runs none")
    call = captured["calls"][0]
    (folder / KERNEL).write_text(call["source"], encoding="utf-8")
    (folder / PROGRAM).write_text(_program(call, captured["memory"]), encoding="utf-8")
    command = _command(captured["build"])
    built = execute("asan", command, folder, timeout, _OPTIONS)
    if built.returncode:
        if "-lasan" in built.stderr or "libasan" in built.stderr or "libubsan" in built.stderr:
            raise no_tool("asan", "g++ finds no libasan", "Install it: gcc's libasan and libubsan.")
        lines = [x for x in built.stderr.splitlines() if "error" in x] or built.stderr.splitlines()
        raise no_tool("asan", f"the kernel does not compile: {lines[0] if lines else ''}", "")
    return command


def watch(
    folder: Path, captured: Json, arguments: Mapping[str, str], timeout: float
) -> tuple[tuple[Finding, ...], str]:
    """Run the program on the memory in its folder: what was found, and all it printed."""
    call, memory = captured["calls"][0], captured["memory"]
    command = ["./program", *_words(call, memory)]
    ran = execute("asan", command, folder, timeout, _OPTIONS)
    parameters = list(_parameters(call, memory, arguments))
    findings = _findings(ran.stderr, parameters, call["source"].splitlines())
    if any(finding.is_own and finding.kind.startswith("heap") for finding in findings):
        # What lies behind an array on the stack is the program's own, and not reported.
        every = execute("asan", command, folder, timeout, _GOING_ON).stderr
        findings = tuple(
            _as_far_as(finding, every) if finding.is_own else finding for finding in findings
        )
    if not findings and ran.returncode:
        findings = (Finding("crash", f"it ended with {ran.returncode}"),)
    return findings, ran.stderr


def _captured(directory: Path, folder: Path, timeout: float) -> Json:
    words = ["handed", str(directory / "repro.py"), str(folder)]
    command = [sys.executable, str(launches.__file__), *words]
    ran = execute("asan", command, directory, timeout)
    if ran.returncode:
        raise not_for("asan", f"its script does not run here: {last_line(ran.stderr)}")
    return json_text.parse_object((folder / "launch.json").read_bytes())


def _command(build: Json) -> list[str]:
    flags = [x for flag in build["flags"] for x in shlex.split(flag) if x not in _DROPPED]
    libraries = [x for x in build["libraries"] if x not in _DROPPED]
    return [build["compiler"], PROGRAM, "-o", "program", *flags, *_FLAGS, *libraries, "-lc10"]


def _program(call: Json, memory: Sequence[Json]) -> str:
    """The program around a kernel; sizes of blocks and numbers come from its command line."""
    lines = [f"    if (argc != {1 + len(_words(call, memory))}) return 3;"]
    lines += ["    __asan_set_error_report_callback(reported);"]
    lines += [
        f'    char* block_{x["index"]} = given({x["index"]}, "memory_{x["index"]}.bin", '
        f"strtoull(argv[{1 + x['index']}], nullptr, 10));"
        for x in memory
    ]
    values = []
    number = 1 + len(memory)
    for kind, argument in zip(call["types"], call["args"], strict=False):
        if "memory" in argument:
            values.append(f"({kind})(block_{argument['memory']} + {argument['offset']})")
        else:
            read = "strtod(argv[{}], nullptr)" if isinstance(argument["value"], float) else ""
            read = read or "strtoll(argv[{}], nullptr, 10)"
            values.append(f"({kind}){read.format(number)}")
            number += 1
    return f"{_HEAD}{chr(10).join(lines)}\n    kernel({', '.join(values)});\n    return 0;\n}}\n"


def _words(call: Json, memory: Sequence[Json]) -> list[str]:
    """The command line of the program."""
    numbers = (argument["value"] for argument in call["args"] if "memory" not in argument)
    texts = (str(int(x)) if isinstance(x, bool) else str(x) for x in numbers)
    return [*(str(x["bytes"]) for x in memory), *texts]


def _parameters(
    call: Json, memory: Sequence[Json], arguments: Mapping[str, str]
) -> Sequence[_Parameter]:
    signature = _SIGNATURE.search(call["source"])
    names = [x.split()[-1].lstrip("*&") for x in signature[1].split(",")] if signature else []
    found = []
    for name, passed in zip(names, call["args"], strict=False):
        if "memory" in passed:
            block = memory[passed["memory"]]
            size = (block["bytes"] - passed["offset"]) // passed["item"]
            argument = arguments.get(block["variable"], "")
            found.append(
                _Parameter(name, argument, passed["memory"], passed["offset"], passed["item"], size)
            )
    return found


def _findings(
    output: str, parameters: Sequence[_Parameter], lines: Sequence[str]
) -> tuple[Finding, ...]:
    """What the sanitizers reported, each place once."""
    found: dict[tuple[str, int], Finding] = {}
    for match in _UNDEFINED.finditer(output):
        line = int(match["line"]) if match["file"].endswith(KERNEL) else 0
        if not line and (frame := _FRAME.search(output, match.end())):
            line = int(frame[1])
        one = Finding(UNDEFINED, match["what"], KERNEL, line, line_of(lines, line))
        found.setdefault((one.message, line), one)
    if error := _ERROR.search(output):
        report = output[error.start() :]
        frame = _FRAME.search(report)
        line = int(frame[1]) if frame else 0
        access = _ACCESS.search(report)
        address = access["at"] if access else next(iter(_ADDRESS.findall(report)), None)
        verb = {"READ": "reads", "WRITE": "writes"}[access["what"]] if access else "stops"
        message = f"{verb} {access['size']} bytes" if access else verb
        own = _own_array(report, int(address, 16), lines) if address else None
        place = _place(output, parameters, int(address, 16)) if address and own is None else None
        one = Finding(error["kind"], message, KERNEL, line, line_of(lines, line))
        if own is not None:
            name, element, size = own
            one = replace(one, parameter=name, element=element, size=size, is_own=True)
        elif place is not None:
            at, element = place
            one = replace(
                one, parameter=at.name, argument=at.argument, element=element, size=at.size
            )
        found[one.kind, line] = one
    return tuple(found.values())


def _place(
    output: str, parameters: Sequence[_Parameter], address: int
) -> tuple[_Parameter, int] | None:
    """The parameter whose memory is nearest to an address, and the element of it."""
    blocks = {int(number): int(at, 16) for number, at in _ARGUMENT.findall(output)}
    known = (x for x in parameters if x.block in blocks)
    best = nearest(
        ((x, Memory(blocks[x.block] + x.offset, x.size, x.item)) for x in known), address
    )
    return None if best is None or best[0] > _FARTHEST else best[1:]


def _own_array(
    report: str, address: int, lines: Sequence[str]
) -> tuple[str, int | None, int] | None:
    """The array of the kernel's own that a report is about: its name, the first element outside of
    it, and its size, `None` and 0 if its declaration is not understood. `None` if there is none."""
    bounds = _bounds(report, address)
    if bounds is None:
        return None
    start, end, name = bounds
    allocated = _ALLOCATED.search(report)
    frame = _FRAME.search(report, allocated.end()) if allocated else None
    if name:
        declared = next((x for x in lines if re.search(rf"\b{name}\s*\[", x)), "")
    elif frame is not None:
        declared = line_of(lines, int(frame[1]))
    else:
        return None  # the kernel did not allocate it
    for kind, variable in _DECLARED.findall(declared):
        if name in ("", variable):
            made = _MADE.search(declared)
            if not (item := _SIZES.get(made[1] if made else kind, 0)):
                return variable, None, 0
            size, at = (end - start) // item, (address - start) // item
            return variable, size if 0 <= at < size else at, size  # a vector may begin inside
    return name, None, 0


def _bounds(report: str, address: int) -> tuple[int, int, str] | None:
    """Where the array begins and ends that an access is beside, and its name on the stack."""
    frame, variable = _FRAME_OFFSET.search(report), _VARIABLE.search(report)
    if frame and variable:
        base = address - int(frame[1])
        return base + int(variable[1]), base + int(variable[2]), variable[3]
    region = _REGION.search(report)
    return None if region is None else (int(region[1], 16), int(region[2], 16), "")


def _as_far_as(finding: Finding, output: str) -> Finding:
    """The finding about an array of the kernel's own, with the first and the last element outside
    of it that are written. `output` has a report of each access."""
    first = _ACCESS.search(output)
    bounds = _bounds(output, int(first["at"], 16)) if first else None
    if bounds is None or not finding.size:
        return finding
    start, end, _ = bounds
    stores = (x for x in _ACCESS.finditer(output) if x["what"] == "WRITE")
    stored = [(max(end, int(x["at"], 16)), int(x["at"], 16) + int(x["size"])) for x in stores]
    behind = [(first, last) for first, last in stored if end < last <= end + _FARTHEST]
    if not behind:
        return finding
    item = (end - start) // finding.size
    begins, ends = min(behind)[0], max(last for _, last in behind)
    return replace(
        finding,
        message=f"writes {ends - begins} bytes",
        element=(begins - start) // item,
        last=(ends - start) // item - 1,
    )
