"""Puts probes into wrappers that are loaded in this process, for one block: `rewriter.probing`.

No file is changed. A wrapper's functions stay the same objects, since other code has references to
them; for a while they run other code.
"""
