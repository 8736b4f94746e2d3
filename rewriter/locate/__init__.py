"""Finds the launches, entries and inputs in the source of a wrapper. Executes nothing."""
