"""Writes the script of a reproduction, and the page beside it."""

from __future__ import annotations

from collections.abc import Mapping

from rewriter.reproduction.types import Cut, Recorded, Tensor

SCRIPT, README = "repro.py", "README.md"


_CODES = """Exit code 0 (`reproduced`): it writes the recorded values again, bit for bit on a CPU.
Exit code 1: it does not."""
_CODES_OF_RANDOM = """Exit code 0: it runs, and what it draws has the recorded shapes and dtypes.
No dump has the state of torch's generator."""

# What each script has: how it loads tensors, then how it compares results and takes the time.
_TENSORS = '''def saved(file, stride, device):
    """A saved tensor with the strides (in elements) that it had, on its device."""
    value = torch.load(HERE / file, weights_only=True)
    made = torch.empty_strided(value.shape, stride, dtype=value.dtype, device=device)
    # Where a stride is 0, all along that dimension is one element.
    thin, source = made, value
    for dimension, step in enumerate(stride):
        if step == 0 and value.shape[dimension] > 1:
            thin, source = thin.narrow(dimension, 0, 1), source.narrow(dimension, 0, 1)
    thin.copy_(source)
    return made


def empty(shape, stride, dtype, device):
    """Memory that the launch only writes; it is zero, so that two runs begin alike."""
    return torch.empty_strided(shape, stride, dtype=dtype, device=device).zero_()
'''

_CHECK = '''def check(results):
    """Compare what was written with what was recorded; the number of results that differ."""
    different = 0
    for name, file in EXPECTED.items():
        expected = torch.load(HERE / file, weights_only=True)
        result = results[name].detach().cpu()
        if RANDOM:
            same = (result.shape, result.dtype) == (expected.shape, expected.dtype)
            different += not same
            word = "drawn anew" if same else "DIFFERS"
            print(f"{name}: {word}: {list(result.shape)} of {result.dtype}")
            continue
        if result.shape != expected.shape and result.numel() == expected.numel():
            result = result.reshape(expected.shape)
        size = f"{expected.numel()} element{'s' * (expected.numel() != 1)}"
        if same_bits(result, expected):
            print(f"{name}: equal bit for bit, {size}")
            continue
        a, b = doubles(result), doubles(expected)
        apart = ~((a == b) | (a.isnan() & b.isnan()))
        if not apart.any():
            close = on_gpu(results[name]) and result.dtype == expected.dtype
            different += not close
            word = "close" if close else "DIFFERS"
            print(f"{name}: {word}: only in the signs of zeros, the bits of NaN, or the type")
            continue
        largest = (a - b).abs().nan_to_num(float("inf")).where(apart, torch.zeros_like(a)).max()
        where = tuple(apart.nonzero()[0].tolist())
        count = int((apart.any(-1) if expected.is_complex() else apart).sum())
        allowed = tolerance(expected.dtype)
        most = b[b.isfinite()].abs().max().item() if b.isfinite().any() else 0.0
        # Roundings of the tensor's largest number: sums of such may come to less.
        close = on_gpu(results[name]) and torch.allclose(
            a, b, rtol=allowed, atol=allowed * most, equal_nan=True
        )
        different += not close
        print(
            f"{name}: {'close' if close else 'DIFFERS'}: {count} of "
            f"{size}, by {largest.item():.6g} at most; first at "
            f"{list(where)}: {a[where].item():.9g}, recorded {b[where].item():.9g}"
        )
    return different


def doubles(tensor):
    """Its numbers; of complex ones the real and the imaginary part, in a dimension more."""
    if tensor.is_complex():
        return torch.view_as_real(tensor.to(torch.complex128).resolve_conj())
    return tensor.double()


def same_bits(a, b):
    raw = [x.contiguous().reshape(-1).view(torch.uint8) for x in (a, b)]
    return a.dtype == b.dtype and raw[0].shape == raw[1].shape and torch.equal(*raw)


def tolerance(dtype):
    """On a GPU other launch parameters may add in another order: some roundings of the type."""
    has_roundings = dtype.is_floating_point or dtype.is_complex
    return 16 * torch.finfo(dtype).eps if has_roundings else 0.0


def on_gpu(tensor):
    return tensor.device.type not in ("cpu", "meta")


def wait():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def measure(times=21):
    """The median of some launches in seconds, on the arguments that the first one left behind."""
    tensors = arguments()
    seconds = []
    for _ in range(times):
        wait()
        began = time.perf_counter()
        launch(**tensors)
        wait()
        seconds.append(time.perf_counter() - began)
    return sorted(seconds)[times // 2]


if __name__ == "__main__":
    different = check(launch(**arguments()))
    print(f"time: {measure() * 1e6:.1f} us, the median of 21 launches")
    ran = "runs; its values are random" if RANDOM else "reproduced"
    print("not reproduced" if different else ran)
    sys.exit(1 if different else 0)
'''


def script(
    recorded: Recorded,
    cut: Cut,
    given: Mapping[str, str],
    expected: Mapping[str, str],
    imports: tuple[str, ...],
    libraries: tuple[str, ...],
) -> str:
    """The text of `repro.py`. `given` and `expected` are names of files by those of tensors."""
    tensors = "\n".join(
        f"        {variable!r}: {_tensor(recorded.given[name], given.get(name))},"
        for name, variable in cut.variables.items()
    )
    more = "".join(f"import {name}\n" for name in imports)
    loaded = "".join(f"torch.ops.load_library(HERE / {name!r})\n" for name in libraries)
    return f'''"""{recorded.title}, as {recorded.run.name} of a recorded run called it, by itself.

Run it: `python {SCRIPT}`. It needs torch; exit code 0 says that the results are the recorded ones.
"""

import sys
import time
from pathlib import Path

{cut.header}{more}
HERE = Path(__file__).resolve().parent
{loaded}

{_TENSORS}

def arguments():
    """What the launch was given."""
    return {{
{tensors}
    }}


{cut.kernels}

{cut.function}

# What the launch wrote when it was recorded; what is random is drawn anew.
EXPECTED = {dict(expected)!r}
RANDOM = {cut.is_random}


{_CHECK}'''


def _tensor(tensor: Tensor, file: str | None) -> str:
    if file is None:
        return (
            f"empty({tensor.shape!r}, {tensor.stride!r}, torch.{tensor.dtype}, {tensor.device!r})"
        )
    return f"saved({file!r}, {tensor.stride!r}, {tensor.device!r})"


def readme(
    recorded: Recorded, cut: Cut, imports: tuple[str, ...], notes: tuple[str, ...] = ()
) -> str:
    """A page that can be pasted into a bug report: what it is, of which versions, how to run it."""
    launch, manifest = recorded.launch, recorded.run.manifest
    lines = [f"{x.file}:{x.line}" for x in recorded.run.names.lines.get(launch.index, ())]
    rows = [
        ("launch", f"`{recorded.title}`, {launch.kind}, line {launch.line} of `{launch.wrapper}`"),
        ("call", recorded.run.name),
        ("lines of the model", ", ".join(lines) or "-"),
        ("source nodes", ", ".join(launch.source_nodes) or "-"),
        ("operators", ", ".join(launch.origins) or "-"),
        ("torch", manifest.torch or "not recorded"),
        ("device", ", ".join(sorted({x.device for x in recorded.given.values()})) or "-"),
        ("recorded by", f"`{manifest.command}`" if manifest.command else "not recorded"),
        ("needs", ", ".join(("torch", *imports))),
    ]
    tensors = [
        f"| `{x.name}` | {x.role} | {x.dtype} | {list(x.shape)} | {list(x.stride)} |"
        for x in recorded.given.values()
    ]
    code = 'python -c "import torch; print(torch.__version__, torch.version.cuda)"'
    return "\n".join(
        (
            f"# Launch {recorded.title}",
            "",
            "One launch of code that PyTorch Inductor generated, with the values that it was given",
            "and what it wrote then. Run it in an environment with this torch:",
            "",
            "```console",
            f"$ python {SCRIPT}",
            f"$ {code}",
            "```",
            "",
            _CODES_OF_RANDOM if cut.is_random else _CODES,
            "",
            *(("## What was found", "", *notes, "") if notes else ()),
            "## Versions",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {text} |" for name, text in rows),
            "",
            "## Arguments",
            "",
            "| argument | role | dtype | shape | stride |",
            "|---|---|---|---|---|",
            *tensors,
            "",
            *((f"Note: {recorded.sharing}", "") if recorded.sharing else ()),
            "## Files",
            "",
            "| file | holds |",
            "|---|---|",
            f"| `{SCRIPT}` | the kernel, the launch, the check of what it writes, and its time |",
            "| `given_*.pt` | what the launch was given |",
            "| `written_*.pt` | what it wrote when it was recorded |",
            "",
        )
    )
