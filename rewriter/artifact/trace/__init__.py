"""Logs of TORCH_TRACE, and the pages that tlparse makes of them."""
