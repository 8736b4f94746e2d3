"""`rewriter run -- PROGRAM` changes no key of a cache: what a program stores and finds, on its disk
and in a remote cache (a server of Redis), is what it stores and finds by itself."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakeredis import TcpFakeServer
from redis import Redis

import programs
from rewriter.dump import reading

PYTHON = sys.executable  # not warm: torch reads the settings of C++ wrappers when it is imported
# Prints what it computes, and how often each cache was asked and had an answer.
_PROGRAM = """
import sys, torch
from torch._dynamo.utils import counters
from torch._inductor import config
from torch._inductor.remote_cache import cache_stats
config.cpp_wrapper = sys.argv[1] == "cpp_wrapper"
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.GELU())
step = torch.compile(model)
# The second one is compiled with dynamic shapes.
for batch in (4,) if sys.argv[1] == "inference" else (4, 6):
    if sys.argv[1] == "inference":
        with torch.no_grad():
            result = step(torch.randn(batch, 16)).sum()
    else:
        result = step(torch.randn(batch, 16)).square().mean()
        result.backward()
    print(result.item().hex())
print(sorted(counters["inductor"].items()), sorted(counters["aot_autograd"].items()))
print(sorted((name, str(stat)) for name, stat in cache_stats._stats.items()))
"""


@pytest.fixture
def redis() -> Iterator[Redis]:
    server = TcpFakeServer(("127.0.0.1", 0), server_type="redis")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Redis(port=server.server_address[1])
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    "what",
    [
        "inference",
        pytest.param("training", marks=pytest.mark.exhaustive),
        pytest.param("cpp_wrapper", marks=pytest.mark.exhaustive),
    ],
)
def test_keys_and_hits_are_those_of_the_program_by_itself(
    what: str, redis: Redis, tmp_path: Path, warm_python: None
) -> None:
    python = PYTHON if what == "cpp_wrapper" else sys.executable
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    port = redis.connection_pool.connection_kwargs["port"]
    dump = tmp_path / "dump"
    probed = ["-m", "rewriter", "run", "--quiet", "-d", dump, "--overwrite", "--", python]
    ways: dict[str, list[object]] = {"plain": [], "probed": probed}
    remote = {
        "TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE": "1",
        "TORCHINDUCTOR_AUTOGRAD_REMOTE_CACHE": "1",
        "TORCHINDUCTOR_REDIS_URL": f"redis://127.0.0.1:{port}",
    }
    printed, keys, entries = {}, {}, {}
    for way, words in ways.items():
        redis.flushall()
        for place in ("empty", "filled"):
            cache = tmp_path / way / place
            line = [python, *words, program, what]
            done = programs.run(*line, TORCHINDUCTOR_CACHE_DIR=cache, **remote)
            printed[way, place] = done.stdout
            kept = [*(cache / "fxgraph").rglob("*"), *(cache / "aotautograd").rglob("*")]
            entries[way, place] = sorted(path.name for path in kept if path.is_dir())
            if way == "probed":
                assert reading.open_dump(dump).runs
        keys[way] = sorted(redis.keys())
    for place in ("empty", "filled"):
        assert printed["plain", place] == printed["probed", place]
        assert entries["plain", place] == entries["probed", place]
    assert entries["plain", "empty"]
    assert keys["plain"] == keys["probed"]
    assert len(keys["plain"]) >= (2 if what == "inference" else 4)
    assert "RedisRemoteCacheBackend', '{hit: 0, miss:" in printed["probed", "empty"]
    assert ", miss: 0, put: 0, exception: 0}" in printed["probed", "filled"]
