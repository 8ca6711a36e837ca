"""The Shapes tab: compile functions ahead of requests, show them, clear them."""
