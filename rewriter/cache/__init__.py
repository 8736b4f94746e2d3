"""From a directory of Inductor's cache to wrappers probed in their places, and back again.

`location.py` finds the cache; `slots.py` and `select.py` read it; `mutate.py` is all that writes
its wrappers, under the lock of `lock.py`, and `clear.py` removes what those led to. `run.py` runs a
program with probes in its wrappers: `journal.py` is what the next command finds if that is killed,
`program.py` the process.
"""
