"""What tells a C++ wrapper from other files."""

from __future__ import annotations

import re

SUFFIXES = (".cpp", ".cc", ".cxx")
# The entry of a wrapper of AOTInductor.
ENTRY = re.compile(rb"\bAOTInductorModel\w*::run_impl\b")
# Names the string of a Python file that holds C++, perhaps: it may stand in another string. That
# it begins a line is checked behind it: `re` finds a pattern that begins with a word much faster.
EMBEDDED = re.compile(
    rb"cpp_wrapper_src(?:(?<=^cpp_wrapper_src)|(?<=\rcpp_wrapper_src))\s*=(?!=)", re.MULTILINE
)
# The entry of what a Python file gave to the compiler.
JIT_ENTRY = re.compile(rb"\binductor_entry_impl\s*\(")
