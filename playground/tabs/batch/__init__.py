"""The Batch tab: many prompts one after the other, or from many visitors at once."""
