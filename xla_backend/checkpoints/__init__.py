"""Model files (weights, tokenizers), prompts and recordings."""
