"""Launches of wrappers in Python."""
