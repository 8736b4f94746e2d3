"""The commands. Each is a module of its name here, which is imported when it is needed.

Their names, and what `rewriter --help` says of them, stand here, so that the help of one command,
or of all, imports no other.
"""

from __future__ import annotations

from collections.abc import Mapping

SUMMARIES: Mapping[str, str] = {
    "diagnose": "find out what is wrong: a crash, a NaN, wrong numbers",
    "list": "list the kernel launches of an artifact",
    "instrument": "put probes around kernel launches",
    "strip": "take the probes out again",
    "run": "run a program, a wrapper or a package, with or without probes",
    "control": "switch dormant probes of running programs on and off",
    "cache": "show the wrappers of Inductor's cache, and restore those that have probes",
    "triage": "find the launch that crashes or hangs, its arguments, and the next step",
    "verify": "check that each launch computes what its graph says",
    "bisect": "find the launches that make a program fail, by replacing halves of them",
    "replace": "have torch's operators compute a launch, until its kernel is mended",
    "sanitize": "find memory faults: out of bounds, unwritten, released, races",
    "report": "show a dump as one self-contained HTML file",
    "compare": "compare two dumps and name the first launch that went wrong",
    "repro": "cut a recorded launch out as a script that runs it alone",
    "diff": "compare two artifacts, launch by launch",
    "doctor": "check what this machine can do, and whether it can run an artifact",
    "demo": "show the tool at work on a small model",
    "completion": "print a script for your shell that completes commands, options and files",
}
