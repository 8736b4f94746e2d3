"""On a GPU: what is saved is what the tensor was, whatever happens to it afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rewriter.runtime import attach
from saved_tensors import Saved, content_of
from tables import options, row

pytestmark = pytest.mark.gpu

DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.uint8]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_layout(tmp_path: Path, dtype: torch.dtype) -> None:
    flat = torch.arange(3 << 20, device="cuda").to(dtype)
    square = flat[: 1 << 20].view(1024, 1024)
    tensors = [
        *(flat, flat[:0], flat[1], flat[5:77], square, square.T, square[:, ::2], square[3:, 7:]),
        *(flat[:1024].expand(64, 1024), square.view(4, 16, 16, 1024).permute(2, 0, 3, 1)),
    ]
    saved = Saved(tmp_path)
    for tensor in tensors:
        expected, found = tensor.to("cpu", copy=True), content_of(saved.save(tensor))
        assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
        assert found.stride() == expected.stride()
        assert torch.equal(found, expected)


def test_what_changes_and_is_freed_right_afterwards(tmp_path: Path) -> None:
    table = [row(kind="triton", repeats=True, after=[["out", "y"]])]
    recorder = attach(options("save", directory=str(tmp_path)), table)
    recorder.begin()
    for number in range(60):
        tensor = torch.full((2 << 20,), float(number), device="cuda")
        tensor += 0.5
        recorder.after(0, tensor)
        tensor.zero_()
        del tensor  # the next one gets its memory
    recorder.end()
    assert len(list(tmp_path.rglob("*.pt"))) == 60
    for path in tmp_path.rglob("*.pt"):
        number = int(path.parent.name.partition(".")[2] or 0)
        found = content_of(path)
        assert found.min() == found.max() == number + 0.5


def test_another_stream(tmp_path: Path) -> None:
    saved = Saved(tmp_path)
    tensor = torch.zeros(4 << 20, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        tensor.fill_(3)
        path = saved.save(tensor)
    assert content_of(path).eq(3).all()


def test_more_than_the_staging_holds_in_no_more_device_memory(tmp_path: Path) -> None:
    saved = Saved(tmp_path)
    large = torch.arange(100 << 20, dtype=torch.int64, device="cuda")  # 800 MiB
    large += 0  # loads a kernel of torch, which takes memory
    torch.cuda.synchronize()
    free = torch.cuda.mem_get_info()[0]
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    paths = []
    for _ in range(2):
        paths.append(saved.save(large))
        large += 1
    assert torch.cuda.max_memory_allocated() == before
    assert free - torch.cuda.mem_get_info()[0] < 64 << 20
    for number, path in enumerate(paths):
        found = content_of(path)
        assert torch.equal(found, torch.arange(100 << 20) + number)


def test_equal_bytes_of_a_gpu_are_one_file(tmp_path: Path) -> None:
    saved = Saved(tmp_path)
    tensor = torch.randn(3 << 20, device="cuda")
    tensors = [*(tensor.clone() for _ in range(3)), tensor.cpu()]
    assert len({saved.save(one).stat().st_ino for one in tensors}) == 1
