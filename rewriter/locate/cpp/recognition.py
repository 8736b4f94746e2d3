"""Patterns that tell a C++ wrapper from other files."""

from __future__ import annotations

import re

SUFFIXES = (".cpp", ".cc", ".cxx")
# The entry of a wrapper of AOTInductor.
ENTRY = re.compile(rb"\bAOTInductorModel\w*::run_impl\b")
# Names the string of a Python file that holds C++, unless this text is itself in a string. A
# lookbehind checks that it begins a line: `re` finds patterns that begin with a word much faster.
EMBEDDED = re.compile(
    rb"cpp_wrapper_src(?:(?<=^cpp_wrapper_src)|(?<=\rcpp_wrapper_src))\s*=(?!=)", re.MULTILINE
)
# The entry in C++ that a Python file gives to the compiler.
JIT_ENTRY = re.compile(rb"\binductor_entry_impl\s*\(")
