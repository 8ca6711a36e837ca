"""The same operations by XLA alone, where machine code of our own cannot run."""
