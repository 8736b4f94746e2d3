"""Launches of wrappers in C++, which may stand in a string of a Python file."""
