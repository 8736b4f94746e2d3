"""Aligns two sequences of launches, or of lines: finds their pairs.

Uses Myers' algorithm (E. Myers, "An O(ND) Difference Algorithm and Its Variations", 1986) with keys
from strict to loose: what one key leaves unmatched between two matches is aligned by the next one.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

_T = TypeVar("_T")

# After so many edits the best path so far is taken: time stays linear in the length, and a list of
# that many changes need not be the shortest one.
_MAX_EDITS = 1000
# The limit for the rest, piece by piece: the cost of a piece grows with its square.
_FEW_EDITS = 250


class Pair(NamedTuple):
    """The positions of two items that correspond; `None` where an item has no counterpart.

    `level` is the key that matched them, 0 for the strictest. `moved` pairs agree in one of the two
    strictest keys but are in another order; a list of pairs has them at their place in the first
    sequence.
    """

    a: int | None
    b: int | None
    level: int = -1
    moved: bool = False


Keys = tuple[Hashable, ...]


def align(a: Sequence[Keys], b: Sequence[Keys]) -> list[Pair]:
    """Align two sequences. Each item gives its keys, strictest first; all have the same number.

    Every position of both is in exactly one pair. Pairs are in order, except those that `moved`.
    """
    levels = len(a[0]) if a else len(b[0]) if b else 0
    pairs = _align(a, b, (0, len(a)), (0, len(b)), 0, levels)
    return _with_moved(pairs, a, b, levels)


def by_key(
    key: Callable[[_T], Hashable], a: Iterable[_T], b: Iterable[_T], *, in_order: bool = False
) -> list[tuple[_T, _T]]:
    """The pairs with a key that no others have; with `in_order` also those that share a key. `None`
    is no key."""
    groups: tuple[dict[Hashable, list[_T]], ...] = ({}, {})
    for side, group in zip((a, b), groups, strict=True):
        for item in side:
            if (value := key(item)) is not None:
                group.setdefault(value, []).append(item)
    both = ((ours, groups[1].get(value, [])) for value, ours in groups[0].items())
    return [
        pair
        for ours, theirs in both
        if in_order or len(ours) == len(theirs) == 1
        for pair in zip(ours, theirs, strict=False)
    ]


def matches(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    """The positions of a longest common subsequence (a long one, beyond 1,000 edits)."""
    start, end_a, end_b = 0, len(a), len(b)
    while start < min(end_a, end_b) and a[start] == b[start]:
        start += 1
    while end_a > start and end_b > start and a[end_a - 1] == b[end_b - 1]:
        end_a, end_b = end_a - 1, end_b - 1
    # Items that only one side has match nothing; without them, there are fewer edits to search.
    common = set(a[start:end_a]) & set(b[start:end_b])
    left = [i for i in range(start, end_a) if a[i] in common]
    right = [j for j in range(start, end_b) if b[j] in common]
    pairs = [(i, i) for i in range(start)]
    pairs += [(left[i], right[j]) for i, j in _myers([a[i] for i in left], [b[j] for j in right])]
    pairs += [(end_a + k, end_b + k) for k in range(len(a) - end_a)]
    return pairs


def _align(
    a: Sequence[Keys],
    b: Sequence[Keys],
    in_a: tuple[int, int],
    in_b: tuple[int, int],
    level: int,
    levels: int,
) -> list[Pair]:
    """Align `a[slice(*in_a)]` and `b[slice(*in_b)]` by the keys from `level` on."""
    (from_a, to_a), (from_b, to_b) = in_a, in_b
    if level == levels or from_a == to_a or from_b == to_b:
        return [Pair(i, None) for i in range(*in_a)] + [Pair(None, j) for j in range(*in_b)]
    pairs: list[Pair] = []
    matched = matches(
        [item[level] for item in a[from_a:to_a]], [item[level] for item in b[from_b:to_b]]
    )
    for i, j in [*((from_a + i, from_b + j) for i, j in matched), (to_a, to_b)]:
        pairs += _align(a, b, (from_a, i), (from_b, j), level + 1, levels)
        if i < to_a or j < to_b:
            pairs.append(Pair(i, j, level))
        from_a, from_b = i + 1, j + 1
    return pairs


def _with_moved(pairs: list[Pair], a: Sequence[Keys], b: Sequence[Keys], levels: int) -> list[Pair]:
    """Pair unmatched items that have the same key, one of the two strictest ones."""
    moved: dict[int, Pair] = {}
    taken: set[int] = set()
    for level in range(min(levels, 2)):
        waiting: dict[Hashable, deque[int]] = {}
        for pair in pairs:
            if pair.a is None and pair.b is not None and pair.b not in taken:
                waiting.setdefault(b[pair.b][level], deque()).append(pair.b)
        for pair in pairs:
            if pair.b is not None or pair.a is None or pair.a in moved:
                continue
            if there := waiting.get(a[pair.a][level]):
                taken.add(there[0])
                moved[pair.a] = Pair(pair.a, there.popleft(), level, True)
    return [
        moved.get(pair.a, pair) if pair.b is None and pair.a is not None else pair
        for pair in pairs
        if not (pair.a is None and pair.b in taken)
    ]


def _myers(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    from_a = from_b = 0
    limit = _MAX_EDITS
    while from_a < len(a) and from_b < len(b):
        steps, from_a, from_b = _snakes(a, b, from_a, from_b, limit)
        pairs += steps
        limit = _FEW_EDITS
    return pairs


def _snakes(
    a: Sequence[Hashable], b: Sequence[Hashable], from_a: int, from_b: int, limit: int
) -> tuple[list[tuple[int, int]], int, int]:
    """The matches on the best path from a point, and the end of that path.

    This is the end of both sequences, or the farthest point that `limit` edits reach.
    """
    len_a, len_b = len(a), len(b)
    diagonal = from_a - from_b
    # By diagonal, how far in `a` its best path came; diagonal k has the index k + limit + 1.
    reached = array("q", [from_a]) * (2 * limit + 3)
    history: list[array[int]] = []
    zero = limit + 1
    ended = None
    for edits in range(limit + 1):
        # Only what the next step needs: keeping everything would fill the memory.
        history.append(reached[zero - edits - 1 : zero + edits + 2])
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and reached[zero + k - 1] < reached[zero + k + 1])
            x = reached[zero + k + 1] if down else reached[zero + k - 1] + 1
            y = x - k - diagonal
            while x < len_a and y < len_b and a[x] == b[y]:
                x, y = x + 1, y + 1
            reached[zero + k] = x
            if x >= len_a and y >= len_b:
                ended = k
                break
        if ended is not None:
            break
    else:
        edits = limit
        # Points after the end of a sequence are on no path.
        inside = [
            k
            for k in range(-edits, edits + 1, 2)
            if reached[zero + k] <= len_a and reached[zero + k] - k - diagonal <= len_b
        ]
        ended = max(inside, key=lambda k: 2 * reached[zero + k] - k)
    return _walked(history, edits, ended, reached[zero + ended], diagonal)


def _walked(
    history: list[array[int]], edits: int, k: int, x: int, diagonal: int
) -> tuple[list[tuple[int, int]], int, int]:
    """The matches on the path that reached `x` on diagonal `k`, found by walking back."""
    end = (x, x - k - diagonal)
    pairs: list[tuple[int, int]] = []
    for step in range(edits, -1, -1):
        before, zero = history[step], step + 1
        down = k == -step or (k != step and before[zero + k - 1] < before[zero + k + 1])
        previous = k + 1 if down else k - 1
        start = before[zero + previous] + (0 if down else 1)
        while x > start:
            x -= 1
            pairs.append((x, x - k - diagonal))
        k, x = previous, before[zero + previous]
    pairs.reverse()
    return pairs, *end
