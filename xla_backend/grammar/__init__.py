"""Grammars: what an answer may look like, as tables over a model's tokens."""
