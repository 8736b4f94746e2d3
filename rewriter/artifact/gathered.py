"""Several wrappers: those in a directory or a log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rewriter.artifact.trace import log
from rewriter.artifact.types import Wrapper
from rewriter.artifact.wrapper_file import WrapperFile
from rewriter.core.errors import RewriterError

# A wrapper, or its name and why it cannot be read.
Opened = Wrapper | tuple[str, RewriterError]


@dataclass(frozen=True)
class Gathered(WrapperFile):
    """Wrappers in several files, or in the logs and pages of a trace, which stay as they are."""

    def makes_one(self, output: str | None) -> bool:
        if len(self.wrappers) != 1 or self.damaged:
            return False
        (wrapper,) = self.wrappers
        if output:
            return output == "-" or Path(output).suffix == wrapper.path.suffix
        return wrapper.has_file

    def require_target(
        self, output: str | None, *, in_place: bool, shown: bool, probing: bool
    ) -> None:
        if self.makes_one(output):
            return
        if output == "-":
            raise self.several("Standard output takes one: choose it with --wrapper.")
        is_without = not (output or in_place or shown)
        traced = next((wrapper for wrapper in self.wrappers if self._is_record(wrapper)), None)
        if traced is not None and (in_place or is_without):
            raise RewriterError(
                "read-only-trace",
                f"{traced.name} stands in {traced.file}, which is a record and stays as it is",
                hint="Pass -o with a directory for the results.",
            )
        if is_without:
            raise self.no_target()

    def no_target(self) -> RewriterError:
        """The error if nothing says where results go."""
        return self.several(
            "Pass -o with a directory for all of them, or --in-place; or choose one with "
            "--wrapper, which takes a name, a pattern, or forward, backward, inference."
        )

    def title(self, wrapper: Wrapper) -> str:
        return wrapper.name

    def logs(self) -> Iterator[Path]:
        yield from filter(log.is_log, {x.inside for x in self.wrappers if x.inside is not None})
        if self.path.is_dir():
            yield from filter(log.is_log, self.path.rglob(f"*{log.SUFFIX}"))

    def _is_record(self, wrapper: Wrapper) -> bool:
        return not (wrapper.has_file or wrapper.stored.places)


def gather(
    path: Path, opened: Iterable[Opened], unread: Iterable[tuple[str, str]] = ()
) -> Gathered:
    """The artifact with these wrappers; `unread` are files that were not read.

    Raises `RewriterError` if there is no wrapper, or none that can be read.
    """
    opened, unread = list(opened), tuple(unread)
    wrappers = tuple(wrapper for wrapper in opened if isinstance(wrapper, Wrapper))
    damaged = tuple(wrapper for wrapper in opened if not isinstance(wrapper, Wrapper))
    artifact = Gathered(path, wrappers, unread, damaged)
    if not wrappers:
        artifact.require_sound()
        also = "".join(f"\n    {name}: {what}" for name, what in unread)
        raise RewriterError(
            "no-artifacts",
            f"no wrapper of Inductor's in {path}"
            + (" or below" if path.is_dir() else "")
            + (f"; not looked into:{also}" if also else ""),
            hint="Expected an output_code.py (TORCH_COMPILE_DEBUG=1 makes torch.compile leave "
            "one), the wrapper.cpp of AOTInductor, a log of TORCH_TRACE, or what tlparse makes "
            "of one.",
        )
    return artifact
