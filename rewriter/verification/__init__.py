"""Judges each launch of a recorded run by what it claims to compute, on the values it received.

From a dump with saved values to findings, without a reference run.
"""
