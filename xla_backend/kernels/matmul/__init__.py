"""Rows times weights: formats of blocks, packing, micro-kernels."""
