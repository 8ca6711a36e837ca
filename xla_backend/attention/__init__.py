"""Attention and short convolutions over blocks of KV memory, as machine code that XLA calls."""
