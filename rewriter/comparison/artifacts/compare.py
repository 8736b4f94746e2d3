"""Compares two artifacts of one kind: opens them, pairs their wrappers, and decides the verdict."""

from __future__ import annotations

import re
from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path

from rewriter.artifact.opening import open_artifact
from rewriter.artifact.package.model import Package
from rewriter.artifact.types import Artifact, Wrapper
from rewriter.comparison.artifacts import files, packages, wrappers
from rewriter.comparison.artifacts.types import (
    ArtifactVerdict,
    Difference,
    PackageDifference,
    WrapperDifference,
)
from rewriter.core.align import by_key
from rewriter.core.errors import RewriterError
from rewriter.instrumentation.rebuild import built
from rewriter.locate.languages import language


def diff(
    a: str | Path | Artifact, b: str | Path | Artifact, *, models: Iterable[str] = ()
) -> Difference:
    """Compare two artifacts of one kind, without importing torch or executing anything.

    Probes are ignored. `.verdict` of the result is `identical`, `instrumented` (the same without
    probes, and the probes are what `instrument` writes), `unverified` (the same without probes,
    which cannot be checked), or `different`. `models` chooses models of packages by their names.

    Raises `RewriterError` if one is not an artifact, or the two are of different kinds.
    """
    chosen = tuple(models)
    left, right = _open(a, chosen), _open(b, chosen)
    kinds = _kind(left), _kind(right)
    if kinds[0] != kinds[1]:
        raise RewriterError(
            "different-kinds",
            f"{left.path} is {kinds[0]}, {right.path} {kinds[1]}",
            hint="Compare artifacts of one kind: two Python wrappers, two C++ ones made in the "
            "same way, two packages.",
        )
    if isinstance(left, Package) and isinstance(right, Package):
        return _packages(left, right)
    return _wrappers(left, right)


def _open(given: str | Path | Artifact, models: tuple[str, ...]) -> Artifact:
    if isinstance(given, Artifact):
        return given
    artifact = open_artifact(given, models, kernels=True)
    artifact.require_sound()
    return artifact


def _kind(artifact: Artifact) -> str:
    """The kind of an artifact, for the error; a directory has the kind of its wrappers."""
    if artifact.is_rebuilt:
        return artifact.form.description
    kinds = {language(x.language).description(x.is_module) for x in artifact.wrappers}
    return kinds.pop() if len(kinds) == 1 else "a directory of wrappers of several kinds"


def _wrappers(a: Artifact, b: Artifact) -> Difference:
    pairs, only_a, only_b = pair_wrappers(a, b)
    besides = [files.read_beside(wrapper, other) for wrapper, other in pairs]
    differences = tuple(
        wrappers.compare(beside.a, beside.b, beside.kernels_a, beside.kernels_b)
        for beside in besides
    )
    verdict = _worst(differences, differs=bool(only_a or only_b))
    notes = (*(note for beside in besides for note in beside.notes), *files.notes(a, b))
    return Difference(a.path, b.path, verdict, differences, only_a, only_b, notes=notes)


def _packages(a: Package, b: Package) -> Difference:
    others = {x.name: (x, wrapper) for x, wrapper in zip(b.models, b.wrappers, strict=True)}
    differences = tuple(
        wrappers.compare(wrapper, other, model.kernels, theirs.kernels)
        for model, wrapper in zip(a.models, a.wrappers, strict=True)
        if model.name in others
        for theirs, other in [others[model.name]]
    )
    if packages.is_same_file(a, b):
        return Difference(a.path, b.path, "identical", differences, package=PackageDifference())
    same = all(
        difference.verdict != "different" or difference.probes_changed for difference in differences
    )
    if not (same and packages.is_same_original(a, b)):
        package = packages.compare(a, b)
        return Difference(a.path, b.path, "different", differences, package=package)
    # They are equal without their probes, and at least one has probes.
    patched = [x.manifest is not None and not x.is_sources for x in (a, b)]
    notes = []
    if any(patched):
        sides = "A and B" if all(patched) else "A" if patched[0] else "B"
        notes.append(f"the library with the probes in {sides} was built, and is not compared")
        notes.append(built.FORGEABLE)
    checks = built.check(a), built.check(b)
    package = PackageDifference(built_a=checks[0], built_b=checks[1])
    states = {check.state for check in checks if check is not None}
    verdict = _worst(differences, differs="changed" in states)
    if verdict in ("identical", "instrumented"):
        verdict = "unverified" if "unverified" in states else "instrumented"
    return Difference(a.path, b.path, verdict, differences, package=package, notes=tuple(notes))


def _worst(differences: tuple[WrapperDifference, ...], *, differs: bool) -> ArtifactVerdict:
    verdicts = {difference.verdict for difference in differences}
    if differs or "different" in verdicts:
        return "different"
    worst: tuple[ArtifactVerdict, ...] = ("unverified", "instrumented")
    return next((verdict for verdict in worst if verdict in verdicts), "identical")


# Parts of names that identify a run: torch/_dynamo/debug_utils.py, torch/_logging.
_RUN = re.compile(r"\brun_\d{4}(?:_\d+)+-pid_\d+|\bdedicated_log_torch_trace_\w+")
# Names that compilers give to wrappers, in the cache and with TORCH_COMPILE_DEBUG.
_GENERATED = re.compile(r"(?:^|/)(?:c[a-z2-7]{51}\.py|[^/]*__\d+_[a-z]+_\d+\.\d+/output_code\.py)$")
_AOT_ID = re.compile(rb"^# AOT ID: \['(\w+)'\]", re.MULTILINE)
_AOT_ID_IN_NAME = re.compile(r"__(\d+_(?:forward|backward|inference))_\d+\.\d+/")

WrapperPair = tuple[Wrapper, Wrapper]


def pair_wrappers(
    a: Artifact, b: Artifact
) -> tuple[list[WrapperPair], tuple[str, ...], tuple[str, ...]]:
    """Pair wrappers by their names without what identifies the run: pairs in the order of A, and
    the names of wrappers that only one side has.

    Wrappers with generated names are also paired by equal text or equal AOT ID. If there is one
    wrapper on each side, they are a pair whatever their names are.
    """
    if len(a.wrappers) == len(b.wrappers) == 1:
        return [(a.only, b.only)], (), ()
    left, right = list(a.wrappers), list(b.wrappers)
    partners: dict[str, Wrapper] = {}
    for key in (attrgetter("name"), _name_without_run, _generated_text, _generated_id):
        for wrapper, other in by_key(key, left, right, in_order=key is _name_without_run):
            partners[wrapper.name] = other
            left.remove(wrapper)
            right.remove(other)
    if not partners:
        several = a if len(a.wrappers) > 1 else b
        names = "\n    ".join(wrapper.name for wrapper in several.wrappers)
        raise RewriterError(
            "no-common-wrappers",
            f"{several.path} holds {len(several.wrappers)} wrappers, and none has the name of one "
            f"on the other side:\n    {names}",
            hint="Wrappers of directories are paired by their paths in them, or by their AOT IDs "
            "where a compiler named them. Name two files.",
        )
    pairs = [
        (wrapper, partners[wrapper.name]) for wrapper in a.wrappers if wrapper.name in partners
    ]
    return pairs, tuple(wrapper.name for wrapper in left), tuple(wrapper.name for wrapper in right)


def _name_without_run(wrapper: Wrapper) -> str:
    return _RUN.sub("run", wrapper.name)


def _generated_text(wrapper: Wrapper) -> bytes | None:
    is_generated = not wrapper.has_file or _GENERATED.search(wrapper.name)
    return wrapper.plain.data if is_generated else None


def _generated_id(wrapper: Wrapper) -> str | None:
    """The graph in the program: the number of its compilation, and forward or backward."""
    if _generated_text(wrapper) is None:
        return None
    if match := _AOT_ID.search(wrapper.source):
        return match[1].decode()
    named = _AOT_ID_IN_NAME.search(wrapper.name)
    return named[1] if named else None
