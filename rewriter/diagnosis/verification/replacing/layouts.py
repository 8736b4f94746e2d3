"""How the variables of a Python wrapper lie in memory, as the text of the wrapper says."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rewriter.diagnosis.verification.graph_types import parsed
from rewriter.locate.inputs import UNKNOWN
from rewriter.locate.types import EntryPoint

# A line that allocates, renames or views memory, or says how a tensor lies.
_LINE = re.compile(
    r"^[ \t]*(?:\w+ = (?:empty_strided\w*\(|reinterpret_tensor\(|alloc_from_pool\(|\w+(?:[; ]|$))"
    r"|assert_size_stride\().*$",
    re.MULTILINE,
)
_VIEW = "reinterpret_tensor"
_POOL = "alloc_from_pool"


@dataclass(frozen=True)
class View:
    """`reinterpret_tensor(of, size, stride, offset)`."""

    of: str
    size: tuple[str, ...]
    stride: tuple[str, ...]
    offset: str


@dataclass(frozen=True)
class Layout:
    """Sizes and strides as they stand in the text, without spaces. `dtype` is empty if the text
    does not say; `is_part` is set if the variable may be a part of what it is a view of."""

    size: tuple[str, ...]
    stride: tuple[str, ...]
    dtype: str = ""
    is_part: bool = False
    view: View | None = None

    @property
    def numel(self) -> int | None:
        """How many elements it has; `None` where that depends on sizes."""
        total = 1
        for extent in self.size:
            if not extent.isdecimal():
                return None
            total *= int(extent)
        return total

    @property
    def is_contiguous(self) -> bool:
        """Whether it is known to lie in the order of its indices, without gaps."""
        expected = 1
        for size, stride in zip(reversed(self.size), reversed(self.stride), strict=True):
            if not (size.isdecimal() and stride.isdecimal()):
                return len(self.size) == 1 and stride == "1"
            if size != "1" and int(stride) != expected:
                return False
            expected *= int(size)
        return True

    def fits(self, sizes: tuple[str, ...]) -> bool:
        """Whether it can hold what has these sizes, in the order of its elements."""
        if self.size == sizes:
            return True
        other = Layout(sizes, sizes).numel
        return self.is_contiguous and other is not None and other == self.numel

    def lies_as(self, other: Layout) -> bool:
        return (self.size, self.stride) == (other.size, other.stride)


def text_of(sizes: Sequence[str]) -> str:
    """Sizes or strides as a tuple of Python."""
    return f"({', '.join(sizes)}{',' * (len(sizes) == 1)})"


def layouts(source: str, entries: Sequence[EntryPoint]) -> dict[str, Layout]:
    """The layouts of variables by name. One that the text gives two layouts has none."""
    known: dict[str, Layout] = {}
    ambiguous: set[str] = set()
    for entry in entries:
        for spec in entry.input_specs:
            if spec.size is not None and spec.stride is not None and not spec.open:
                # Without the bounds of a dimension, behind a colon.
                size, stride = (
                    tuple(_plain(y).partition(":")[0] for y in x) for x in (spec.size, spec.stride)
                )
                if UNKNOWN not in (*size, *stride):
                    known[spec.name] = Layout(
                        size, stride, f"torch.{spec.dtype}" * bool(spec.dtype)
                    )
    for name, found, is_asserted in _stated(source, known):
        if is_asserted and name in known:
            continue
        if name in known and not known[name].lies_as(found):
            ambiguous.add(name)
        known[name] = found
    return {name: layout for name, layout in known.items() if name not in ambiguous}


def _stated(source: str, known: Mapping[str, Layout]) -> Iterator[tuple[str, Layout, bool]]:
    """What each line says of a variable, and whether it only asserts it."""
    for match in _LINE.finditer(source):
        try:
            statements = ast.parse(match[0].strip()).body
        except (SyntaxError, RecursionError):
            continue
        for statement in statements:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                found = _assigned(statement.value, known)
                # A new buffer in the memory of a dead one is none of its parts.
                is_new = any(isinstance(other, ast.Delete) for other in statements)
                if found is not None:
                    whole = replace(found, is_part=found.is_part and not is_new)
                    yield statement.targets[0].id, whole, False
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                args = statement.value.args
                if len(args) > 2 and isinstance(args[0], ast.Name):
                    size, stride = map(_sizes, args[1:3])
                    if size is not None and stride is not None:
                        yield args[0].id, Layout(size, stride), True


def _assigned(value: ast.expr, known: Mapping[str, Layout]) -> Layout | None:
    if isinstance(value, ast.Name):
        return known.get(value.id)
    if not isinstance(value, ast.Call):
        return None
    called = ast.unparse(value.func).rpartition(".")[2]
    if called == _POOL and len(value.args) > 4:
        dtype, size, stride = ast.unparse(value.args[2]), *map(_sizes, value.args[3:5])
        return None if size is None or stride is None else Layout(size, stride, dtype)
    if called != _VIEW and not called.startswith("empty_strided"):
        return None
    view = view_of(value)
    if view is not None:
        return viewed(view, known)
    size, stride = map(_sizes, value.args[:2]) if len(value.args) > 2 else (None, None)
    dtype = ast.unparse(value.args[2]) if len(value.args) > 2 else ""
    return None if size is None or stride is None else Layout(size, stride, dtype)


def view_of(value: ast.expr) -> View | None:
    """The view that an expression is of a variable; `None` if it is none."""
    if not (isinstance(value, ast.Call) and ast.unparse(value.func).endswith(_VIEW)):
        return None
    args = value.args
    if len(args) < 3 or not isinstance(args[0], ast.Name):
        return None
    size, stride = map(_sizes, args[1:3])
    if size is None or stride is None:
        return None
    return View(args[0].id, size, stride, ast.unparse(args[3]) if len(args) > 3 else "0")


def viewed(view: View, known: Mapping[str, Layout]) -> Layout:
    """The layout of a view. It is a whole one if it has as many elements as what it views."""
    base = known.get(view.of)
    found = Layout(view.size, view.stride, "" if base is None else base.dtype)
    is_whole = (
        base is not None
        and not base.is_part
        and view.offset == "0"
        and (found.numel == base.numel if found.numel is not None else view.size == base.size)
    )
    return replace(found, is_part=not is_whole, view=view)


def layout_of(expression: str, known: Mapping[str, Layout]) -> Layout | None:
    """The layout of a variable, or of a view of one; `None` if it is not known."""
    if expression.isidentifier():
        return known.get(expression)
    view = view_in(expression, known)
    return viewed(view, known) if view is not None else None


def view_in(expression: str, known: Mapping[str, Layout]) -> View | None:
    """The view that an argument is; `None` if it is none."""
    if expression.isidentifier():
        layout = known.get(expression)
        return None if layout is None else layout.view
    tree = parsed(expression)
    return view_of(tree) if tree is not None else None


def _sizes(value: ast.expr) -> tuple[str, ...] | None:
    if not isinstance(value, (ast.Tuple, ast.List)):
        return None
    return tuple(_plain(ast.unparse(element)) for element in value.elts)


def _plain(text: str) -> str:
    return text.replace(" ", "").removesuffix("L")


_BOUND = re.compile(r"\s*(\w+) = (?:reinterpret_tensor\((\w+)|(\w+)(?=\[|;|\s*#|\s*$))")
_SILENT = re.compile(r"\s*(?:#|del |assert_|return |\w+ = (?:empty_strided|alloc_from_pool))")
_UPDATED = re.compile(r"\s*(\w+)\.\w+_\(")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Mentions:
    """The variables that statements other than launches name, and those that they update, by the
    variables that own their memory. What only names memory, allocates or releases it is left out,
    and so is what is returned."""

    named: frozenset[str]
    updated: frozenset[str]


def mentions(lines: Sequence[str], launches: Collection[int]) -> Mentions:
    """Read the lines of a wrapper but for those of `launches`, which are counted from 1."""
    owners: dict[str, str] = {}
    named: set[str] = set()
    updated: set[str] = set()
    for number, line in enumerate(lines, 1):
        if number in launches or _SILENT.match(line):
            continue
        if match := _BOUND.match(line):
            owners.setdefault(match[1], match[2] or match[3])
            continue
        named.update(_WORD.findall(line))
        if match := _UPDATED.match(line):
            updated.add(match[1])

    def owner(name: str) -> str:
        seen = {name}
        while (name := owners.get(name, name)) not in seen:
            seen.add(name)
        return name

    return Mentions(frozenset(map(owner, named)), frozenset(map(owner, updated)))
