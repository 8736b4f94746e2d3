"""The memory probes bounds, poison and stale.

`watch.py` acts on the buffers that a wrapper's memory lines hand over, `regions.py` has most of
these lines run in native code, `guarded.py` makes buffers with guard bands, `bands.py` compares the
bands, `patterns.py` has the patterns to fill memory with, and `rows.py` writes what was found.
"""
