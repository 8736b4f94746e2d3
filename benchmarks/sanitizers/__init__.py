"""Plants memory faults in real kernels, and counts how many `rewriter sanitize` names."""
