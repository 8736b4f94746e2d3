"""`python -m rewriter`."""

from rewriter.cli import script

script()
