"""Runs a wrapper, or loads a package, in a separate process."""
