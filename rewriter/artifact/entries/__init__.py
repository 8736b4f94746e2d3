"""What torch's caches say of wrappers: the graph, the lines of the model, guards, and which forward
and backward belong together.

`<cache>/fxgraph` and `<cache>/aotautograd` hold pickles. They are read for the plain values in
them, never loaded.
"""
