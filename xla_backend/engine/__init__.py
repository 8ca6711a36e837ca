"""The engine: one loop that owns the loaded models, their rows, and the order of requests."""
