"""Compares two dumps launch by launch: which values differ, and which launch went wrong first."""
