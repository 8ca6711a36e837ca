"""Decoders with rotary positions, a module per family."""
