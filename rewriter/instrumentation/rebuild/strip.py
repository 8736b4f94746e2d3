"""Takes probes out of a package."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rewriter.artifact.package import pack
from rewriter.artifact.package.container import Overlay
from rewriter.artifact.package.model import Package, open_package
from rewriter.core import edit, json_text, limits
from rewriter.core.errors import RewriterError
from rewriter.instrumentation.editable import require_plain


@contextmanager
def plain(package: Package, *, may_replace: bool) -> Iterator[Package]:
    """The package without probes: itself, or for the time being what it was patched from."""
    probed = [wrapper for wrapper in package.wrappers if wrapper.probes is not None]
    if package.manifest is None and not probed:
        yield package
        return
    for wrapper in probed:
        if wrapper.replaced:
            require_plain(wrapper, replace=may_replace)
    if not may_replace:
        names = ", ".join((package.manifest or {}).get("probes", ())) or "probes"
        raise RewriterError(
            "already-instrumented",
            f"{package.path} is instrumented already (with {names})",
            hint="Pass --replace to exchange its probes, or `rewriter strip` it first.",
        )
    with tempfile.TemporaryDirectory(prefix="rewriter-") as scratch:
        original = Path(scratch) / package.path.name
        if not strip(package, original):
            raise RewriterError(
                "edited-since",
                f"{package.path} was changed after it was instrumented: "
                "without its probes it is not the package that it was made from",
                hint="`rewriter strip` it, look at the result, and instrument that.",
            )
        yield open_package(original, tuple(model.name for model in package.models))


def strip(package: Package, output: Path) -> bool:
    """Write a package without its probes to `output`; whether it is exactly the original.

    Where somebody changed or packed it again since, the members are what they were before, and
    the changes stay.
    """
    if package.is_sources:
        return _strip_sources(package, output)
    if package.manifest is not None and not package.is_folder:
        if pack.restore(package.path, package.root, output):
            return True
        output.unlink(missing_ok=True)
    _strip_members(package, output)
    original = (package.manifest or {}).get("original")
    return package.is_folder and isinstance(original, dict) and pack.hashes(output) == original


def _strip_sources(package: Package, output: Path) -> bool:
    """The package beside the sources is the original, if the sources are those of that package."""
    assert isinstance(package.container, Overlay)
    assert package.manifest is not None
    original = package.container.original
    shutil.copyfile(original.path, output)
    return bool(pack.sha256(output) == package.manifest["original"].get("sha256")) and all(
        edit.strip(model.source).source == original.read(model.wrapper, limits.WRAPPER_BYTES)
        for model in package.models
    )


def _strip_members(package: Package, output: Path) -> None:
    """Undo by name what was done to each member."""
    models = (package.manifest or {}).get("models", {})
    undo = {
        about["original_library"]: about["library"]
        for about in models.values()
        if about.get("original_library") in package.container.names
    }
    dropped = set(undo.values()) | {package.root + pack.MANIFEST, package.root + pack.DIRECTORY}
    edited = {model.wrapper: edit.strip(model.source).source for model in package.models}
    for model, wrapper in zip(package.models, package.wrappers, strict=True):
        if model.operators and (ours := models.get(model.name, {}).get("operators")):
            nodes = wrapper.operators[:-ours]
            if not nodes:
                dropped.add(model.operators)
            edited[model.operators] = json_text.encode({"nodes": list(nodes)}).encode()
    with tempfile.TemporaryDirectory(prefix="rewriter-") as scratch:
        members = []
        for number, name in enumerate(package.container.names):
            if name in dropped and name not in undo:
                continue
            file = Path(scratch) / str(number)
            if name in edited:
                file.write_bytes(edited[name])
            else:
                package.container.extract(name, file)
            members.append((undo.get(name, name), file))
        if package.is_folder:
            pack.write_folder(output, members)
        else:
            pack.write(output, members)
