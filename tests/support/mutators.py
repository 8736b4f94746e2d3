"""What the fuzzer of wrappers does to the text of one. Each mutator is a function of bytes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from rewriter.core import markers

Mutator = Callable[[random.Random, bytes], bytes]

_MARK = re.compile(rb"rewriter:([0-9a-f]{8})")
_STRING = re.compile(rb"'''|\"\"\"|R\"\w*\(|'[^'\n]*'|\"[^\"\n]*\"")
_COMMENT = re.compile(rb"#[^\n]*|//[^\n]*|/\*|\*/")
_OPEN, _CLOSE = b"([{", b")]}"
# Line ends, and what other tools take for some.
_ENDS = (b"\r\n", b"\r", b"\n\r", b"\f", b"\v", b"\x1c", b"\x85", b"\xc2\x85", b"\xe2\x80\xa8")
_DEPTHS = (3, 20, 90, 150, 250, 1000, 5000, 20000)
_TEXTS = (
    b"'''", b'"""', b"'", b'"', b'R"rawliteral(', b')rawliteral"', b"/*", b"*/", b"//", b"#", b"\\",
    b";", b"\t", b"    ", b"(", b")", b"[", b"]", b"{", b"}", b"\f", b"\xef\xbb\xbf", b"\xc3\xa9",
    b"f'{", b"%s", b"\\\n", b"@", b":=", b"lambda: ", b"await ", b"async ", b"if 1:\n",
    b"\xf0\x9f\x92\xa9",
    b"return (buf0, )\n", b"del buf0\n", b"with torch.cuda._DeviceGuard(0):\n", b"pass\n",
    b"#pragma omp parallel\n", b"#if 0\n", b"#endif\n", b"#define X(a) \\\n", b"// subgraph: x\n",
    b"'\\\n",
    b"global call\n", b"nonlocal args\n", b"yield\n", b"from __future__ import annotations\n",
    b"# -*- coding: latin-1 -*-\n", b"_rw = 1\n", b"class Runner:\n", b"def call(args):\n",
    b"call = runner.call\n", b"async def call(args):\n", b"type X = int\n",
    b"match x:\n  case _: pass\n",
    b"cpp_wrapper_src = (\nr'''\n", b"void inductor_entry_impl(\n",
    b"AOTInductorModel::run_impl(\n",
    b"assert_size_stride(arg0_1, (1, 2), (1, ))\n", b"arg0_1, arg1_1 = args\n", b"args.clear()\n",
    b"arg0_1 = rand_strided((1, (2)), (1, ), device='cpu', dtype=torch.float32)\n",
    b"assert_size_stride(arg0_1, (4, 8), (8, ))\n", b"assert_size_stride(arg0_1, (), (8, 1))\n",
)  # fmt: skip


def _lines(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True) or [b""]


def _span(choices: random.Random, total: int, longest: int = 8) -> tuple[int, int]:
    start = choices.randrange(total)
    return start, min(total, start + choices.randint(1, longest))


def _at(choices: random.Random, data: bytes) -> int:
    """An offset: anywhere, or at something that begins or ends a string or a comment."""
    if choices.random() < 0.5:
        pattern = choices.choice((_STRING, _COMMENT, _MARK))
        found = [match.span() for match in pattern.finditer(data)]
        if found:
            start, end = choices.choice(found)
            return min(len(data), max(0, choices.choice((start, end, start + 1, end - 1))))
    return choices.randrange(len(data) + 1)


def _insert(data: bytes, offset: int, text: bytes) -> bytes:
    return data[:offset] + text + data[offset:]


def swap_lines(choices: random.Random, data: bytes) -> bytes:
    lines = _lines(data)
    one, other = choices.randrange(len(lines)), choices.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return b"".join(lines)


def move_lines(choices: random.Random, data: bytes) -> bytes:
    lines = _lines(data)
    start, end = _span(choices, len(lines), 30)
    taken, rest = lines[start:end], lines[:start] + lines[end:]
    place = choices.randrange(len(rest) + 1)
    return b"".join([*rest[:place], *taken, *rest[place:]])


def duplicate_lines(choices: random.Random, data: bytes) -> bytes:
    lines = _lines(data)
    start, end = _span(choices, len(lines), 30)
    place = choices.choice((end, choices.randrange(len(lines) + 1)))
    return b"".join(
        [*lines[:place], *lines[start:end] * choices.choice((1, 1, 2, 30)), *lines[place:]]
    )


def delete_lines(choices: random.Random, data: bytes) -> bytes:
    lines = _lines(data)
    start, end = _span(choices, len(lines))
    return b"".join(lines[:start] + lines[end:])


def join_lines(choices: random.Random, data: bytes) -> bytes:
    lines = _lines(data)
    at = choices.randrange(len(lines))
    by = choices.choice((b"", b" ", b"; ", b" \\\n", b"\\\n", b"\t", b"  # "))
    joined = lines[at].rstrip(b"\r\n") + by + b"".join(lines[at + 1 : at + 2]).lstrip(b" ")
    return b"".join([*lines[:at], joined, *lines[at + 2 :]])


def break_line(choices: random.Random, data: bytes) -> bytes:
    by = choices.choice((b"\n", b"\\\n", b"\r", b"\n\n", b"\n    "))
    return _insert(data, _at(choices, data), by)


def cut(choices: random.Random, data: bytes) -> bytes:
    offset = _at(choices, data)
    return choices.choice(
        (data[:offset], data[offset:], data[:offset] + data[_at(choices, data) :])
    )


def swap_parts(choices: random.Random, data: bytes) -> bytes:
    a, b, c = sorted(_at(choices, data) for _ in range(3))
    return data[:a] + data[b:c] + data[a:b] + data[c:]


def insert_text(choices: random.Random, data: bytes) -> bytes:
    return _insert(data, _at(choices, data), choices.choice(_TEXTS))


def insert_line(choices: random.Random, data: bytes) -> bytes:
    lines = _lines(data)
    at = choices.randrange(len(lines))
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip(b" \t"))]
    text = choices.choice(_TEXTS).rstrip(b"\n") + choices.choice((b"\n", b"\n", b"\r\n", b""))
    return b"".join([*lines[:at], indent + text, *lines[at:]])


def insert_mark(choices: random.Random, data: bytes) -> bytes:
    """Lines that look like ours: with a tag of this file, the one it is about to get, or any."""
    tags = [match[1] for match in _MARK.finditer(data)]
    tags += [markers.draw_tag(data).encode(), b"0" * 8, b"%08x" % choices.getrandbits(32)]
    tag, sign = choices.choice(tags), choices.choice((b"#", b"//"))
    mark = b"  " + sign + b" rewriter:" + tag
    header = (
        sign
        + b" Instrumented by inductor-rewriter 0.1.0 with print, original sha256 "
        + b"%064x" % (choices.getrandbits(256))
    )
    line = choices.choice(
        (
            mark, b"x = 1" + mark, mark + b" begin", mark + b" end", mark + b" +newline",
            header + mark,
            header + mark + b" begin", b"'''" + mark, b"_rw.before(0, buf0)" + mark, mark + mark,
            b"rewriter:" + tag, b"rewriter:", header,
        )
    )  # fmt: skip
    if choices.random() < 0.5:
        lines = _lines(data)
        at = choices.randrange(len(lines) + 1)
        return b"".join(
            [*lines[:at], line + choices.choice((b"\n", b"\r\n", b"\r", b"")), *lines[at:]]
        )
    return _insert(data, _at(choices, data), line)


def copy_marks(choices: random.Random, data: bytes) -> bytes:
    """Marked lines of an instrumented file stand twice, elsewhere, or not at all."""
    lines = _lines(data)
    marked = [at for at, line in enumerate(lines) if _MARK.search(line)]
    if not marked:
        return insert_mark(choices, data)
    at = choices.choice(marked)
    act = choices.randrange(4)
    if act == 0:
        lines.insert(choices.randrange(len(lines) + 1), lines[at])
    elif act == 1:
        del lines[at]
    elif act == 2:
        lines.insert(choices.randrange(len(lines)), lines.pop(at))
    else:
        lines[at] = _MARK.sub(b"rewriter:%08x" % choices.getrandbits(32), lines[at])
    return b"".join(lines)


def nest(choices: random.Random, data: bytes) -> bytes:
    """Put an expression into many brackets, or grow it to a chain."""
    names = list(re.finditer(rb"\b(?:buf|arg|primals_)\w*|\b\d+\b", data))
    depth = choices.choice(_DEPTHS)
    if not names:
        return data + b"(" * depth
    match = choices.choice(names)
    name = match.group()
    grown = choices.choice(
        (
            b"(" * depth + name + b")" * depth, b"[" * depth + name + b"]" * depth,
            b"{" * depth + name + b"}" * depth, b"(" * depth, b"-" * depth + name,
            b"not " * depth + name, b"~" * depth + name, name + b".a" * depth, name + b"()" * depth,
            name + b"[0]" * depth, b"+".join([name] * depth), b"**".join([name] * depth),
            b" if x else ".join([name] * depth), b"lambda: " * depth + name,
            b"f(" * depth + b")" * depth,
            b"a.b(" * depth + b")" * depth, name + b".f(x)" * depth, b"await " * depth + name,
            b" and ".join([name] * depth), b"<".join([name] * depth), b"*" * depth + name,
            b"f'{" * min(depth, 200) + name + b"}'" * min(depth, 200), name + b", " + name * depth,
            b"static_cast<int>(" * depth + name + b")" * depth, b"a<" * depth + name + b">" * depth,
            b"&" * depth + name, b"!" * depth + name, name + b"->f" * depth, name + b"::f" * depth,
        )
    )  # fmt: skip
    return data[: match.start()] + grown + data[match.end() :]


def nest_statements(choices: random.Random, data: bytes) -> bytes:
    """Blocks within blocks, before a line."""
    lines = _lines(data)
    at = choices.randrange(len(lines))
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip(b" \t"))]
    depth = choices.choice(_DEPTHS[:-1])
    kind = choices.randrange(5)
    if kind == 0:
        text = b"".join(indent + b" " * i + b"if 1:\n" for i in range(min(depth, 1000)))
        text += indent + b" " * min(depth, 1000) + b"pass\n"
    elif kind == 1:
        text = b"{" * depth + b"}" * depth + b"\n"
    elif kind == 2:
        text = b"if (x) " * depth + b";\n"
    elif kind == 3:
        text = indent + b"if x: pass\n" + (indent + b"elif x: pass\n") * depth
    else:
        text = b"if (x) {} else " * depth + b"{}\n"
    return b"".join([*lines[:at], text, *lines[at:]])


def lengthen(choices: random.Random, data: bytes) -> bytes:
    """One long line, or a great many short ones."""
    count = choices.choice((200, 5_000, 100_000))
    text = choices.choice(
        (b" ", b"a", b"'", b"(", b"#", b"x, ", b"\\", b"*/", b"\n", b"\r", b"x\n", b";")
    )
    return _insert(data, _at(choices, data), text * (count // len(text)))


def exchange_ends(choices: random.Random, data: bytes) -> bytes:
    end = choices.choice(_ENDS)
    if choices.random() < 0.5:
        return data.replace(b"\n", end)
    lines = _lines(data)
    at = choices.randrange(len(lines))
    lines[at] = lines[at].rstrip(b"\n") + end
    return b"".join(lines)


def insert_end(choices: random.Random, data: bytes) -> bytes:
    return _insert(data, _at(choices, data), choices.choice(_ENDS))


def spoil(choices: random.Random, data: bytes) -> bytes:
    """Bytes that are no text, or text of another encoding."""
    act = choices.randrange(6)
    if act == 0:
        return b"\xef\xbb\xbf" * choices.randint(1, 2) + data
    if act == 1:
        return data.decode("utf-8", "replace").encode(
            choices.choice(("utf-16", "utf-32", "utf-16-le"))
        )
    if act == 2:
        return (
            b"# -*- coding: %s -*-\n" % choices.choice((b"latin-1", b"utf-16", b"nonsense")) + data
        )
    if act == 3:
        return _insert(data, _at(choices, data), b"\0" * choices.randint(1, 3))
    if act == 4:
        return _insert(data, _at(choices, data), bytes([choices.randrange(128, 256)]))
    flipped = bytearray(data or b"\0")
    for _ in range(choices.randint(1, 4)):
        flipped[choices.randrange(len(flipped))] = choices.randrange(256)
    return bytes(flipped)


def indent_line(choices: random.Random, data: bytes) -> bytes:
    lines = _lines(data)
    at = choices.randrange(len(lines))
    by = choices.choice((b"\t", b" ", b"    ", b"\f", b"        ", b""))
    lines[at] = choices.choice((by + lines[at], by + lines[at].lstrip(b" \t")))
    return b"".join(lines)


def share_line(choices: random.Random, data: bytes) -> bytes:
    """Statements that share a line, or go over several."""
    lines = _lines(data)
    at = choices.randrange(len(lines))
    bare = lines[at].rstrip(b"\r\n")
    lines[at] = choices.choice(
        (bare + b"; x = 1\n", bare + b";\n", b"x = 1; " + bare + b"\n", bare + b" \\\n",
         bare + b";;\n",
         bare + b"  # '''\n", bare + b" // */\n", bare + b" /* \n",
         b"if 1: " + bare.lstrip() + b"\n",
         bare.replace(b"(", b"(\n").replace(b",", b",\\\n") + b"\n")
    )  # fmt: skip
    return b"".join(lines)


def rename(choices: random.Random, data: bytes) -> bytes:
    """One name becomes another that the file has."""
    names = re.findall(rb"\b[A-Za-z_]\w{2,}\b", data)
    if not names:
        return data
    one, other = (
        choices.choice(names),
        choices.choice([*names, b"_rw", b"args", b"None", b"call", b"self"]),
    )
    return re.sub(
        rb"\b" + re.escape(one) + rb"\b", lambda _: other, data, count=choices.choice((0, 1))
    )


def exchange_number(choices: random.Random, data: bytes) -> bytes:
    numbers = list(re.finditer(rb"\b\d+\b", data))
    if not numbers:
        return data
    match = choices.choice(numbers)
    values = (
        b"0",
        b"-1",
        b"1e999",
        b"0x1",
        b"1_0",
        b"9" * 30,
        b"9" * 5000,
        b"''",
        b"()",
        b"None",
        b"1j",
        b"...",
    )
    return data[: match.start()] + choices.choice(values) + data[match.end() :]


MUTATORS: tuple[Mutator, ...] = (
    swap_lines, move_lines, duplicate_lines, delete_lines, join_lines, break_line, cut, swap_parts,
    insert_text, insert_line, insert_mark, copy_marks, nest, nest_statements, lengthen,
    exchange_ends, insert_end, spoil, indent_line, share_line, rename, exchange_number,
)  # fmt: skip


def mutate(choices: random.Random, data: bytes, others: tuple[bytes, ...] = ()) -> bytes:
    """A few mutations in a row; `others` are texts to splice in."""
    for _ in range(choices.choice((1, 1, 1, 2, 3, 6))):
        if others and choices.random() < 0.08:
            data = splice(choices, data, choices.choice(others))
        else:
            data = choices.choice(MUTATORS)(choices, data)
    return data


def splice(choices: random.Random, data: bytes, other: bytes) -> bytes:
    """The beginning of one text with the end of another, or one within the other."""
    if choices.random() < 0.5:
        return data[: _at(choices, data)] + other[_at(choices, other) :]
    lines, more = _lines(data), _lines(other)
    start, end = _span(choices, len(more), 60)
    at = choices.randrange(len(lines) + 1)
    return b"".join([*lines[:at], *more[start:end], *lines[at:]])
