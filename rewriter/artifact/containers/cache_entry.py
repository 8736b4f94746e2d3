"""Entries of torch's caches, as files of one pickle each.

Inductor's (`fxgraph/`) contain a wrapper. AOTAutograd's (`aotautograd/`) have the keys of the
entries of their graphs, or with `bundled_autograd_cache` contain these. Dynamo's (`dynamo/`, with
TORCH_CACHING_PRECOMPILE=1) contain those of all graphs of a function.
"""

from __future__ import annotations

import re

from rewriter.artifact.containers.types import Contents, Section
from rewriter.artifact.types import Form
from rewriter.core import pickle_reader
from rewriter.core.pickle_reader import Pickle

INDUCTOR = Form("fx-graph-entry", "an entry of Inductor's cache")
AOT_AUTOGRAD = Form("aot-autograd-entry", "an entry of AOTAutograd's cache")
DYNAMO = Form("dynamo-entry", "an entry of Dynamo's cache")
OTHER = Form("pickle", "a pickle")

# The class of the outermost object, by its name in pickles.
_CLASSES = {
    "CompiledFxGraph": INDUCTOR,
    "AOTAutogradResult": AOT_AUTOGRAD,
    "AOTAutogradCacheEntry": AOT_AUTOGRAD,
    "BundledAOTAutogradResult": AOT_AUTOGRAD,
    "BundledAOTAutogradCacheEntry": AOT_AUTOGRAD,
    "PrecompileCacheEntry": DYNAMO,
}
_KEY = re.compile(rb"f[a-z2-7]{51}")


def read(data: bytes) -> Contents | None:
    """Read an entry, or any other pickle; `None` if a file does not begin like one."""
    if not pickle_reader.begins(data):
        return None
    root = pickle_reader.read(data)
    names = (name.name for name in root.names)
    form = next((_CLASSES[name] for name in names if name in _CLASSES), OTHER)
    return Contents(form, data, root, (Section(root),), _keys(root))


def _keys(pickle: Pickle) -> tuple[str, ...]:
    """The keys of Inductor's entries to which an entry refers."""
    texts = (value.raw(text) for value in pickle.walk() for text in value.texts)
    return tuple(dict.fromkeys(text.decode() for text in texts if _KEY.fullmatch(text)))
