"""Finds launches in Python wrappers."""
