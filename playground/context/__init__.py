"""What the tabs share: the engine, the waiting line, the current runs."""
