"""From two dumps, or two artifacts, to what differs between them."""
