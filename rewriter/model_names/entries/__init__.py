"""What torch's caches say about wrappers: the graph, the lines of the model, guards, and which
forward and backward belong together.

`<cache>/fxgraph` and `<cache>/aotautograd` contain pickles. Only their plain values are read; they
are never loaded.
"""
