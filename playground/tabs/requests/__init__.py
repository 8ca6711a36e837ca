"""Requests: what the server does for whom, and where the time went."""
