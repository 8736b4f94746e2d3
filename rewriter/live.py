"""`import rewriter.live`: from now on `rewriter attach PID` can put probes into this program.

A thread waits at a socket that only the user of this process can open; nothing else is done until
somebody asks. `rewriter live -- COMMAND` does the same for a program that does not import this.
"""

from __future__ import annotations

from rewriter.loaded.listener import start

start()
