"""Writes one recorded launch as a directory with a script that runs it alone.

The wrapper is read, never executed; the script needs torch, but not this package.
"""
