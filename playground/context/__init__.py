"""What the tabs share: the engine, the queue, the current runs."""
