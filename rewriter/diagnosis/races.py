"""Turns the races of a wrapper into findings: see `rewriter/locate/races.py`."""

from __future__ import annotations

from functools import partial

from rewriter.artifact.types import OpenWrapper
from rewriter.core.labels import beginning
from rewriter.core.text import counted
from rewriter.diagnosis.findings import Finding
from rewriter.diagnosis.ruling import Examined
from rewriter.locate.races import find_races, is_collective


def examine_races(wrapper: OpenWrapper, *, run: str = "") -> Examined:
    """Findings for the races of a wrapper."""
    streams = {one.stream for one in wrapper.located.stream_actions}
    launches = wrapper.located.launches  # by lines of the wrapper without probes
    collectives = sum(map(is_collective, launches))
    races = find_races(wrapper.located, launches)
    if races:
        text = partial(Finding.in_text, wrapper.path, run, kind="race")
        found = (text(launch=x.launch, what=x.sentence, others=(x.other.index,)) for x in races)
        return Examined(tuple(found))
    if len(streams) < 2 and not collectives:
        return Examined()
    what = counted(len(streams), "stream") if len(streams) > 1 else ""
    beside = counted(collectives, "collective") if collectives else ""
    return Examined(
        ruled_out=f"a race: in the text of {beginning(wrapper.path.name)}, "
        f"{' and '.join(filter(None, (what, beside)))} wait for what they read"
    )
