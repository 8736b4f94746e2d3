"""Names from the model: which of its lines a kernel computes, and what it calls the inputs.

They are in Inductor's graphs, if torch wrote these to a debug directory beside the wrapper, to a
log of `TORCH_TRACE`, or to an entry of its cache (`entries/`). Graphs are read as text; anything
that does not match is left unnamed.
"""
