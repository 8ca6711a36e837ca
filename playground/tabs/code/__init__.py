"""This request as code: Transformers, this library, OpenAI's client, gradio_client and curl."""
