"""From the directory that a probed program wrote to its rows, launches and flow of values."""
