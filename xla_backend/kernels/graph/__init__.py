"""Kernels as operations of TensorFlow graphs that XLA compiles."""
