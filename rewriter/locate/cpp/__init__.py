"""Finds launches in C++ wrappers, including those inside a string of a Python file."""
