"""The compared methods: Transformers' own code and this engine, each in its own process."""
