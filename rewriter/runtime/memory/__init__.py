"""The memory probes bounds, poison and stale.

`watch.py` acts on the buffers that a wrapper's memory lines pass, `regions.py` runs most of these
lines in native code, `guarded.py` makes buffers with guard bands, `bands.py` compares the bands,
`patterns.py` has the patterns to fill memory with, and `rows.py` writes what was found.
"""
