"""Launches once more on what they were given: the same kernel, and the same without vectors."""
