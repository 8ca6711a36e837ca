"""The rows of a model's pool: their order, their KV memory, the prefixes they share."""
