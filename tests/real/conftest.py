"""What tests that compile have in common."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cpp_driver import FLAGS, both, compile_sources, library, sources_of_driver

if TYPE_CHECKING:
    from compilations import Compilations

__all__ = ["both", "library"]  # fixtures


@pytest.fixture(scope="session", autouse=True)
def _vector_instructions(vector_instructions: None) -> None:
    """Nearly all tests here compile something, or start what does."""


@pytest.fixture(scope="session")
def built(compilations: Compilations) -> Callable[..., Path]:
    """A driver of `cpp_driver.py`, for a set of flags: once with the recorder compiled apart."""

    def get(flags: str = "fast") -> Path:
        sources = sources_of_driver(in_two=flags == "inductor")
        return compilations.value_with_files(
            lambda place: compile_sources(place, FLAGS[flags], sources),
            *("driver", flags),
            text="".join([FLAGS[flags], *sources.values()]),
        )

    return get
