"""Puts what torch's operators compute in the place of launches, by inserted lines.

A line in front of a launch calls the function, and ends in a backslash: the statement below it is
what is done if the function returns `None`, and stays as it is.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Sequence

from rewriter.artifact.types import Wrapper
from rewriter.core import edit, markers
from rewriter.core.edit import Insertion
from rewriter.core.types import Json
from rewriter.diagnosis.verification.replacing import insert_cpp
from rewriter.diagnosis.verification.replacing.proxy_calls import HELPERS
from rewriter.diagnosis.verification.replacing.substitutes import Substitute
from rewriter.instrumentation import options_line, verify
from rewriter.instrumentation.options_line import OptionsRecord
from rewriter.instrumentation.types import Edited, Selection
from rewriter.locate.cpp import embedded
from rewriter.version import __version__

_IMPORT = "from rewriter.runtime.attempt import {0} as {1}_{0}"


def replaced(
    wrapper: Wrapper,
    chosen: Sequence[Substitute],
    *,
    attempts: str = "",
    keeps: bool = False,
    among: Sequence[Substitute] = (),
) -> Edited:
    """Replace launches of a plain wrapper in a Python file.

    With `attempts`, a name for the wrapper, a launch whose function fails runs as it is, and a file
    beside the socket of `rewriter bisect` says why. If it `keeps` outputs, too, files there have
    what its first calls return. C++ is the same text whichever launches are chosen `among` some, so
    that it is compiled once.
    """
    source, name = wrapper.plain, _name(wrapper)
    tag, at = markers.draw_tag(source.data), wrapper.located.header
    mark = markers.Mark(tag, "#")
    if wrapper.language == "cpp":
        at = embedded.extract(source).statement
        numbers = {x.launch.index for x in chosen}
        placed = among or chosen
        before, inner = insert_cpp.called_in_python(wrapper, placed, name)
        inner = [x for x in inner if x.launch.index in numbers]
        called = insert_cpp.CALLED.replace("TAG", tag).replace("NAME", name)
        head = ["import torch", *_functions(name, inner, attempts), *called.splitlines()]
    else:
        head = [f"# {x}" for x in _head(wrapper, chosen)]
        head += _functions(name, chosen, attempts)
    newline = source.newline_at(at)
    made = [Insertion(at, b"".join(mark.line(x, newline) for x in head), "reference")]
    if keeps:
        line = f"{_IMPORT.format('keeping', name)}; call = {name}_keeping({attempts!r}, call)"
        is_open = not source.data.endswith((b"\n", b"\r"))
        text = mark.line(line, newline, at_end=is_open)
        made.append(Insertion(len(source.data), text, "outputs"))
    if wrapper.language == "cpp":
        return _in_cpp(wrapper, placed, tag, insert_cpp.CALL, before, *made)
    for substitute in chosen:
        point = substitute.launch.insertion_point
        call = f"{name}_{substitute.launch.index}({', '.join(substitute.arguments)})"
        call = f"({substitute.target} := {call})" if substitute.target else call
        text = mark.joined(
            f"{point.indent.decode()}if {call} is None", source.newline_at(point.start)
        )
        made.append(Insertion(point.start, text, f"#{substitute.launch.index}"))
    edited = Edited(edit.apply(source.data, made), tuple(made))
    _verify(wrapper, edited.source)
    return edited


def replaced_in_package(
    wrapper: Wrapper, chosen: Sequence[Substitute], device: str
) -> tuple[Edited, list[Json]]:
    """Replace launches of a package's wrapper, for a type of device; also returns the nodes that
    its proxy executor then needs in addition. Raises `NotCalledError`."""
    before, nodes = insert_cpp.proxied(wrapper, chosen, _name(wrapper), device)
    tag = markers.draw_tag(wrapper.plain.data)
    return _in_cpp(wrapper, chosen, tag, HELPERS, before), nodes


def _in_cpp(
    wrapper: Wrapper,
    chosen: Sequence[Substitute],
    tag: str,
    helpers: str,
    before: Sequence[Sequence[str]],
    *functions: Insertion,
) -> Edited:
    """With C++ that the lines `before` the launches call, and `functions` around it."""
    head = [f"// {x}" for x in _head(wrapper, chosen)]
    head += helpers.replace("TAG", tag).replace("NAME", _name(wrapper)).splitlines()
    mark = markers.Mark(tag, "//")
    made = (*functions, *insert_cpp.insertions(wrapper, chosen, head, before, mark))
    edited = Edited(edit.apply(wrapper.plain.data, made), made)
    verify.verify(wrapper, edited.source)
    return edited


def _name(wrapper: Wrapper) -> str:
    """How the names of inserted functions begin."""
    name = "_rw_reference"
    while name.encode() in wrapper.plain.data:
        name += "_"
    return name


def _head(wrapper: Wrapper, chosen: Sequence[Substitute]) -> tuple[str, str]:
    """The two lines that say what was done, without their comment signs."""
    sha256 = hashlib.sha256(wrapper.plain.data).hexdigest()
    record = OptionsRecord(artifact=wrapper.path.name, key=wrapper.original_key)
    first = markers.header_line(__version__, (markers.REFERENCE,), sha256)
    return first, options_line.line(record, selection_of(chosen))


def selection_of(chosen: Sequence[Substitute]) -> Selection:
    """What the line with the options says of replaced launches."""
    launches = tuple(range(x.launch.index, x.launch.index + 1) for x in chosen)
    return Selection(probes=(markers.REFERENCE,), launches=launches)


def _functions(name: str, chosen: Sequence[Substitute], attempts: str) -> list[str]:
    """The functions of launches, whose lines are marked one by one."""
    lines = [_IMPORT.format("attempt", name)] if attempts and chosen else []
    for substitute in chosen:
        if attempts:
            lines.append(f"@{name}_attempt({f'{attempts}#{substitute.launch.index}'!r})")
        head = f"def {name}_{substitute.launch.index}({', '.join(substitute.parameters)}):"
        lines += ["@torch.no_grad()", head, *(f"    {x}" for x in substitute.lines)]
    return lines


def _verify(wrapper: Wrapper, made: bytes) -> None:
    """Raises `RewriterError` if the original does not come back, or the text is no Python."""
    verify.require_original(wrapper, made)
    try:
        ast.parse(made)
    except (SyntaxError, RecursionError) as error:
        raise verify.failed(
            wrapper, f"with launches replaced, it does not parse: {error}"
        ) from error
