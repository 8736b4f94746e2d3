"""Finds what differs between two dumps, or between two artifacts."""
