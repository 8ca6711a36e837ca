"""Model files (weights, tokenizers), prompts and recordings.

What of a model is missing, damaged or not supported raises `ModelUnavailable`, and what a request
must not ask for `InvalidRequest`; their texts say what to do.
"""
