"""Reads an Inductor cache, and restores wrappers in it that earlier versions put probes into.

`location.py` finds the cache, `slots.py` and `select.py` read it; only `restore.py` writes.
Programs are probed without any change to their cache: see `rewriter/hook/`.
"""
