"""This request as code: Transformers, this library, OpenAI's client and curl."""
