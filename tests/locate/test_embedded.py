"""C++ in a string of a Python file: where it stands, what its compiler sees, writing into it."""

from __future__ import annotations

import ast
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewriter.core.errors import BAD_INPUT, RewriterError
from rewriter.core.source import Source
from rewriter.locate.cpp import embedded


def of(text: str | bytes) -> embedded.Embedded:
    data = text if isinstance(text, bytes) else text.encode()
    return embedded.extract(Source("output_code.py", data))


def value(text: str) -> str:
    """What Python makes of the string."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "cpp_wrapper_src":
            result = ast.literal_eval(node.value)
            assert isinstance(result, str)
            return result
    raise AssertionError("no cpp_wrapper_src")


# --- None ---------------------------------------------------------------------------------------

PLAIN = {
    "C++": "int x;\n",
    "nothing": "",
    "a name within a line": "x = 1; cpp_wrapper_src = '''a'''\n",
    "another name": "my_cpp_wrapper_src = '''a'''\n",
    "a longer name": "cpp_wrapper_src_2 = '''a'''\n",
    "a comparison": "cpp_wrapper_src == '''a'''\n",
    "its use": "load(cpp_wrapper_src, '''a''')\n",
}


@pytest.mark.parametrize("text", PLAIN.values(), ids=PLAIN)
def test_a_file_without_the_string_is_the_text(text: str) -> None:
    found = of(text)
    assert (found.data, found.start, found.raw) == (text.encode(), 0, True)
    assert [found.position(offset) for offset in range(len(text) + 1)] == [*range(len(text) + 1)]
    assert found.encode("\\n \"\"\" ''' \\") == "\\n \"\"\" ''' \\"


REFUSED = {
    "no string": "x = 1\ncpp_wrapper_src = f('''a''')\n",
    "one quote": "x = 1\ncpp_wrapper_src = 'a'\n",
    "bytes": "x = 1\ncpp_wrapper_src = rb'''a'''\n",
    "a string in which values are put": "x = 1\ncpp_wrapper_src = f'''a{x}'''\n",
    "two strings in a row": "x = 1\ncpp_wrapper_src = (r'''a'''\nr'''b''')\n",
    "a sum of strings": "x = 1\ncpp_wrapper_src = r'''a''' + r'''b'''\n",
    "within another string": "x = '''\ncpp_wrapper_src = (\nr\\''' a\n'''\n",
    "bound twice": "cpp_wrapper_src = r'''a'''\ncpp_wrapper_src = r'''b'''\n",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_anything_but_one_string_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(RewriterError) as caught:
        of(text)
    assert caught.value.slug == "not-a-wrapper"
    assert caught.value.message.startswith("output_code.py:2: cpp_wrapper_src ")


# --- Some ---------------------------------------------------------------------------------------

STRINGS = {
    "raw, single quotes": "cpp_wrapper_src = (\nr'''\nint x;\n'''\n)\n",
    "raw, double quotes": 'cpp_wrapper_src = (\nr"""\nint x;\n"""\n)\n',
    "not raw": "cpp_wrapper_src = (\n'''\nint x;\n'''\n)\n",
    "without parentheses": "cpp_wrapper_src = r'''\nint x;\n'''\n",
    "without blanks": "cpp_wrapper_src=r'''int x;'''\n",
    "upper case": "cpp_wrapper_src = R'''int x;'''\n",
    "empty": "cpp_wrapper_src = r''''''\n",
    "after other things": "import torch\nx = '''y'''\ncpp_wrapper_src = (\nr'''int x;'''\n)\n",
    "the other quotes in it": "cpp_wrapper_src = r'''char* s = \"\"\"a\"\"\"; // \"'''\n",
    "quotes in it": "cpp_wrapper_src = r'''char c = 'a'; char* e = '' ''; '''\n",
    "raw, a backslash": "cpp_wrapper_src = r'''printf(\"a\\n\\0\\\\\");\n#define A \\\n  1\n'''\n",
    "raw, an escaped quote": "cpp_wrapper_src = r'''a \\''' b'''\n",
    "raw, two backslashes at the end": "cpp_wrapper_src = r'''a \\\\'''\n",
    "not raw, a newline": "cpp_wrapper_src = '''printf(\"a\\nb\");\nint y;\n'''\n",
    "not raw, a tab and a quote": "cpp_wrapper_src = '''a\\tb\\'c\\\"d\\\\e'''\n",
    "not raw, joined lines": "cpp_wrapper_src = '''#define A \\\n    1\nint y;\n'''\n",
    "not raw, numbers": "cpp_wrapper_src = '''\\x41\\101\\u00e4\\U0001F600 z\\0'''\n",
    "not raw, by name": "cpp_wrapper_src = '''\\N{BULLET} z'''\n",
    "not raw, no escape": "cpp_wrapper_src = '''a\\d\\+b'''\n",
    "not raw, an escaped quote": "cpp_wrapper_src = '''a \\''' b'''\n",
    "not raw, backslashes at the end": "cpp_wrapper_src = '''a \\\\'''\n",
    "letters of more than one byte": "# \u00e9\ncpp_wrapper_src = '''\u00e4 \\n \U0001f600 b'''\n",
    "a kernel's source": 'cpp_wrapper_src = (r"""\nR"TRITON(\nf(\'\'\'a\'\'\')\n)TRITON";\n""")\n',
}  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::SyntaxWarning")


def check(text: str) -> None:
    found = of(text)
    data = text.encode()
    assert found.data.decode() == value(text)
    assert found.start > 0
    positions = [found.position(offset) for offset in range(len(found.data) + 1)]
    assert positions == sorted(positions)
    assert positions[0] == found.start
    # The last one is where the string ends.
    assert data[positions[-1] :].startswith(found.quote.encode())
    # A letter that is written as it is stands where it is said to.
    for offset, position in enumerate(positions[:-1]):
        byte = found.data[offset : offset + 1]
        if found.raw or (byte.isalnum() and data[position - 1 : position] not in (b"\\", b"")):
            written = data[position : position + 1]
            assert (
                written == byte or not written.isalnum() or b"\\" in data[position - 9 : position]
            )


@pytest.mark.parametrize("text", STRINGS.values(), ids=STRINGS)
def test_a_string(text: str) -> None:
    check(text)


@pytest.mark.parametrize("text", STRINGS.values(), ids=STRINGS)
def test_a_line_that_is_put_in_is_what_the_compiler_sees(text: str) -> None:
    line = 'printf("%d\\n\\"\\\\", \'\\0\');  // \u00e9'
    found = of(text)
    for offset in {0, len(found.data)} | {
        end + 1 for end in range(len(found.data)) if found.data[end : end + 1] == b"\n"
    }:
        at = found.position(offset)
        data = text.encode()
        written = (data[:at] + found.encode(f"\n{line}\n").encode() + data[at:]).decode()
        if found.raw and data[:at].endswith(b"\\"):
            continue  # it would be part of an escape
        expected = found.data[:offset] + f"\n{line}\n".encode() + found.data[offset:]
        assert value(written).encode() == expected


def test_line_ends_stay_what_they_are() -> None:
    for end in ("\r\n", "\r"):
        text = STRINGS["not raw, joined lines"].replace("\n", end)
        found = of(text)
        # Python reads every line end as a line feed; the file keeps its own.
        assert found.data.decode().replace(end, "\n") == value(text)
        last = found.data.index(b"int y")
        assert text.encode()[found.position(last) :].startswith(b"int y")


def test_text_that_would_end_the_string_is_refused() -> None:
    for quote in ("'''", '"""'):
        found = of(f"cpp_wrapper_src = r{quote}int x;{quote}\n")
        assert found.quote == quote
        with pytest.raises(ValueError, match="would end the string"):
            found.encode(f"x = {quote}y{quote}")
        other = "'''" if quote == '"""' else '"""'
        assert found.encode(f"x = {other}") == f"x = {other}"


UNTERMINATED = {
    "the end is gone": "import torch\ncpp_wrapper_src = (\nr'''\nint x;\n",
    "nothing follows": "import torch\ncpp_wrapper_src = r'''",
    "other quotes follow": "import torch\ncpp_wrapper_src = r'''a\"\"\"\n)\n",
    "only escaped quotes follow": "import torch\ncpp_wrapper_src = '''a \\'''\n",
    "two quotes follow": "import torch\ncpp_wrapper_src = r'''a''\n",
}


@pytest.mark.parametrize("text", UNTERMINATED.values(), ids=UNTERMINATED)
def test_a_string_that_does_not_end(text: str) -> None:
    with pytest.raises(RewriterError) as caught:
        of(text)
    assert caught.value.slug == "syntax-error"
    assert caught.value.code == BAD_INPUT
    assert re.match(
        r"output_code.py:[23]: a string in triple quotes does not end", caught.value.message
    )


PIECES = st.sampled_from(
    ["a", "b1", " ", "\n", "\\n", "\\t", "\\\\", "\\\n", "\\x41", "\\101", "\\'", '"', "'",
     "\u00e4", "\\u00e9", "{", ";", "// x"]
)  # fmt: skip


@settings(derandomize=True, deadline=None, max_examples=300)
@given(
    pieces=st.lists(PIECES, max_size=12),
    quote=st.sampled_from(["'''", '"""']),
    prefix=st.sampled_from(["", "r"]),
)
def test_any_string(pieces: list[str], quote: str, prefix: str) -> None:
    text = f"import torch\ncpp_wrapper_src = (\n{prefix}{quote}\n{''.join(pieces)} .{quote}\n)\n"
    try:
        value(text)
    except (SyntaxError, ValueError):
        return
    check(text)
