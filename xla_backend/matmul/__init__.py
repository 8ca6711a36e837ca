"""Matmul and attention: formats, layout, and our own machine code that XLA calls."""
