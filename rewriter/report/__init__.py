"""From a dump or a comparison to one self-contained page, or the same as JSON."""
