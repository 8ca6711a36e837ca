"""The Playground tab: a prompt, what it will meet, its text and its times."""
