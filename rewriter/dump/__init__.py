"""Reads the directory that a probed program wrote: its rows, launches and flow of values."""
