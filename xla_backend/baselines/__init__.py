"""The ways that are compared: Transformers' own code beside this engine, each in a process."""
