"""The Functions tab: a Keras model eager, traced and compiled."""
