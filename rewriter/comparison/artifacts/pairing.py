"""Pairs the wrappers of two artifacts."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable
from typing import NamedTuple

from rewriter.artifact.types import Artifact, OpenWrapper
from rewriter.core.errors import RewriterError

# Parts of names that identify a run: torch/_dynamo/debug_utils.py, torch/_logging.
_RUN = re.compile(r"\brun_\d{4}(?:_\d+)+-pid_\d+|\bdedicated_log_torch_trace_\w+")
# Names that compilers give to wrappers, in the cache and with TORCH_COMPILE_DEBUG.
_GENERATED = re.compile(r"(?:^|/)(?:c[a-z2-7]{51}\.py|[^/]*__\d+_[a-z]+_\d+\.\d+/output_code\.py)$")
_AOT_ID = re.compile(rb"^# AOT ID: \['(\w+)'\]", re.MULTILINE)
_AOT_ID_IN_NAME = re.compile(r"__(\d+_(?:forward|backward|inference))_\d+\.\d+/")

WrapperPair = tuple[OpenWrapper, OpenWrapper]
_Key = Callable[[OpenWrapper], Hashable]


class PairedWrappers(NamedTuple):
    """Pairs in the order of A, and the names of wrappers that only one side has."""

    pairs: list[WrapperPair]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]


def pair_wrappers(a: Artifact, b: Artifact) -> PairedWrappers:
    """Pair wrappers by their names without what identifies the run.

    Wrappers with generated names are also paired by equal text or equal AOT ID. If there is one
    wrapper on each side, they are a pair whatever their names are.
    """
    if len(a.wrappers) == len(b.wrappers) == 1:
        return PairedWrappers([(a.only, b.only)], (), ())
    left, right = list(a.wrappers), list(b.wrappers)
    partners: dict[str, OpenWrapper] = {}
    for key in (_name, _name_without_run, _generated_text, _generated_id):
        for one, other in _by(key, left, right, in_order=key is _name_without_run):
            partners[one.name] = other
            left.remove(one)
            right.remove(other)
    if not partners:
        raise _none(a if len(a.wrappers) > 1 else b)
    pairs = [(one, partners[one.name]) for one in a.wrappers if one.name in partners]
    return PairedWrappers(pairs, tuple(one.name for one in left), tuple(one.name for one in right))


def _by(
    key: _Key, a: list[OpenWrapper], b: list[OpenWrapper], *, in_order: bool = False
) -> list[WrapperPair]:
    """The pairs with a key that no others have; with `in_order` also those that share a key."""
    groups_a, groups_b = _grouped(key, a), _grouped(key, b)
    return [
        pair
        for value, group in groups_a.items()
        if in_order or len(group) == len(groups_b.get(value, ())) == 1
        for pair in zip(group, groups_b.get(value, ()), strict=False)
    ]


def _grouped(key: _Key, wrappers: list[OpenWrapper]) -> dict[Hashable, list[OpenWrapper]]:
    groups: dict[Hashable, list[OpenWrapper]] = defaultdict(list)
    for wrapper in wrappers:
        if (value := key(wrapper)) is not None:
            groups[value].append(wrapper)
    return groups


def _name(wrapper: OpenWrapper) -> str:
    return wrapper.name


def _name_without_run(wrapper: OpenWrapper) -> str:
    return _RUN.sub("run", wrapper.name)


def _is_generated(wrapper: OpenWrapper) -> bool:
    return wrapper.inside is not None or bool(_GENERATED.search(wrapper.name))


def _generated_text(wrapper: OpenWrapper) -> bytes | None:
    return wrapper.plain.data if _is_generated(wrapper) else None


def _generated_id(wrapper: OpenWrapper) -> str | None:
    """The graph in the program: the number of its compilation, and forward or backward."""
    if not _is_generated(wrapper):
        return None
    if match := _AOT_ID.search(wrapper.source):
        return match[1].decode()
    named = _AOT_ID_IN_NAME.search(wrapper.name)
    return named[1] if named else None


def _none(several: Artifact) -> RewriterError:
    names = "\n    ".join(wrapper.name for wrapper in several.wrappers)
    return RewriterError(
        "no-common-wrappers",
        f"{several.path} holds {len(several.wrappers)} wrappers, and none has the name of one "
        f"on the other side:\n    {names}",
        hint="Wrappers of directories are paired by their paths in them, or by their AOT IDs where "
        "a compiler named them. Name two files.",
    )
