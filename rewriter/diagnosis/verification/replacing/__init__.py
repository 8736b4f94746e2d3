"""From a launch and the graph of its wrapper to torch's operators that compute the same."""
