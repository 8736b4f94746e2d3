"""Checks that each launch of a recorded run computes what it claims, on the values it received.

Needs a dump with saved values, and no reference run.
"""
