"""Checks that a patched package is what `instrument` packs: its manifest, and what was built."""

from __future__ import annotations

import tempfile
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from rewriter.artifact.package import pack
from rewriter.artifact.package.model import Package
from rewriter.core import markers
from rewriter.core.errors import RewriterError
from rewriter.instrumentation import options_line
from rewriter.instrumentation.instrument import instrument_wrapper
from rewriter.instrumentation.probe_check import ProbeCheck

# What hashes cannot prove.
FORGEABLE = (
    "that a new library was built from its sources is known from hashes in its manifest, and "
    "those can be changed together with the library; only building it again would show it"
)


def check(package: Package) -> ProbeCheck | None:
    """Check the other contents of a patched package; `None` if there are none."""
    manifest = package.manifest
    if manifest is None or package.is_sources:
        return None
    if manifest.get("probes") == [markers.REFERENCE]:
        return ProbeCheck("unverified", "its launches are replaced")
    written = manifest.get("written")
    if not isinstance(written, dict):
        return ProbeCheck("unverified", "its manifest has no hashes of what was built")
    try:
        return _check(package, manifest, written)
    except (KeyError, ValueError, TypeError, AttributeError, OSError) as error:
        return ProbeCheck("changed", f"its manifest is none that instrument writes: {error!r}")
    except (zipfile.BadZipFile, zlib.error, EOFError, RewriterError) as error:
        return ProbeCheck("changed", f"it cannot be read as it was packed: {error}")


def _check(package: Package, manifest: dict[str, Any], written: dict[str, Any]) -> ProbeCheck:
    hashes = {package.root + name: digest for name, digest in package.hashes().items()}
    models = manifest["models"]
    built = {about[key] for about in models.values() for key in ("wrapper", "library")} - {None}
    if built != set(written):
        return ProbeCheck("changed", "its manifest does not name what was built")
    for name, digest in written.items():
        if hashes.get(name) != digest:
            return ProbeCheck("changed", f"{name} is not the one that was packed")
    if not _says_what_is_there(package, manifest):
        return ProbeCheck("changed", "its manifest does not say what is in its sources")
    if package.is_folder:
        moved = {about["library"]: about["original_library"] for about in models.values()}
        names = {moved.get(name) or name for name in manifest["original"]}
        names |= built | {package.root + pack.MANIFEST}
        whole = names == set(package.container.names)
    else:
        with tempfile.TemporaryDirectory(prefix="rewriter-") as scratch:
            whole = pack.is_as_packed(package.path, package.root, Path(scratch))
    if not whole:
        return ProbeCheck("changed", "beside its members, it is not packed as instrument packs")
    return ProbeCheck("verified")


def _says_what_is_there(package: Package, manifest: dict[str, Any]) -> bool:
    """Whether the manifest describes the probes in the sources."""
    from rewriter.instrumentation.rebuild import probed_models
    from rewriter.instrumentation.rebuild.types import ROUTES

    models = manifest["models"]
    probed = []
    for model, wrapper in zip(package.models, package.wrappers, strict=True):
        if model.name not in models or wrapper.probes is None:
            continue
        recorded = options_line.read(wrapper.source, wrapper.probes.tag, wrapper.probes.probes)
        if recorded is None:
            return False
        plain = replace(wrapper, source=wrapper.restored.source)
        probed.append(probed_models.Probed(model, instrument_wrapper(plain, recorded[1])))
    routes = [models[patched.model.name]["route"] for patched in probed]
    if not probed or not set(routes) <= set(ROUTES):
        return False
    expected = probed_models.manifest(probed, routes)
    for patched in probed:
        # The manifest has the names in the original; the package has another library.
        about = models[patched.model.name]
        expected["models"][patched.model.name]["original_library"] = about["original_library"]
    chosen = {model.name for model in package.models}  # other models are not checked
    actual = {key: manifest.get(key) for key in expected}
    actual["models"] = {name: about for name, about in models.items() if name in chosen}
    return actual == expected
