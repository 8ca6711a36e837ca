"""Runs as a page of their own, which replays them without a server."""
