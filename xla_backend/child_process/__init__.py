"""A Python process that works for this one: its start, messages and end, on both sides."""
