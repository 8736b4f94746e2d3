"""Memory faults that are planted in real kernels, and what `rewriter sanitize` says of each."""
