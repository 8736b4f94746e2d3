"""Reads the files of a dump: `manifest.json`, and of each call `run.json` and its lines, also while
a program writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

from msgspec import Struct, structs, to_builtins

from rewriter.core import json_text, limits
from rewriter.core.errors import RewriterError
from rewriter.core.types import Json
from rewriter.dump.documents import Manifest, RunFacts, RunLaunches
from rewriter.dump.rows import SchemaError, read

MANIFEST, ENDED, STOPPED = "manifest.json", "ended.json", "stopped.json"
RUN, LAUNCHES, EVENTS = "run.json", "launches.json", "events.jsonl"  # of each call
# The fields of `run.json` that are kept if it is invalid: no reader depends on them.
_SHOWN_OF_RUN = ("format", "version", "label", "call")
_S = TypeVar("_S", bound=Struct)
_T = TypeVar("_T")


def corrupt(path: Path, problem: str) -> RewriterError:
    """The error for a file that is not as a probed program writes it."""
    return RewriterError(
        "corrupt-dump",
        f"{path}: {problem}",
        hint="Copy the dump again, or run the program once more.",
    )


class RunTables:
    """Reads the facts of many calls. All calls of a wrapper have the same table of launches, so
    each table is parsed once and shared."""

    def __init__(self) -> None:
        self._files: dict[tuple[int, ...], RunLaunches] = {}
        self._contents: dict[bytes, RunLaunches] = {}

    def facts(self, path: Path) -> RunFacts:
        """The content of a `run.json`, with the table beside it. Raises `RewriterError` if one of
        them is invalid."""
        content = _without_unsound(_read_json(path), RunFacts, _SHOWN_OF_RUN)
        facts = _document(path, content, RunFacts)
        if facts.launches or facts.outputs:
            return facts
        table = self._table(path.with_name(LAUNCHES))
        if table is None:
            return facts
        return structs.replace(facts, outputs=table.outputs, launches=table.launches)

    def _table(self, path: Path) -> RunLaunches | None:
        """The table that a call has a link to; `None` in a dump of an early version."""
        try:
            about = path.stat()
        except OSError:
            return None
        key = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns)
        if key not in self._files:
            data = _read_bytes(path)  # in a copy of a dump, each link is a file of its own
            if data not in self._contents:
                self._contents[data] = _document(path, _json(path, data), RunLaunches)
            self._files[key] = self._contents[data]
        return self._files[key]


def document_text(content: Struct) -> str:
    """The text of a file with this content."""
    return json_text.encode(to_builtins(content), indent=1) + "\n"


def read_manifest(path: Path) -> Manifest:
    """The manifest of a dump, also for a part of it; an empty one if there is none."""
    for directory in (path, *path.absolute().parents[:2]):
        if (directory / MANIFEST).is_file():
            content = _read_json(directory / MANIFEST)
            # Other programs have files of that name, perhaps in a folder above a part of a dump.
            if content.get("format") in (None, "rewriter.dump"):
                # It only describes the runs, which can be read without it.
                content = _without_unsound(content, Manifest, content)
                return _document(directory / MANIFEST, content, Manifest)
    return Manifest()


def was_stopped(dump: Path) -> bool:
    """Whether `--stop` ended the program of a dump, or of the dump that this is a part of."""
    around = (dump, *dump.absolute().parents[:2])
    whole = next((x for x in around if (x / MANIFEST).is_file()), None)
    return whole is not None and (whole / STOPPED).is_file()


def names_dump(path: Path) -> bool:
    """Whether a directory has the manifest of a dump: other programs have files of that name."""
    try:
        content = json_text.parse_object(limits.read(path / MANIFEST, limits.JSON_BYTES))
    except (OSError, RewriterError, json_text.JsonError):
        return False
    return content.get("format") == "rewriter.dump"


def open_events(path: Path) -> BinaryIO:
    """Open the file with the rows of a call. Raises `RewriterError` if a program that keeps only
    the last calls has removed it since."""
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        raise RewriterError(
            "dump-changed",
            f"{path.parent} was removed while it was read: the program that writes the dump keeps "
            "its last calls only",
            hint="Read it again, now or after the program has ended.",
        ) from error


def lines(path: Path, read: Callable[[Json], _T]) -> Iterator[tuple[int, _T]]:
    """Yield every line and its size in bytes; a last line that a crash cut off is left out."""
    bound = limits.JSON_LINE_BYTES
    with open_events(path) as file:
        for number, line in enumerate(iter(partial(file.readline, bound + 1), b""), 1):
            if len(line) > bound:
                raise corrupt(path, f"line {number} is longer than {bound:,} bytes")
            if not line.endswith(b"\n"):
                return
            try:
                yield len(line), read(json_text.parse_object(line))
            except json_text.JsonError as error:
                raise corrupt(path, f"line {number} is no JSON object: {error}") from error
            except SchemaError as error:
                text = f"line {number}: {error} is not what a probed program writes"
                raise corrupt(path, text) from error


def _without_unsound(content: Json, kind: type[Struct], names: Iterable[str]) -> Json:
    """`content` without those named fields that another version, or a person, wrote differently.

    All fields of `kind` have defaults.
    """
    return {
        name: value
        for name, value in content.items()
        if name not in names or _is_sound({name: value}, kind)
    }


def _is_sound(content: Json, kind: type[Struct]) -> bool:
    try:
        read(content, kind)
    except SchemaError:
        return False
    return True


def _document(path: Path, content: Json, kind: type[_S]) -> _S:
    try:
        return read(content, kind)
    except SchemaError as error:
        raise corrupt(path, f"{error} is not what a probed program writes") from error


def _read_json(path: Path) -> Json:
    return _json(path, _read_bytes(path))


def _read_bytes(path: Path) -> bytes:
    """The bytes of a file; those of an empty object if it does not exist."""
    try:
        return limits.read(path, limits.JSON_BYTES)
    except FileNotFoundError:
        return b"{}"
    except OSError as error:
        raise corrupt(path, str(error)) from error


def _json(path: Path, data: bytes) -> Json:
    try:
        return json_text.parse_object(data)
    except json_text.JsonError as error:
        raise corrupt(path, f"it holds no JSON object: {error}") from error
