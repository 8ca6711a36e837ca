"""The Start place: what the page shows, at once, and what its numbers mean."""
