"""Puts probes into the wrappers of a program as it loads them; no file of its cache is changed.

`startup/sitecustomize.py` is in the program, and asks. `server.py` is in the process of the
command, and answers: it locates, plans and verifies as `instrument` does. `run.py` starts the
program, and keeps what was asked.
"""

from pathlib import Path

# At the front of `PYTHONPATH`, it has a program ask for probes, or listen for `rewriter attach`.
STARTUP = Path(__file__).parent / "startup"
