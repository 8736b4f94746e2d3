"""Properties of what is drawn: a plain `pytest` draws half of what an exhaustive one does."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


def examples(count: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test with `count` examples of its parameter `draw`; the same ones in each run."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        def run(examples: int, **arguments: Any) -> None:
            @settings(
                derandomize=True,
                deadline=None,
                max_examples=examples,
                suppress_health_check=list(HealthCheck),
            )
            @given(draw=st.data())
            def holds(draw: st.DataObject) -> None:
                test(**arguments, draw=draw)

            holds()

        taken = [one for one in inspect.signature(test).parameters.values() if one.name != "draw"]
        own = inspect.Parameter("examples", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        run.__signature__ = inspect.Signature([own, *taken])  # type: ignore[attr-defined]
        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        some = [count // 2, pytest.param(count, marks=pytest.mark.exhaustive)]
        return pytest.mark.parametrize("examples", some)(run)

    return decorate
