"""Wrappers, and parts of them, in texts that people post.

Logs of `TORCH_LOGS=output_code`, whose lines have prefixes; code that is quoted, fenced or indented
as in an issue; a `call` alone, or its body; files of a single kernel, and of what launches it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from rewriter.artifact.gathered import Opened, gather
from rewriter.artifact.graph_kind import graph_of, numbered
from rewriter.artifact.recognise import read
from rewriter.artifact.trace.types import folder_of
from rewriter.artifact.types import Wrapper
from rewriter.artifact.wrapper_file import WrapperFile
from rewriter.core.errors import RewriterError
from rewriter.core.types import Language
from rewriter.locate.languages import recognise, suffixes

# What torch puts before each line (torch/_logging/_internal.py), behind what a launcher puts there;
# up to torch 2.1 the form of Python's own logging.
_PREFIX = re.compile(
    rb"(?P<before>[^\n]{0,80}?)(?:[VDIWEC]\d{4} [\d:.]+ +(?P<process>\d+) +[^ \]\n][^\]\n]*:\d+\]"
    rb"|\[\d{4}-\d\d-\d\d [\d:,]+\])(?: \[!?(?P<id>[\d/_-]+)\])?(?: \[__(?P<artifact>\w+)\]"
    rb"| torch\.[\w.]+: \[[A-Z]+\])(?: (?P<text>[^\n]*))?"
)
_LOGGED = (b"[__output_code]", b"output_code: [")
_BEGIN, _END = b"Output code:", re.compile(rb"\w+ code written to:")
_RANK = re.compile(rb"(?:rank|default)?(\d+)\]")

_QUOTE = re.compile(rb"\A(?:[ \t]{0,3}>[ \t]?)+")
_FENCE = re.compile(rb"[ \t]*(?:```|~~~)")
_FENCED = re.compile(rb"^[> \t]*(?:```|~~~)", re.MULTILINE)
_FENCE_BEHIND_WORDS = re.compile(rb"[^`]*\s```\w*\s*")
_OPENS = (b":", b"(", b"[", b"{", b",", b"\\")
_UNINDENTED = re.compile(rb"^[^\s]", re.MULTILINE)
# A sentence beside the code.
_PROSE = re.compile(
    rb"(?!(?:from|import|with|if|elif|for|while|del|return|raise|global|async|assert)\b)"
    rb"[*-]?[\w'*]*[,:]?(?: [\w'`().,:*?!-]+){2,}\s*"
)
# Instead of lines that were left out.
LEFT_OUT = re.compile(
    rb"^[ \t]*(?:#[ \t]*)?(?:\[?(?:\.\.+|\xe2\x80\xa6)|<[^>\n]*(?:snip|omit|remov|truncat)).*$",
    re.MULTILINE | re.IGNORECASE,
)
# In a fragment: what launches a kernel, or defines one.
_PART = re.compile(
    rb"^[ \t]*(?:\w[\w, ]*=[ \t]*)?(?:\w+\.run\([^\n]*\bstream=|extern_kernels\.\w+\("
    rb"|cpp_fused\w*\(|kernel_cpp_\d+\(|triton_\w+\[[^\]\n]*\]\()"
    rb"|^[ \t]*(?:buf\d+ = )?(?:torch\.ops|aten)\.[\w.]+\([^\n]*\b(?:buf\d|arg\d+_\d)"
    rb"|^[ \t]*@(?:triton\.)?jit\b|\basync_compile\.\w+\("
    rb"|^[ \t]*def (?:call|partition_\d+)\((?:self, *)?args\)",
    re.MULTILINE,
)
_TRACEBACK = b'\n  File "'  # quotes lines of code, too
_C_KERNEL = re.compile(rb'^[ \t]*extern "C"', re.MULTILINE)
# The last line of a kernel's source in a wrapper, and the first.
_CLOSED = re.compile(rb"^'''[^\n]*\n", re.MULTILINE)
_OPENED = re.compile(rb"^\w+ = async_compile\.[^\n]*'''\n", re.MULTILINE)
_AT = "at_line_"  # where in a file a part begins
_MAIN = re.compile(rb"\nif __name__ ==[^\n]*\n[ \t]")
_RETURN = re.compile(rb"^[ \t]*return\b", re.MULTILINE)
_CALL = re.compile(rb"^[ \t]*def \w+\((?:self, *)?args\)", re.MULTILINE)
_HEADER = b"AsyncCompile()"  # in the first lines of a whole wrapper
# In a file: a wrapper that is cut or damaged, or a program that `rewriter run` takes.
_WHOLE = (_HEADER, b"AOTInductorModel", b"torch.compile")
# Launches that say themselves what they read and write.
_OPERATORS = frozenset({"extern_out", "extern_alloc", "fallback", "custom_op", "collective"})


@dataclass(frozen=True)
class Piece:
    """A part of a file that may be code. `folder` is for the name of what it is."""

    folder: str
    text: bytes


def open_posted(path: Path) -> WrapperFile | None:
    """Open a text in which a wrapper or parts of one are posted; `None` if a file is none, but may
    be a wrapper itself."""
    data = read(path)
    if b"\0" in data or not data.strip():
        return None
    if any(name in data for name in _LOGGED) and (pieces := list(_logged(data))):
        return gather(path, _opened(path, dict.fromkeys(pieces)))
    first = data.lstrip(b"\r\n").partition(b"\n")[0]
    is_mixed = _PROSE.fullmatch(first) is not None
    # A fence or a quote inside of code is damage, as one line of a whole wrapper that is indented.
    is_quoted = _FENCE.match(first) is not None or first.lstrip().startswith(b">")
    is_fenced = path.suffix not in suffixes() and _FENCED.search(data) is not None
    is_damaged = _HEADER in data and _UNINDENTED.search(data) is not None
    is_indented = (first[:1].isspace() and not is_damaged) or _is_copied_from_its_middle(data)
    if is_mixed or is_quoted or is_fenced or is_indented:
        blocks = _blocks(data.splitlines(keepends=True), is_mixed=is_mixed)
        return gather(path, _opened(path, dict.fromkeys(blocks)))
    if any(name in data for name in _WHOLE) or recognise(path.suffix, data) is not None:
        return None
    suffix = path.suffix if path.suffix in suffixes() else ".py"
    wrapper = _fragment(path.name, data, path, None, suffix)
    return WrapperFile(path, (wrapper,)) if isinstance(wrapper, Wrapper) else None


def _is_copied_from_its_middle(data: bytes) -> bool:
    """Whether the first line alone has no indentation, and is no head of the others."""
    first, _, rest = data.lstrip(b"\r\n").partition(b"\n")
    opens = not first or first[:1].isspace() or first.rstrip().endswith(_OPENS)
    return bool(rest.strip()) and not opens and _UNINDENTED.search(rest) is None


def _opened(path: Path, pieces: Iterable[Piece]) -> Iterator[Opened]:
    """Yield the wrappers and fragments among the pieces of a file."""
    taken: Counter[str] = Counter()
    for piece in pieces:
        language, suffix = _language(piece.text)
        if language is None and _C_KERNEL.search(piece.text) and not _PART.search(piece.text):
            suffix = ".cpp"
        # Of a log, by compile id and graph, as in those of TORCH_TRACE.
        stem = piece.folder
        stem += f"/{graph_of(piece.text)}" * (not stem.startswith(_AT))
        name = numbered(stem, taken) + suffix
        if language is not None:
            whole = Wrapper(name, piece.text, language, path / name, inside=path)
            if language != "python" or _is_complete(whole):
                yield whole
                continue
        text = _without_halves(piece.text)
        if (found := _fragment(name, text, path / name, path, suffix)) is not None:
            yield found


def _without_halves(text: bytes) -> bytes:
    """A text without the kernels of which only the end, or the beginning, is there."""
    closed, opened = _CLOSED.search(text), _OPENED.search(text)
    if closed and not (opened and opened.start() < closed.start()):
        text = text[closed.end() :]
    *_, last = (None, *_OPENED.finditer(text))
    if last is not None and not _CLOSED.search(text, last.end()):
        text = text[: last.start()]
    return text


def _is_complete(wrapper: Wrapper) -> bool:
    """Whether a Python wrapper has its first lines and its last."""
    text = wrapper.source
    with suppress(RewriterError):
        ends = _MAIN.search(text[-1000:]) is not None
        return _HEADER in text and (ends or bool(wrapper.located.entries))
    return False


def _language(text: bytes) -> tuple[Language | None, str]:
    """The language of a whole wrapper, and the suffix of its file."""
    for suffix in (".py", ".cpp"):
        if (language := recognise(suffix, text)) is not None:
            return language, suffix
    return None, ".py"


def _fragment(
    name: str, text: bytes, path: Path, inside: Path | None, suffix: str
) -> Opened | None:
    """The fragment that a text is; an error, if it should be one and cannot be read."""
    is_cpp = suffix != ".py"
    if _TRACEBACK in text or not (_C_KERNEL if is_cpp else _PART).search(text):
        return None
    language: Language = "cpp" if is_cpp else "python"
    wrapper = Wrapper(name, text, language, path, inside=inside, is_fragment=True)
    from rewriter.artifact.kernel_sources import kernel_sources

    try:
        if wrapper.located.launches or kernel_sources(wrapper):
            return wrapper
    except RewriterError as error:
        return name, error
    return None


def missing(wrapper: Wrapper) -> tuple[str, ...]:
    """What the text of a fragment lacks of a wrapper: `no launch`, `no return`, and so on."""
    if not wrapper.is_fragment:
        return ()
    text, launches = wrapper.plain.data, wrapper.located.launches
    if not launches:
        return ("no launch",)
    lacking = []
    *_, call = (None, *_CALL.finditer(text))
    is_cut = call is not None and _HEADER in text
    if is_cut or not re.search(rb"^(?:import|from) ", text, re.MULTILINE):  # else it is a program
        is_headed = re.search(rb"^[ \t]*def ", text, re.MULTILINE) is not None
        lacking += [] if is_headed else ["no head of a function"]
        returns = _RETURN.search(text, call.end() if call is not None else 0) is not None
        lacking += [] if returns else ["no return"]
    if names := undefined(wrapper):
        lacking.append(f"no source of {', '.join(names)}")
    if cut := LEFT_OUT.search(text):
        line = wrapper.plain.line_of(cut.start())
        lacking.append(f"lines left out at line {line}")
    return tuple(lacking)


def described(wrapper: Wrapper) -> tuple[str, ...]:
    """What is to be said about a fragment; nothing if it lacks nothing."""
    lacking = missing(wrapper)
    return (f"{wrapper.name}: a part: {', '.join(lacking)}",) if lacking else ()


def undefined(wrapper: Wrapper) -> tuple[str, ...]:
    """The kernels that a fragment launches, and whose sources are not in the text."""
    if not wrapper.is_fragment:
        return ()
    from rewriter.artifact.kernel_sources import kernel_sources

    known = kernel_sources(wrapper)
    launched = (x.kernel for x in wrapper.located.launches if x.kind not in _OPERATORS)
    return tuple(dict.fromkeys(name for name in launched if name not in known))


def _logged(data: bytes) -> Iterator[Piece]:
    """Yield the codes in a log. Lines of several processes may be mixed."""
    found: list[tuple[bytes, bytes, str, list[bytes]]] = []
    current: dict[tuple[bytes, bytes], list[bytes]] = {}
    raw: list[bytes] = []  # a code whose lines have no prefixes, as in torch 2.0
    for line in data.splitlines():
        match = _PREFIX.match(line)
        if match is None:
            raw.append(line)
            continue
        raw = []
        if match["artifact"] not in (None, b"output_code") or b"output_code" not in match[0]:
            continue
        rank, text = _RANK.search(match["before"]), match["text"] or b""
        key = (rank[1] if rank else b"", match["process"] or b"")
        begins = text.startswith(_BEGIN)
        if begins or key not in current:
            current[key] = []
            found.append((*key, _folder(match["id"]), current[key]))
        if begins:
            raw = raw if match["artifact"] else current[key]
        elif _END.match(text):
            current[key] = []  # what may follow is no code
        else:
            current[key].append(text)
    for rank_of, process, folder, lines in found:
        of = f"process_{process.decode()}/" if len(current) > 1 else ""
        of = f"rank_{int(rank_of)}/" if rank_of else of
        if lines and not lines[-1]:
            lines.pop()  # behind the last line end
        if lines and lines[0][:1].isspace():  # the beginning is missing
            lines = list(_dedented(lines))
        if any(lines):
            yield Piece(of + folder, b"\n".join([*lines, b""]))


def _folder(compile_id: bytes | None) -> str:
    """The folder of a compile id such as `0/1_2`, with compiled autograd's before it."""
    ids, _, attempt = (compile_id or b"").decode().partition("_")
    *autograd, frame, compilation = ("", "", *ids.split("/"))[-3:] if "/" in ids else ("", "", "")
    return folder_of(autograd[0] if autograd else None, frame, compilation, attempt or "0")


def _blocks(lines: list[bytes], *, is_mixed: bool) -> Iterator[Piece]:
    """Yield what is fenced, or quoted and no sentence; or what is indented between sentences, if
    these are mixed; or the whole file."""
    plain = [_QUOTE.sub(b"", line, count=1) for line in lines]
    quoted = [line.lstrip().startswith(b">") for line in lines]
    marks = list(_fences(plain))
    if any(marks) or any(quoted):
        fenced = [number % 2 == 1 for number in accumulate(marks)]
        said = _sentences(plain)
        inside = [
            not mark and (is_fenced or (is_quoted and not is_said))
            for mark, is_fenced, is_quoted, is_said in zip(marks, fenced, quoted, said, strict=True)
        ]
    else:
        inside = [not is_mixed or line[:1].isspace() or not line.strip() for line in lines]
    start = 0
    while start < len(lines):
        end = next((n for n in range(start, len(lines)) if inside[n] != inside[start]), len(lines))
        if inside[start] and (block := b"".join(_dedented(plain[start:end]))).strip():
            yield Piece(f"{_AT}{start + 1}", block)
        start = end


def _fences(lines: Iterable[bytes]) -> Iterator[bool]:
    """Whether each line begins or ends what is fenced. Words may stand before its beginning."""
    is_open = False
    for line in lines:
        is_fence = _FENCE.match(line) or (not is_open and _FENCE_BEHIND_WORDS.fullmatch(line))
        is_open ^= bool(is_fence)
        yield bool(is_fence)


def _sentences(lines: Iterable[bytes]) -> Iterator[bool]:
    """Whether each line is a sentence, and not in the source of a kernel, which is in a string."""
    is_open = False
    for line in lines:
        yield not is_open and _PROSE.fullmatch(line) is not None
        is_open ^= line.count(b"'''") % 2 == 1


def _dedented(lines: list[bytes]) -> Iterator[bytes]:
    """Lines without the indentation of the code that they were taken from.

    Behind the end of a block whose head is not in the text, that is the indentation of the lines
    there; behind lines that were left out, they go on where those before stood.
    """
    indents = [_indent(line) for line in lines if line.strip()]
    base = indents[0] if indents else 0
    if _is_copied_from_its_middle(b"".join(lines)):
        first = next(line for line in lines if line.strip())
        base = indents[1]
        lines = [b" " * base + first, *lines[lines.index(first) + 1 :]]
    level = deeper = floor = 0
    is_behind = False
    for line in lines:
        indent = _indent(line)
        if LEFT_OUT.match(line):
            is_behind = True
            yield line if line.lstrip().startswith(b"#") else b"# " + line.lstrip()
            continue
        if line.strip():
            deeper = max(indent - level, 0) if is_behind else deeper if indent >= floor else 0
            floor = indent if is_behind else floor
            is_behind = False
            base = min(base, indent)
            level = indent - deeper + 4 * line.rstrip().endswith(b":")
        yield line[min(base + deeper, indent) :]


def _indent(line: bytes) -> int:
    return len(line) - len(line.lstrip(b" \t"))
