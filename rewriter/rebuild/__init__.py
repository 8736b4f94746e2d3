"""From a package and new sources of its wrappers to a package that was built and loaded."""
