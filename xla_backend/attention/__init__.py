"""Attention, short convolutions and rows' states over KV memory, as machine code that XLA calls."""
