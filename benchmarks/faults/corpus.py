"""Draws faults at random: the same seed and artifacts give the same corpus."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from benchmarks.faults.kinds import CONTROLS, KINDS
from benchmarks.faults.kinds.base import Change, Kind
from benchmarks.faults.source import Source, Target

# The order in which the forms take turns.
_TURNS = ("python", "cpp_wrapper", "python", "aoti", "python")


@dataclass(frozen=True)
class Fault:
    """One planted fault. `name` is unique in the corpus; `launch` is where it was planted."""

    name: str
    kind: str
    source: Source
    launch: int
    change: Change
    seed: int
    harmless: bool = False

    @property
    def changed(self) -> Source:
        return self.source.edited(self.change.edits)

    @property
    def difference(self) -> str:
        return self.source.difference(self.changed)


_Way = tuple[Source, int, Change]


def corpus(sources: Iterable[Source], count: int, seed: int, *, first: int = 0) -> list[Fault]:
    """Draw `count` faults, spread over kinds, forms and models as evenly as launches allow. `first`
    is the kind that begins."""
    first %= len(KINDS)
    return _drawn((*KINDS[first:], *KINDS[:first]), list(sources), count, seed)


def controls(sources: Iterable[Source], count: int, seed: int) -> list[Fault]:
    """Draw `count` harmless changes."""
    return _drawn(CONTROLS, list(sources), count, seed)


def _drawn(kinds: Sequence[Kind], sources: list[Source], count: int, seed: int) -> list[Fault]:
    # Each kind and form has its own generator, so that adding another changes nothing here.
    ways = {
        (kind.name, form): _spread(
            kind,
            [x for x in sources if x.form == form],
            random.Random(f"{seed} {kind.name} {form}"),
        )
        for kind in kinds
        for form in sorted({x.form for x in sources})
    }
    turns = {
        kind.name: islice(cycle(_TURNS), number % len(_TURNS), None)
        for number, kind in enumerate(kinds)
    }
    found: list[Fault] = []
    known: set[str] = set()
    while len(found) < count and any(ways.values()):
        for kind in kinds:
            left = [form for (name, form), some in ways.items() if name == kind.name and some]
            if not left or len(found) == count:
                continue
            form = next(
                (one for one in islice(turns[kind.name], len(_TURNS)) if one in left), left[0]
            )
            source, launch, change = ways[kind.name, form].pop(0)
            text = repr((source.name, form, change.edits))
            if text in known:
                continue
            known.add(text)
            digest = hashlib.sha256(text.encode()).hexdigest()[:6]
            where = f"{source.name}-{launch}-{form}-{digest}".replace("_", "-").replace(".", "-")
            name = f"{kind.name.replace(' ', '-')}-{where}"
            found.append(Fault(name, kind.name, source, launch, change, seed, kind.harmless))
    return found


def _spread(kind: Kind, sources: list[Source], drawer: random.Random) -> list[_Way]:
    """All ways to plant a kind, in random order, with artifacts and their launches taking turns."""
    found = [
        (source, launch.index, change)
        for source in sources
        for launch in source.launches
        for change in kind.changes(Target(source, launch))
    ]
    drawer.shuffle(found)
    for key in (lambda way: (way[0].name, way[1]), lambda way: way[0].name):
        turns: Counter[object] = Counter()
        ranks = []
        for way in found:
            turns[key(way)] += 1
            ranks.append(turns[key(way)])
        found = [way for _, way in sorted(zip(ranks, found, strict=True), key=lambda pair: pair[0])]
    return found
