"""Benchmarks of the engine and its peers; each prints the command that repeats it.

Knows the engine and its peers from outside. They must not import it.
"""
