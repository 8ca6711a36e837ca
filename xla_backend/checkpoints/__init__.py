"""Model files (weights, tokenizers), prompts and recordings. Must not import TensorFlow."""
