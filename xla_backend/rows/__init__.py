"""The rows of a model's pool: their order, their blocks of KV memory, the prefixes they share."""
