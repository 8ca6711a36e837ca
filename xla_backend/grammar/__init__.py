"""Grammars: what an answer may look like, as tables over a model's tokens.

What cannot be read or followed raises `InvalidRequest`, whose text says what to write instead.
"""
