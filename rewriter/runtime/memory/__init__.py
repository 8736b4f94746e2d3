"""Patterns that the memory probes bounds, poison and stale fill memory with."""
