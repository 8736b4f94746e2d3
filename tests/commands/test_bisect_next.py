"""The command with which `rewriter bisect` ends."""

from __future__ import annotations

from rewriter.commands._bisect import replacing
from rewriter.commands._documents.bisect import BisectLaunch


def launch(wrapper: str, index: int) -> BisectLaunch:
    return BisectLaunch(
        wrapper=wrapper, launch=index, kernel="k", kind="cpp", line=1, lines=(), reason=""
    )


def test_every_wrapper_that_is_named_has_its_launches_replaced() -> None:
    assert replacing((), precise=False) == ""
    named = (launch("a.py", 10), launch("b c.py", 2), launch("a.py", 3))
    assert replacing(named, precise=False) == (
        "rewriter replace a.py --launch 10,3 --by reference --in-place && "
        "rewriter replace 'b c.py' --launch 2 --by reference --in-place"
    )


def test_what_was_found_in_float64_is_replaced_in_float64() -> None:
    assert replacing((launch("a.py", 1),), precise=True) == (
        "rewriter replace a.py --launch 1 --by reference --precise --in-place"
    )
