"""What the probes bounds, poison and stale do to the memory of a wrapper, and what they find.

`watch.py` takes what the lines of a wrapper hand over, `guarded.py` makes buffers with guard bands,
`bands.py` compares those, `patterns.py` has what memory is filled with, `rows.py` what is written.
"""
