"""From a program, wrapper or package to its run: how it ended, and the dump that it left."""
