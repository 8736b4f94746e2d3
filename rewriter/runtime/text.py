"""Formats events as text: in our own format, and in that of upstream's printer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from .event import Event, Value
    from .statistics import Statistics

_INPUTS = "aoti_model_inputs"  # upstream's name in C++ wrappers; in Python it prints no inputs

_SHORT = (
    ("float8_", "f8"),
    ("bfloat", "bf"),
    ("float", "f"),
    ("complex", "c"),
    ("uint", "u"),
    ("int", "i"),
    ("bool", "b8"),
)


def short_dtype(dtype: torch.dtype | str | None) -> str:
    """The usual abbreviation of a dtype: `f32`, `bf16`, `i64`, `b8`, `c64`, `f8e4m3fn`."""
    name = str(dtype).removeprefix("torch.")
    for long, short in _SHORT:
        if name.startswith(long):
            return short + name.removeprefix(long)
    return name


def number(value: float | int | None) -> str:
    """Format a statistic: integers in full, floats with four significant digits, None as `-`."""
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else format(value, ".4g")


def health(statistics: Statistics) -> str:
    """Text about the NaN, infinities and numbers near the limit of their dtype in a tensor.

    For example `nan 3 +inf 1 of 64; min -2 max 7`. Empty if there are none.
    """
    counts = (
        ("nan", statistics.nan),
        ("+inf", statistics.positive_inf),
        ("-inf", statistics.negative_inf),
    )
    parts = [f"{name} {count}" for name, count in counts if count]
    if statistics.near_limit:
        share = number(100 * statistics.near_limit / statistics.numel)
        parts.append(f"near the limit {statistics.near_limit} ({share}%)")
    if not parts:
        return ""
    text = f"{' '.join(parts)} of {statistics.numel}"
    if statistics.minimum is None:
        return text
    of = "|x| " if statistics.of == "magnitude" else ""
    return f"{text}; {of}min {number(statistics.minimum)} max {number(statistics.maximum)}"


def start(rank: int, label: str, call: int) -> str:
    """The beginning of a line, such as `[rewriter 0] forward call 3`.

    A wrapper that was instrumented alone has no label; its first call is printed without a number,
    which the output of `rewriter run` does not need.
    """
    if not label and not call:
        return f"[rewriter {rank}]"
    return f"[rewriter {rank}] {label}{' ' if label else ''}call {call}"


class Text:
    """Our own format: `[rewriter RANK] #INDEX PHASE KERNEL ROLE ARGUMENT …`, a line per value.

    `values`: the first elements of a tensor follow its line.
    """

    def __init__(self, rank: int, values: bool, label: str = "") -> None:
        self._rank = rank
        self.has_values = values
        self._label = label

    def name(self, event: Event) -> str:
        """The line of the probe `names`."""
        return f"{self._start(event)}\n"

    def start(self, call: int) -> str:
        """The beginning of every line of a call."""
        return start(self._rank, self._label, call)

    def value(self, event: Event, value: Value) -> str:
        """The line of the probe `print` about a value, and its first elements if wanted."""
        line = self._about(event, value)
        if not value.is_tensor:
            return line + "\n"
        line += f"  {self._statistics(value)}"
        if value.fingerprint:
            line += f"  {self._digest(value)}"
        if self.has_values and value.head is not None:
            more = " ..." if _numel(value) > len(value.head) else ""
            line += f"\n    [{', '.join(_element(member) for member in value.head)}{more}]"
        return line + "\n"

    def digest(self, event: Event, value: Value) -> str:
        """The line of the probe `hash` about a tensor."""
        return f"{self._about(event, value)}  {self._digest(value)}\n"

    def health(self, event: Event, value: Value) -> str:
        """The line of the probe `nan` about a tensor; empty if there is nothing to report."""
        text = "" if value.statistics is None else health(value.statistics)
        return f"{self._about(event, value)}  {text}\n" if text else ""

    def _digest(self, value: Value) -> str:
        return f"fingerprint={value.fingerprint}" if value.fingerprint else "not hashed"

    def title(self, event: Event) -> str:
        """The part of a line behind its start: the index of the launch, or `inputs`."""
        return f" {event.phase}" if event.launch is None else f" #{event.launch.index}"

    def head(self, event: Event) -> str:
        """The part of a line behind index and iteration: phase and kernel; empty for inputs."""
        return f" {event.phase:<6} {event.launch.kernel}" if event.launch else ""

    def described(self, value: Value) -> str:
        """The part of a line about a value without statistics: role, name, dtype, shape, device."""
        line = f"  {value.label.role} {value.label.name}  "
        if not value.is_tensor:
            return f"{line}{value.kind} {value.text}"
        return f"{line}{short_dtype(value.dtype)}{list(value.shape)}  {value.device}"

    def _about(self, event: Event, value: Value) -> str:
        return self._start(event) + self.described(value)

    def _start(self, event: Event) -> str:
        again = f".{event.iteration}" if event.iteration else ""
        return f"{self.start(event.call)}{self.title(event)}{again}{self.head(event)}"

    def _statistics(self, value: Value) -> str:
        facts = value.statistics
        if facts is None:
            return "not measured"
        if not facts.numel:
            return "empty"
        of = "|x| " if facts.of == "magnitude" else ""
        return (
            f"{of}min {number(facts.minimum)} max {number(facts.maximum)} "
            f"mean {number(facts.mean)} std {number(facts.std)} nan {facts.nan} inf {facts.inf}"
        )


class Upstream:
    """The format of `_print_debugging_tensor_value_info` (torch/_inductor/codegen/debug_utils.py).

    Unlike upstream's, statistics are over the finite elements, and `Dtype` is the dtype. The lines
    of the probe `names` follow upstream's C++ wrapper, since upstream prints none in Python.
    """

    def name(self, event: Event) -> str:
        kernel = event.launch.kernel if event.launch else ""
        return f"[ {event.phase}_launch: {kernel} ]\n"

    def start(self, call: int) -> str:
        return ""

    def value(self, event: Event, value: Value) -> str:
        lines = [self._title(event, value)]
        if not value.is_tensor:
            lines.append(f"Value:  {value.text}")
            return "\n".join(lines) + "\n"
        if value.head is not None and _numel(value) == len(value.head):
            lines.append(str(value.head))
        lines += [
            f"Number of elements:  {_numel(value)}",
            f"Size:  torch.Size({list(value.shape)})",
            f"Dtype:  {value.dtype}",
        ]
        if (statistics := value.statistics) is not None:
            lines += [
                f"Mean:  {statistics.mean}",
                f"Min:  {statistics.minimum}",
                f"Max:  {statistics.maximum}",
                f"Std:  {statistics.std}",
            ]
        return "\n".join(lines) + f"\n{self._digest(value)}"

    def digest(self, event: Event, value: Value) -> str:
        return f"{self._title(event, value)}\n{self._digest(value)}"

    def health(self, event: Event, value: Value) -> str:
        text = "" if value.statistics is None else health(value.statistics)
        return f"{self._title(event, value)}\nHealth:  {text}\n" if text else ""

    def _digest(self, value: Value) -> str:
        return f"Fingerprint:  {value.fingerprint}\n" if value.fingerprint else ""

    def _title(self, event: Event, value: Value) -> str:
        where = f"{event.phase}_launch - {event.launch.kernel}" if event.launch else _INPUTS
        return f"inductor: {where} - {value.label.expr}"


def _numel(value: Value) -> int:
    result = 1
    for size in value.shape:
        result *= size
    return result


def _element(member: Any) -> str:
    return format(member, ".4g") if isinstance(member, float) else str(member)
