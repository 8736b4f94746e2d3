"""Puts probes into wrappers that are loaded in this process, while it runs: `rewriter.probing`, and
the listener for requests of `rewriter attach` from outside.

No file is changed. A wrapper's functions stay the same objects, since other code has references to
them; for a while they run other code.
"""
