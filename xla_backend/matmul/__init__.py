"""Products of rows and weights: formats, layout, and machine code of our own in XLA's functions."""
