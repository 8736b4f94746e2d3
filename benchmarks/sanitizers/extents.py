"""Which elements a C++ kernel uses at an index, where its loops have constant bounds."""

from __future__ import annotations

import re

_NUMBER = r"static_cast<int64_t>\((\d+)L?\)"
_LOOP = rf"for\(int64_t {{0}}={_NUMBER}; {{0}}<{_NUMBER}; {{0}}\+={_NUMBER}\)"
_BRANCH = rf"\b{{0}} >= {_NUMBER} && {{0}} < {_NUMBER}"
_LANES = re.compile(rf", {_NUMBER}")


def extent(text: str, index: re.Match[str]) -> range | None:
    """The elements from the first to the last that the kernel `text` uses at an index, the second
    group of a match in it. None if loops, branches or strides are not constants."""
    least, most = {}, {}
    for name in set(re.findall(r"\b[A-Za-z_]\w*", index[2])):
        nearest = text.rfind(f"for(int64_t {name}=", 0, index.start())
        loop = re.compile(_LOOP.format(re.escape(name))).match(text, max(nearest, 0))
        if loop is None:
            return None
        start, stop, step = map(int, loop.groups())
        inside = text[loop.end() : index.start()]
        if branches := re.findall(_BRANCH.format(re.escape(name)), inside):
            start, stop = map(int, branches[-1])
        elif re.search(rf"\b{re.escape(name)} >= ", inside):
            return None
        least[name], most[name] = start, range(start, stop, step)[-1]
    lanes = _LANES.match(text, index.end())
    first, last = _value(index[2], least), _value(index[2], most)
    if first is None or last is None:
        return None
    return range(first, last + (int(lanes[1]) if lanes else 1))


def _value(index: str, names: dict[str, int]) -> int | None:
    """The value of a sum of products of names and numbers."""
    total = 0
    for product in index.split(" + "):
        value = 1
        for factor in product.split("*"):
            word = factor.strip().removesuffix("L")
            if not (word in names or word.isdecimal()):
                return None
            value *= names[word] if word in names else int(word)
        total += value
    return total
