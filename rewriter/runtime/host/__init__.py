"""Runs a wrapper or a library, or loads a package, in a separate process."""
