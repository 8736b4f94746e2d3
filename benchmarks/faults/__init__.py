"""Plants faults in what Inductor generated, and counts how many the command line names."""
