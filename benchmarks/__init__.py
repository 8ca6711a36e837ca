"""Side-by-side measurements against what else there is; each prints the command that repeats it.

Knows the engine and its rivals from outside. Must not be imported by them.
"""
