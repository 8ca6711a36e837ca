"""OpenAI's protocol over HTTP, for any server with an engine."""
