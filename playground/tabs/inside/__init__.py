"""The Inside tab: what XLA made of a function, and where a token's time goes."""
