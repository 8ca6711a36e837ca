"""The Batch tab: many prompts, one after the other."""
