"""From a wrapper and a choice of probes to insertions, the new source, and back."""
