"""Probes in wrappers that are loaded in this process, while it runs: `rewriter.probing`, and the
listener with which `rewriter attach` asks for them from outside.

No file is changed. A wrapper's functions are the same objects all the time, as others hold
references to them; for a while they run other code.
"""

from pathlib import Path

# In front of `PYTHONPATH`, it has `rewriter attach` find a program: see the file in it.
STARTUP = Path(__file__).parent / "startup"
