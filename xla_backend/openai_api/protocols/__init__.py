"""Protocols over chats: Anthropic's, OpenAI's responses and recordings, llama.cpp's."""
