"""OpenAI's protocol over HTTP, for whichever server has an engine."""
