"""The model architectures that can be loaded, one description each.

What of a model is not supported raises `ModelUnavailable`, whose text names the setting.
"""
