"""What a visitor sets for all texts: one panel, which Try, Batch and links share."""
