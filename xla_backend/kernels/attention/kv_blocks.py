"""How KV memory is divided."""

BLOCK = 64
"""Positions in a block, a multiple of a tile's columns. Prefixes are cached in whole blocks, and
their names depend on it."""
