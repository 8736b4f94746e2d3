"""From the dump of a run to a verdict: where it stopped, or where its first NaN is from."""
