"""Builds a package from a package and new sources of its wrappers, and checks that it loads."""
