"""Benchmarks of probes and commands: ratios to a reference that is measured in the same run.

    python -m benchmarks.probes           models with probes, against plain and upstream's printer
    python -m benchmarks.rewriting        wrappers read and rewritten, against libcst

Each module prints a table and writes JSON with `--json FILE`; README.md has the results.
"""
