"""What the modes share: the engine, the queue, the current runs."""
