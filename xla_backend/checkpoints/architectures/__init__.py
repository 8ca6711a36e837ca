"""The model architectures that can be loaded, one description each."""
