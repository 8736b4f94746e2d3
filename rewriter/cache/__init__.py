"""Puts probes into the wrappers of an Inductor cache, in place, and removes them again.

`location.py` finds the cache; `slots.py` and `select.py` read it; only `mutate.py` writes its
wrappers, under the lock of `lock.py`, and `clear.py` removes what was built from them. `run.py`
runs a program with probes in its wrappers; if it is killed, the next command finds its journal
(`journal.py`).
"""
