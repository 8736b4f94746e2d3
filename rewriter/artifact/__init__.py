"""From a path to an artifact: what the file is, and its wrappers. Nothing is executed."""
