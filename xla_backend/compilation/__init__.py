"""XLA functions: traced, compiled, cached in memory and on disk."""
