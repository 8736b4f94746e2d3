"""Reads an Inductor cache, and restores wrappers in it that earlier versions put probes into.

`location.py` finds the cache, `slots.py` reads it; only `restore.py` writes.
The other modules of this room probe programs without any change to their cache.
"""
