"""Names of the model: which of its lines a kernel computes, and what it calls the inputs.

Inductor's graphs say it, where torch left them: beside a wrapper in a debug directory, or in a log
of `TORCH_TRACE`. They are read as text; what does not fit is left unnamed, never guessed.
"""
