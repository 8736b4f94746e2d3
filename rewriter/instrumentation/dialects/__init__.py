"""How probes are written: a module for each language of wrappers."""
