"""XLA functions: traced, compiled, kept in memory and on disk. Knows no models."""
