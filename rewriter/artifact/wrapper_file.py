"""A file with one wrapper, and the files beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rewriter.artifact.recognise import PAIRED, not_a_wrapper, read, require_text
from rewriter.artifact.types import Artifact, NewFile, Wrapper
from rewriter.core import limits, markers
from rewriter.core.errors import RewriterError
from rewriter.core.source import check_text
from rewriter.core.types import Json, Language
from rewriter.locate.languages import language, recognise


@dataclass(frozen=True)
class WrapperFile(Artifact):
    """A file with one wrapper."""

    def rewritten(self, sources: Mapping[str, bytes]) -> tuple[NewFile, ...]:
        return tuple(
            new_file(wrapper, sources[wrapper.name])
            for wrapper in self.wrappers
            if wrapper.name in sources
        )


def new_file(wrapper: Wrapper, source: bytes) -> NewFile:
    """The file of a wrapper with a new source, and those that go with it."""
    paired: tuple[NewFile, ...] = ()
    warning = ""
    if wrapper.has_file and wrapper.path.with_suffix(PAIRED).is_file():
        from rewriter.artifact.precompile_cache import cache_with

        paired, warning = cache_with(wrapper, source)
    operators = wrapper.path.with_suffix(".json")
    return NewFile(
        wrapper.path,
        wrapper.name,
        wrapper.source,
        source,
        wrapper.restored.source,
        (wrapper.name,),
        paired,
        (operators,) if wrapper.operators and operators.is_file() else (),
        warning,
    )


def open_wrapper_file(path: Path) -> WrapperFile:
    """Open a file with one wrapper. Raises `RewriterError` that says what it is instead."""
    data = read(path)
    require_text(path, data)
    check_text(str(path), data)
    wrapper = read_wrapper(path, path.name, data)
    if wrapper is None:
        raise not_a_wrapper(path, data)
    return WrapperFile(path, (wrapper,))


def open_pair(path: Path) -> WrapperFile | None:
    """Open the code that a cache of `torch.compiler.precompile` belongs to; `None` if a file is not
    such a cache."""
    from rewriter.artifact.precompile_cache import read_cache

    if read_cache(path) is None:
        return None
    code = path.with_suffix(".py")
    if not code.is_file():
        raise RewriterError(
            "cache-alone",
            f"{path} holds kernels for {code.name}, which is not beside it: the wrapper is there",
            hint="Put the two files that torch.compiler.precompile wrote side by side.",
        )
    return open_wrapper_file(code)


def read_wrapper(path: Path, name: str, data: bytes) -> Wrapper | None:
    """The wrapper in the text of a file, under a name; `None` if it is not one."""
    written_in = recognise(path.suffix, data)
    if written_in is not None:
        return open_known(path, name, data, written_in)
    # A fragment with probes, as `instrument` makes of a text that somebody posted.
    is_fragment = path.suffix == ".py" and markers.find_header(data) is not None
    return Wrapper(name, data, "python", path, is_fragment=True) if is_fragment else None


def open_known(path: Path, name: str, data: bytes, written_in: Language) -> Wrapper:
    """The wrapper that is known to be in a file, with the files beside it."""
    return Wrapper(name, data, written_in, path, operators_beside(path, written_in))


def operators_beside(path: Path, written_in: Language) -> tuple[Json, ...]:
    """The nodes of the `.json` beside a C++ wrapper; none if there is no such file."""
    name = language(written_in).operators_file(path.name)
    if not name or not (beside := path.with_name(name)).is_file():
        return ()
    from rewriter.locate import proxy_operators  # takes time to import

    return proxy_operators.read(beside, read(beside, limits.JSON_BYTES))
