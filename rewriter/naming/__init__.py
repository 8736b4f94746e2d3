"""Names of people: which lines of a model a kernel computes, and what its inputs are called there.

Inductor's graphs say it, where torch left them: beside a wrapper in a debug directory, or in a log
of `TORCH_TRACE`. They are read as text; what does not fit is left unnamed, never guessed.
"""
