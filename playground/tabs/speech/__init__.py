"""The Speech tab: a recording, and its text window by window."""
