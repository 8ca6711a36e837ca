"""Attention, earlier lines and states of rows over KV memory."""
