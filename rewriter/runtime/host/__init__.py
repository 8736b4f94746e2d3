"""Runs a wrapper, or loads a package, in a process of its own."""
