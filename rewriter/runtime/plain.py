"""The recorder in plain Python, for where the one in C++ cannot be loaded; needs torch alone.

`--standalone` puts this text into wrappers. It prints and writes what the other recorder does.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import math
import os
import re
import socket
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

PROBES = ("names", "nan", "print", "save", "sync", "time")
LACKS = {"last": "--keep", "max_bytes": "--max-bytes", "on": "--on", "dormant": "--dormant"}
LACKS |= {"values": "--values", "allow": "--allow", "stop": "--stop"}
# Kinds of launches that run on a GPU, wherever their arguments are: filled in by who loads this.
GPU: Sequence[str] = ()
NUMBERS = re.compile(r"bool|u?int(8|16|32|64)|bfloat16|float(8_\w+|16|32|64)|complex(32|64|128)")
BLOCK = 1 << 20  # elements that are converted to float64 at a time
Row = dict[str, Any]  # of a dump: an event, or what it says of a value
cuda: Any = torch.cuda


def attach(options: Row, launches: list[Row], inputs: Sequence[str] = ()) -> Any:
    """Make the recorder of one wrapper. Never raises: on an error it warns and records nothing."""
    if os.environ.get("REWRITER_PROBE", "").lower() == "off":
        return Silent()
    try:
        lacks = [name for name in options["probes"] if name not in PROBES]
        lacks += [name for key, name in LACKS.items() if options.get(key)]
        lacks += ["--format upstream"] * (options["format"] == "upstream")
        lacks += [x for x in ("REWRITER_KEEP", "REWRITER_MAX_BYTES") if os.environ.get(x)]
        if not lacks:
            return Recorder(options, launches, inputs)
        why = f"plain Python has no {', '.join(lacks)}; leave this out, or instrument without "
        why += "--standalone where inductor-rewriter and a C++ compiler are installed"
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
    say(f"[rewriter] warning: no probes: {why}\n")
    return Silent()


class Silent:
    """A recorder that does nothing."""

    on, due = False, staticmethod(lambda: False)
    allocated = staticmethod(lambda event, tensor: tensor)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *values: None


class Recorder(Silent):
    """Takes the calls of one wrapper. A probe that fails warns once and never stops the model."""

    def __init__(self, options: Row, launches: list[Row], inputs: Sequence[str]) -> None:
        self._options, self._rank, self._label = options, read_rank(), options.get("label", "")
        quiet = os.environ.get("REWRITER_QUIET", "0") not in ("", "0")
        self._is_quiet = quiet or bool(options.get("quiet"))
        self._wanted = wanted_calls(options)
        self._table = [declared(row) for row in launches]
        self._launches: dict[int, Row] = {row["launch"]: row for row in self._table}
        self._inputs = [["in", name] for name in inputs]
        self._acting: dict[str, set[str]] = {"inputs": set(), "before": set(), "after": set()}
        for name in options["probes"]:
            written = options.get("args") == "written" and name in ("nan", "print", "save")
            own = "before" if name == "names" else "after" if written else "both"
            when = "both" if name == "time" else options["when"] or own
            for phase in ("before", "after") if when == "both" else (when,):
                self._acting[phase].add(name)
            self._acting["inputs"] |= {name} if written or when != "after" else set()
        kinds = {row.get("kind", "") for row in launches}
        self._on_cpu = "cpp" in kinds and not kinds & {*GPU}
        root = options.get("directory") or os.environ.get("REWRITER_DUMP", "")
        self._dumps = bool(root) or "save" in options["probes"]
        self._root = Path(root or "rewriter_dump").absolute()
        self._number = self._next = 0  # of the next call; of a run that may be free
        self._calls: dict[int, SimpleNamespace] = {}  # by thread
        self._ended: list[SimpleNamespace] = []
        self._warned: set[str] = set()
        self._lock, self._pid, self._is_silent = threading.RLock(), os.getpid(), False
        self.begin, self.end = (partial(self._guarded, x) for x in (self._begin, self._end))
        self.inputs = partial(self._guarded, self._at, "inputs", -1)
        self.before, self.after = (partial(self._guarded, self._at, x) for x in ("before", "after"))
        atexit.register(self.close)

    def _guarded(self, act: Callable[..., None], *args: Any) -> None:
        """Run `act`, unseen by autograd and by modes of the program; an exception is a warning."""
        if not self._is_silent and self._pid != os.getpid():
            why = (
                "a fork of the probed process is not recorded; one that is started anew (spawn) is"
            )
            self._warn(f"process {os.getpid()}", why)
        if self._is_silent or self._pid != os.getpid():
            return
        with self._lock, contextlib.ExitStack() as stack:
            try:
                if torch._C._len_torch_dispatch_stack():
                    from torch.utils._python_dispatch import _disable_current_modes

                    stack.enter_context(_disable_current_modes())
                with torch._C.DisableTorchFunction(), torch._C._DisableAutocast(), torch.no_grad():
                    act(*args)
            except Exception as error:
                about = f"#{args[1]}" if args[1:] and args[1] >= 0 else "call"
                self._warn(about, f"{type(error).__name__}: {first_line(error)}")

    def _begin(self) -> None:
        data = sys.modules.get("torch.utils.data")  # its workers are not the program itself
        self._is_silent = data is not None and data.get_worker_info() is not None
        self._end()
        self._number += 1
        if self._wanted is None or any(self._number - 1 in calls for calls in self._wanted):
            self._start()

    def _start(self) -> SimpleNamespace:
        """Start a call in this thread, and its directory with a number that nobody has taken."""
        call = SimpleNamespace(number=max(self._number - 1, 0), begun=time.perf_counter_ns())
        vars(call).update(directory="", rows=-1, runs={}, shown=(None, {}), issued=0, later=[])
        self._calls[threading.get_ident()] = call
        if not self._dumps or self._is_silent:
            return call
        ranked, options = self._root / f"rank{self._rank}", self._options
        ranked.mkdir(parents=True, exist_ok=True)
        if not (self._root / "manifest.json").exists():
            write(self._root / "manifest.json", to_json(manifest(options)))
        self._next = max(self._next, call.number)
        while not call.directory:
            path, self._next = ranked / f"run{self._next}", self._next + 1
            with contextlib.suppress(FileExistsError):
                path.mkdir()
                call.directory = str(path)
        own = ("together", "memory_waits")
        rows = [{key: x for key, x in row.items() if key not in own} for row in self._table]
        facts: Row = {"format": "rewriter.run-launches", "version": 1}
        facts |= {"outputs": options.get("outputs", {}), "launches": rows}
        write(path / "launches.json", to_json(facts))
        facts = {"format": "rewriter.run", "version": 1, "artifact": options["artifact"]}
        facts |= {"sha256": options["sha256"], "label": self._label, "host": socket.gethostname()}
        facts |= {"call": call.number, "pid": os.getpid(), "thread": threading.get_ident()}
        write(path / "run.json", to_json({**facts, "started": time.time()}))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        call.rows = os.open(path / "events.jsonl", flags, 0o666)
        return call

    def _end(self, *, all_calls: bool = False) -> None:
        """End the call in this thread, which otherwise ends when its next one begins."""
        threads = list(self._calls) if all_calls else [threading.get_ident()]
        self._ended += [self._calls.pop(thread) for thread in threads if thread in self._calls]
        while self._ended and not is_capturing():
            call, zeros = self._ended.pop(0), dict[Any, tuple[Any, float]]()
            for event, start, mark, stopped in call.later:
                stopped.synchronize()
                zero, since = zeros.setdefault(mark.device, (mark, start))
                start = since + zero.elapsed_time(mark) * 1000
                self._time(event, call, start, mark.elapsed_time(stopped) * 1000, "cuda")
            if call.rows >= 0:
                os.close(call.rows)

    def close(self) -> None:
        """End recording for good."""
        self._guarded(partial(self._end, all_calls=True))
        self._is_silent = True

    def _at(self, phase: str, index: int, *contents: Any) -> None:
        """One phase of a launch; for -1, the inputs of the call."""
        now, call = time.perf_counter_ns(), self._calls.get(threading.get_ident())
        if call is None:
            if self._wanted is not None:
                return
            call = self._start()  # the program runs launches in a thread without `begin`
        launch, acting = self._launches.get(index, {}), self._acting[phase]
        event: Row = {"phase": phase}
        if launch:
            again = call.runs[phase, index] = call.runs.get((phase, index), -1) + 1
            event = {"launch": index, "phase": phase, "kernel": launch["kernel"]}
            event |= {"iteration": again} if again or launch["repeats"] else {}
        if phase == "after" and call.issued and not is_capturing():
            start = (call.issued - call.begun) / 1000
            if call.mark is None:
                self._time(event, call, start, (now - call.issued) / 1000, "host")
            else:
                call.later.append((event, start, call.mark, cuda_event()))
        call.issued = 0
        if launch and "names" in acting:  # before anything is touched that could fail
            self._write(f"{self._line(event, call)}\n")
        if is_capturing():
            why = "nothing in a CUDA graph is recorded; names are printed when it is captured"
            self._warn(name_of(event), why)
            return
        if "sync" in acting and (error := fault(contents, launch.get("kind", "cpp"))):
            if launch:  # the first launch will find the error of inputs
                self._append(call, event | {"error": error})
                earlier = " (of something before this launch)" * (phase == "before")
                say(f"{self._line(event, call, '')}: {error}{earlier}\n")
                self._is_silent = True
            return
        values = []
        for label, content in zip(launch[phase] if launch else self._inputs, contents, strict=True):
            try:
                for row, tensor in read(label[0], label[1], content):
                    values.append((row, tensor))
                    if tensor is not None and (self._dumps or acting & {"nan", "print"}):
                        row |= measure(tensor)
                    if tensor is not None and "save" in acting and call.directory:
                        row |= self._save(event, row, tensor, call)
            except Exception as error:
                about = f"{name_of(event)} {label[1]}"
                self._warn(about, f"{type(error).__name__}: {first_line(error)}")
        self._show(event, values, call, acting)
        if phase == "before" and "time" in acting:
            on_gpu = launch.get("kind") != "cpp" and not self._on_cpu and cuda.is_initialized()
            call.mark = cuda_event() if on_gpu else None
            call.issued = time.perf_counter_ns()

    def _show(self, event: Row, values: list[Any], call: Any, acting: set[str]) -> None:
        """Print and write values. What a launch only reads is printed after it if it changed."""
        which, start = (event.get("launch"), event.get("iteration")), self._line(event, call)
        known = call.shown[1] if event["phase"] == "after" and call.shown[0] == which else {}
        facts, lines = {}, []
        for row, tensor in values if acting & {"nan", "print"} else ():
            about = f"{start}  {row['role']} {row['arg']}  {kind_of(row)}"
            text = "" if tensor is None else f"  {statistics(row)}"
            facts[row["arg"]] = f"{row}"
            if row["role"] != "in" or known.get(row["arg"]) != facts[row["arg"]]:
                more = text if "print" in acting else health(row)
                lines += [f"{about}{more}\n"] * bool(more or "print" in acting)
        self._write("".join(lines))
        if event["phase"] == "before":
            call.shown = which, facts
        self._append(call, *([event | row for row, _ in values] or [event]))

    def _time(self, event: Row, call: Any, start: float, duration: float, clock: str) -> None:
        facts = {"start_us": round(start, 3), "duration_us": round(duration, 3), "clock": clock}
        self._append(call, event | {"time": facts})
        self._write(f"{self._line(event, call, '')}  {facts['duration_us']:.1f} us\n")

    def _line(self, event: Row, call: Any, phase: str | None = None) -> str:
        """The beginning of a line; without the phase if `phase` is empty."""
        words = [f"[rewriter {self._rank}]", *[self._label] * bool(self._label)]
        words += [f"call {call.number}"] * bool(self._label or call.number)
        if event:
            words.append(name_of(event) + (f".{x}" if (x := event.get("iteration")) else ""))
        if "kernel" in event:
            words += [f"{event['phase']:<6}"] * (phase is None) + [event["kernel"]]
        return " ".join(words)

    def _write(self, text: str) -> None:
        if text and not self._is_quiet and sys.stdout is not None:
            sys.stdout.write(text)
            sys.stdout.flush()  # the next launch may crash

    def _warn(self, about: str, message: str) -> None:
        """Warn, unless the same message was written, whatever its paths and numbers."""
        text = re.sub(r"(?<!\S)\S*/\S*|\d+", "", message)
        if text not in self._warned:
            self._warned.add(text)
            say(f"[rewriter {self._rank}] warning: {about}: {message}\n")

    def _append(self, call: Any, *rows: Row) -> None:
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        if call.rows >= 0 and os.write(call.rows, data) < len(data):
            os.close(call.rows)  # no room: what follows would be misread
            call.rows = -1

    def _save(self, event: Row, row: Row, tensor: Tensor, call: Any) -> Row:
        """Save a tensor in a file; the members of its row that say where, or why not."""
        if not has_memory(tensor):
            return {}
        again = f".{event['iteration']}" if event.get("iteration") else ""
        folder = f"{event['launch']:06d}{again}" if "launch" in event else event["phase"]
        start = f"{event['phase']}_launch_" if "launch" in event else "aoti_model_inputs"
        end = f"_{row['arg']}_{row['device']}.pt".replace("/", "_")
        kernel, room = event.get("kernel", "").replace("/", "_"), 255 - len((start + end).encode())
        if len(kernel.encode()) > room:
            digest = f"{zlib.crc32(kernel.encode()):08x}"
            kernel = f"{kernel.encode()[: room - 9].decode('utf-8', 'ignore')}~{digest}"
        path, file = Path(call.directory, folder, start + kernel + end), io.BytesIO()
        content = tensor if tensor.layout is torch.strided else tensor.to_dense()
        torch.save(content.to("cpu", copy=True), file)
        try:
            path.parent.mkdir(exist_ok=True)
            write(path, file.getvalue())
        except OSError as error:
            self._warn("save", f"{path} cannot be saved: {error.strerror or error}")
            return {"unsaved": error.strerror or str(error)}
        return {"file": f"{folder}/{path.name}"}


def read(role: str, name: str, content: Any) -> Iterator[tuple[Row, Tensor | None]]:
    """The value, or each member of a list of values; nothing for None."""
    row: Row = {"arg": name, "role": role}
    if isinstance(content, Tensor):
        row |= {"dtype": str(content.dtype).removeprefix("torch."), "shape": list(content.shape)}
        row["stride"] = list(content.stride()) if content.layout is torch.strided else []
        yield row | {"device": str(content.device)}, content.detach()
    elif isinstance(content, (list, tuple)):
        for place, member in enumerate(content):
            yield from read(role, f"{name}[{place}]", member)
    elif content is not None:
        yield row | {"type": type(content).__name__, "value": repr(content)}, None


def has_memory(tensor: Tensor) -> bool:
    """Whether elements are in memory, where they can be read, unlike those of a freed storage."""
    dispatch = type(tensor).__torch_dispatch__
    if tensor.device.type == "meta" or dispatch is not Tensor.__torch_dispatch__:
        return False
    if tensor.is_nested or tensor.layout is not torch.strided or not tensor.numel():
        return True
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    end, storage = tensor.storage_offset() + last + 1, tensor.untyped_storage()
    return storage.nbytes() >= end * tensor.element_size() and storage.data_ptr() != 0


def comparable(part: Tensor) -> Tensor:
    """Elements as float64, magnitudes of complex ones; as int64 in the same order for 64 bits."""
    if part.is_complex():
        real, imag = torch.view_as_real(part).double().unbind(-1)
        # hypot alone is infinite for an infinite and a NaN part.
        return torch.hypot(real, imag).masked_fill_(real.isnan() | imag.isnan(), math.nan)
    if part.dtype in (torch.int64, torch.uint64):
        keys = part.view(torch.int64)
        return keys if part.dtype == torch.int64 else keys ^ -(1 << 63)
    return (part.float() if part.is_floating_point() and part.itemsize == 1 else part).double()


def measure(tensor: Tensor) -> Row:
    """The statistics of the finite elements as members of a row, {} if they cannot be read."""
    dtype, name = tensor.dtype, str(tensor.dtype).removeprefix("torch.")
    is_plain = tensor.layout is torch.strided and not tensor.is_nested and NUMBERS.fullmatch(name)
    if not is_plain or not has_memory(tensor) or tensor.device.type == "mps":
        return {}
    row: Row = {"numel": tensor.numel(), "min": None, "max": None, "mean": None, "std": None}
    # In the order of memory, without what expanded dimensions repeat.
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    tensor = tensor[tuple(slice(None if x else 1) for x in tensor.stride())].permute(order)
    repeat = row["numel"] // max(tensor.numel(), 1)
    parts: Any = tensor.resolve_conj().resolve_neg().reshape(-1).split(BLOCK)  # type: ignore[no-untyped-call]
    nan = above = below = near = 0
    lows, highs = list[Any](), list[Any]()
    top = torch.finfo(dtype).max if dtype.is_floating_point and dtype.itemsize < 4 else math.inf
    for x in map(comparable, parts if tensor.numel() else ()):
        low, high = (extreme.item() for extreme in x.aminmax())
        if not (math.isfinite(low) and math.isfinite(high)):
            nan, above = nan + int(x.isnan().sum()), above + int(x.isposinf().sum())
            below += int(x.isneginf().sum())
            low = x.nan_to_num(math.inf, math.inf, math.inf).amin().item()
            high = x.nan_to_num(-math.inf, -math.inf, -math.inf).amax().item()
        lows, highs = [*lows, low], [*highs, high]
        if max(-low, high) > top / 2:
            near += int(((x.abs() > top / 2) & (x.abs() <= top)).sum())
            # Masks are filled with the lowest number of 16 bits.
            near -= int((x == -top).sum()) if dtype.itemsize == 2 else 0
    if count := tensor.numel() - nan - above - below:
        low, high, scale = min(lows), max(highs), 1.0
        if name in ("float64", "complex128"):  # whose squares could leave the range of float64
            scale = 2.0 ** max(-1022, min(1023, 1 - math.frexp(max(-low, high))[1]))
        # Distances from the middle are small next to the range, wherever that is.
        is_wide = "int64" in name
        middle = (low + high + 1) // 2 if is_wide else low + (high / 2 - low / 2)

        def moment(mean: float, power: int) -> float:
            """The sum of powers of the distances from `mean`."""
            centre = middle if is_wide else low * scale + (high * scale / 2 - low * scale / 2)
            scaled = (x if is_wide else x * scale for x in map(comparable, parts))
            far = ((x - centre).double() - mean for x in scaled)
            return math.fsum(float(x.nan_to_num(0, 0, 0).pow(power).sum()) for x in far)

        mean = moment(0, 1) / count
        deviation, count = math.sqrt(moment(mean, 2) / count) / scale, count * repeat
        if name == "uint64":
            low, high, middle = (x + (1 << 63) for x in (low, high, middle))
        mean = min(max(middle + mean / scale, float(low)), float(high))
        std = deviation * math.sqrt(count / (count - 1)) if count > 1 else None
        is_whole = not (dtype.is_floating_point or dtype.is_complex)
        low, high = (int(low), int(high)) if is_whole else (low, high)
        row |= {"min": low, "max": high, "mean": mean, "std": "inf" if std == math.inf else std}
    row |= {"nan": nan * repeat, "inf": (above + below) * repeat}
    row |= {"neginf": below * repeat} if below else {}
    row |= {"near_limit": near * repeat} if near else {}
    return row | ({"of": "magnitude"} if dtype.is_complex else {})


def kind_of(row: Row) -> str:
    if "type" in row:
        return f"{row['type']} {row['value']}"
    dtype = re.sub(r"^(b?f|c|u|i)(?:loat|omplex|int|nt)", r"\1", row["dtype"])
    dtype = "b8" if dtype == "bool" else dtype.replace("f8_", "f8")
    return f"{dtype}{row['shape']}  {row['device']}"


def statistics(row: Row) -> str:
    if not row.get("numel"):
        return "empty" if "numel" in row else "not measured"
    named = " ".join(f"{name} {number(row[name])}" for name in ("min", "max", "mean", "std"))
    return f"{'|x| ' * ('of' in row)}{named} nan {row['nan']} inf {row['inf']}"


def health(row: Row) -> str:
    """NaN, infinities and numbers near the limit of their dtype; empty if there are none."""
    below, near = row.get("neginf", 0), row.get("near_limit", 0)
    counts = {"nan": row.get("nan"), "+inf": row.get("inf", 0) - below, "-inf": below}
    parts = [f"{name} {count}" for name, count in counts.items() if count]
    parts += [f"near the limit {near} ({number(100 * near / row['numel'])}%)"] if near else []
    text = f"  {' '.join(parts)} of {row['numel']}" if parts else ""
    if not parts or row["min"] is None:
        return text
    of = "|x| " * ("of" in row)
    return f"{text}; {of}min {number(row['min'])} max {number(row['max'])}"


def number(value: Any) -> str:
    value = "-" if value is None else value
    return format(value, ".4g") if isinstance(value, float) else str(value)


def fault(contents: Sequence[Any], kind: str) -> str:
    """Wait for the devices of a launch; the error of one that failed."""
    devices = {content.device for content in contents if isinstance(content, Tensor)}
    if (kind in GPU or not (devices or kind == "cpp")) and cuda.is_initialized():
        devices.add(torch.device("cuda", cuda.current_device()))
    for device in sorted(
        (device for device in devices if device.type not in ("cpu", "meta")), key=str
    ):
        try:
            torch.get_device_module(device).synchronize(*[device] * (device.type != "mps"))
        except Exception as error:
            return first_line(error)
    return ""


def is_capturing() -> bool:
    return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())


def cuda_event() -> Any:
    event = cuda.Event(enable_timing=True)
    event.record()
    return event


def first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].strip() or type(error).__name__


def name_of(event: Row) -> str:
    return f"#{event['launch']}" if "launch" in event else str(event["phase"])


def say(text: str) -> None:
    with contextlib.suppress(Exception):
        sys.stderr.write(text)


def declared(row: Row) -> Row:
    """The row of a launch of an operator with its schema, and roles as the schema has them."""
    operator: Any = torch.ops
    parameters = row.get("parameters", {})
    try:
        for name in row["kernel"].removeprefix("torch.ops.").split(".") if parameters else ():
            operator = getattr(operator, name)
        arguments = enumerate(operator._schema.arguments) if parameters else ()
    except (AttributeError, RuntimeError):  # of a library that was not imported
        return row
    writes = [{str(i), x.name} for i, x in arguments if x.alias_info and x.alias_info.is_write]
    written = set[str]().union(*writes)

    def label(entry: list[str]) -> list[str]:
        if (own := parameters.get(entry[1])) is None:
            return entry  # a result
        role = "in" if not written.intersection(own) else "out" if entry[0] == "out" else "inout"
        return [role, *entry[1:]]

    more: Row = {x: [*map(label, row[x])] for x in ("before", "after", "reads") if x in row}
    return row | more | {"schema": str(operator._schema)} if parameters else row


def wanted_calls(options: Row) -> list[range] | None:
    """The calls to record, of text such as `3-5,9,100-/10`; None for all of them."""
    text, result = os.environ.get("REWRITER_CALLS") or options.get("calls") or "", []
    for part in map(str.strip, text.split(",") if text else ()):
        one = re.fullmatch(r"(\d{1,15})(-(\d{1,15})?(?:/0*([1-9]\d{0,14}))?)?", part, re.ASCII)
        last = int(one[3] or 10**15) if one and one[2] else int(one[1]) if one else 0
        if one is None or int(one[1]) > last:
            raise ValueError(f"REWRITER_CALLS: {part!r} is no call or range of calls, such as 3-5")
        result.append(range(int(one[1]), last + 1, int(one[4] or 1)))
    return result or None


def setting(variable: str) -> int | None:
    text = os.environ.get(variable, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def read_rank() -> int:
    """The rank of this process in its job, from what torchrun, other launchers and srun set."""
    rank, local, host, step = map(setting, ("RANK", "LOCAL_RANK", "GROUP_RANK", "SLURM_PROCID"))
    if rank is None and local is not None and host is not None:
        return host * (setting("LOCAL_WORLD_SIZE") or 0) + local
    if rank is None and step is not None and local in (None, setting("SLURM_LOCALID")):
        return step
    return local or 0 if rank is None else rank


def manifest(options: Row) -> Row:
    size = setting("WORLD_SIZE")
    if size is None and setting("SLURM_PROCID") is not None:
        size = setting("SLURM_NTASKS")
    row = {"format": "rewriter.dump", "version": 1, "artifact": options["artifact"]}
    row |= {
        "sha256": options["sha256"],
        "rewriter": options["version"],
        "probes": options["probes"],
    }
    row |= {"fingerprint": {"name": "nh128", "version": 1}, "torch": torch.__version__}
    row["device"] = cuda.get_device_name() if cuda.is_initialized() else "cpu"
    row |= {"host": socket.gethostname(), **({"ranks": size} if size else {})}
    row |= {"tf32": tf32()} if cuda.is_available() else {}
    return row | {"command": os.environ.get("REWRITER_COMMAND", " ".join(sys.argv))}


def tf32() -> list[str]:
    """Which of the float32 operations of CUDA's libraries may run in TF32."""
    of: Any = torch.backends
    kinds = {"matmul": of.cuda.matmul, "conv": getattr(of.cudnn, "conv", of.cudnn)}
    return [name for name, backend in kinds.items() if is_tf32(backend)]


def is_tf32(backend: Any) -> bool:
    if not hasattr(backend, "fp32_precision"):  # before torch 2.9
        return bool(backend.allow_tf32)
    of = torch.backends if backend.fp32_precision == "none" else backend
    return getattr(of, "fp32_precision", "ieee") == "tf32"


def write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    temporary = path.with_name(f".{socket.gethostname()}.{os.getpid()}.{threading.get_ident()}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def to_json(facts: Row) -> bytes:
    return f"{json.dumps(facts, indent=1)}\n".encode()
