"""Inside compiled functions: what XLA made, what it costs, where a token's time goes."""
