"""Programs that are drawn at random: they run, and a seed gives the same one each time."""

from __future__ import annotations

import torch

from benchmarks.faults.random_models import drawn, run


def test_programs_run_and_a_seed_gives_the_same_one() -> None:
    programs = [drawn(seed) for seed in range(25)]
    for seed, program in enumerate(programs):
        again = drawn(seed)
        assert again.text == program.text
        assert all(map(torch.equal, again.inputs, program.inputs))
        run(program.case().fn, program)
    # Each sort is among a few programs.
    assert len({program.text for program in programs}) == len(programs)
    for sort in ("train", "dynamic", "autocast"):
        assert {getattr(program, sort) for program in programs} == {True, False}
    assert {x.dtype for program in programs for x in program.inputs} >= {
        torch.float32, torch.bfloat16, torch.float16, torch.float64,
    }  # fmt: skip
