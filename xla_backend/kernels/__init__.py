"""Machine code of our own that XLA calls: products, attention, states, grammars' tables."""
