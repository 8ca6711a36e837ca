"""What a request will meet and how long it should take, also where the engine is elsewhere."""
