"""Opens a path as an artifact: what the file is, and its wrappers. Executes nothing."""
