"""A service in Python: threads that call two wrappers, or two packages, in turn.

    python -m benchmarks.service.serve FORM PLAIN PROBED THREADS DEVICE

It reads the same commands and prints the same figures as `service.cpp`. A wrapper is called
directly with the weights that it was compiled with, without what `torch.compile` does around it.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.service.model import build

Run = Callable[[Any], Sequence[torch.Tensor]]
INPUTS = 16


@dataclass
class Phase:
    """The figures of one thread in one phase."""

    requests: list[int] = field(default_factory=lambda: [0, 0])  # plain, probed
    changed: int = 0  # requests with other outputs than expected
    # Nanoseconds of a request: wall plain, wall probed, CPU plain, CPU probed.
    pairs: list[tuple[int, int, int, int]] = field(default_factory=list)


_now = [""]


class Worker(threading.Thread):
    """One thread of the service, with its figures by the name of the phase."""

    def __init__(
        self, number: int, runs: tuple[Run, Run], inputs: list[Any], expected: list[Any]
    ) -> None:
        super().__init__()
        self.phases: dict[str, Phase] = {}
        self._random = random.Random(number)
        self._runs = runs
        self._inputs = inputs
        self._expected = expected
        on_device = inputs[0].is_cuda
        self._wait: Callable[[], None] = torch.cuda.synchronize if on_device else lambda: None

    def run(self) -> None:
        with torch.no_grad():
            while (name := _now[0]) != "end":
                if name:
                    self._turn(self.phases.setdefault(name, Phase()))

    def _turn(self, phase: Phase) -> None:
        """Serve one request that is not measured and two that are, of each of the two copies."""
        taken: dict[bool, tuple[int, int]] = {}
        first = self._random.random() < 0.5
        for is_probed in (first, not first):
            run = self._runs[is_probed]
            chosen = [self._random.randrange(INPUTS) for _ in range(3)]
            zero, one, two = (self._inputs[x] for x in chosen)
            results = [run(zero)]
            self._wait()
            wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
            results.append(run(one))
            results.append(run(two))
            self._wait()
            cpu, wall = time.thread_time_ns() - cpu, time.perf_counter_ns() - wall
            taken[is_probed] = wall // 2, cpu // 2
            phase.requests[is_probed] += 3
            phase.changed += sum(
                not _same(result, self._expected[x])
                for x, result in zip(chosen, results, strict=True)
            )
        (plain, plain_cpu), (probed, probed_cpu) = taken[False], taken[True]
        phase.pairs.append((plain, probed, plain_cpu, probed_cpu))


def _same(result: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> bool:
    return len(result) == len(expected) and all(
        torch.equal(_bits(x), y) for x, y in zip(result, expected, strict=True)
    )


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


def _runs(form: str, plain: str, probed: str, x: torch.Tensor, model: Any) -> tuple[Run, Run]:
    if form == "package":
        one, other = (torch._inductor.aoti_load_package(path).loader for path in (plain, probed))
        return lambda x: one.run([x]), lambda x: other.run([x])
    from benchmarks.probes import _compiled_graph, _import

    compiled = torch.compile(model)
    compiled(x)
    graph = _compiled_graph()
    given: list[Any] = []
    call = graph.current_callable

    def record(args: list[Any]) -> Any:
        given.extend(args)
        return call(args)

    graph.current_callable = record
    compiled(x)
    graph.current_callable = call
    (place,) = (i for i, one in enumerate(given) if one is x or one.data_ptr() == x.data_ptr())

    def run_of(path: str) -> Run:
        call = _import(Path(path)).call

        def run(x: torch.Tensor) -> Sequence[torch.Tensor]:
            args = given.copy()
            args[place] = x
            result: Sequence[torch.Tensor] = call(args)
            return result

        return run

    return run_of(plain), run_of(probed)


def main() -> int:
    form, plain, probed, threads, device = sys.argv[1:]
    torch.set_num_threads(1)
    model, x = build(device)
    with torch.no_grad():
        runs = _runs(form, plain, probed, x, model)
        torch.manual_seed(1)
        inputs = [torch.randn_like(x) for _ in range(INPUTS)]
        expected = [[_bits(y) for y in runs[0](x)] for x in inputs]
    workers = [Worker(i, runs, inputs, expected) for i in range(int(threads))]
    for worker in workers:
        worker.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    names: list[str] = []
    for line in map(str.strip, sys.stdin):
        if line == "end":
            break
        names.append(line)
        _now[0] = line
    _now[0] = "end"
    for worker in workers:
        worker.join()
    for name in names:
        phases = [worker.phases[name] for worker in workers if name in worker.phases]
        facts = {
            "phase": name,
            "plain": sum(x.requests[0] for x in phases),
            "probed": sum(x.requests[1] for x in phases),
            "changed": sum(x.changed for x in phases),
            "pairs": [pair for x in phases for pair in x.pairs],
        }
        sys.stdout.write(json.dumps(facts) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
