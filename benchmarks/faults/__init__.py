"""Plants faults in code that Inductor generated, and counts how many `rewriter diagnose` names."""
