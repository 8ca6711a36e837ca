"""Products of rows and weights: formats, layout, and our own machine code that XLA calls."""
