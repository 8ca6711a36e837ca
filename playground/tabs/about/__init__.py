"""The About tab: what the numbers mean."""
