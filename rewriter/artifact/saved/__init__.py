"""Directories that torch or vLLM loads as a whole."""
