"""The API mode: what programs send to this page."""
