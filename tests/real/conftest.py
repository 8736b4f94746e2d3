"""What tests that compile have in common."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cpp_driver import FLAGS, both, compile_driver, library

__all__ = ["both", "library"]  # fixtures


@pytest.fixture(scope="session", autouse=True)
def _vector_instructions(vector_instructions: None) -> None:
    """Nearly all tests here compile something, or start what does."""


@pytest.fixture(scope="session")
def built(kept: Path) -> Callable[..., Path]:
    """A driver of `cpp_driver.py`, for a set of flags and a way of compiling.

    Each is compiled once in a run.
    """
    from compilations import Compilations

    folder = kept.parent / "drivers"
    folder.mkdir(exist_ok=True)
    drivers = Compilations(folder)

    def get(flags: str = "fast") -> Path:
        in_two = flags == "inductor"
        return drivers.value_with_files(
            lambda place: compile_driver(place, FLAGS[flags], in_two),
            *(flags, "apart" if in_two else "whole"),
        )

    return get
