"""A chat of ten turns at `/v1`: the time to the first token by turn.

Ways: a plain OpenAI client; one with a `cache_salt`; and llama.cpp, where it is installed. Each
meets a server that has just started, with an empty store, and has so many chats, one after the
other. Turns 1, 2 and 10 are short, those between are long. A cell has the milliseconds to the first
token, where the function came from, and how many of the prompt's tokens were cached. Greedy texts
of so small a model may not end, so clients name a number; it is part of no shape.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from openai import APIError

from benchmarks.client import Client
from benchmarks.harness import Row, note
from benchmarks.servers import LLAMA_CPP_MISSING, llama_cpp, this_app
from xla_backend.checkpoints.models import PACKAGED_MODEL

OPTIONS = {"chats": 2, "turns": 10, "max_tokens": 256}
CONTEXT = 8192
"""This engine's, too."""
SHORT = "And what else should I know of it?"
LONG = "Here is more of the story, please remember it. " + "The old man walked to the sea. " * 18
PLAIN, SALTED, PEER = "plain", "with cache_salt", "llama.cpp"


def measure(options: Namespace) -> Iterator[Row | str]:
    """A row for each chat and turn."""
    ways: dict[str, list[list[str]]] = {}
    for way in (PLAIN, SALTED, PEER):
        with server(way) as url:
            if url is not None:
                ways[way] = [_chat(way, url, options, number) for number in range(options.chats)]
    for number in range(options.chats):
        for turn in range(options.turns):
            row: Row = {"chat": number + 1, "turn": turn + 1}
            yield row | {f"{way}, TTFT ms": chats[number][turn] for way, chats in ways.items()}
    if PEER not in ways:
        yield LLAMA_CPP_MISSING


def server(way: str) -> AbstractContextManager[str | None]:
    """The server that a way asks; None where it is not installed."""
    return llama_cpp(1, CONTEXT) if way == PEER else this_app("--models", PACKAGED_MODEL)


def _chat(way: str, url: str, options: Namespace, number: int) -> list[str]:
    """The cells of a chat's turns."""
    client = Client(url, PACKAGED_MODEL)
    messages: list[dict[str, str]] = []
    cells: list[str] = []
    more: dict[str, Any] = {"temperature": 0.0, "max_tokens": options.max_tokens}
    if way == SALTED:
        more["extra_body"] = {"cache_salt": f"chat {number}"}
    for turn in range(options.turns):
        is_long = 2 <= turn < options.turns - 1
        messages.append({"role": "user", "content": LONG if is_long else SHORT})
        try:
            answer = client.chat(messages, **more)
        except APIError as error:
            note(f"  {way}, turn {turn + 1}: {error}")
            return cells + ["refused"] * (options.turns - turn)
        messages.append({"role": "assistant", "content": answer.text})
        read = f"{answer.cached_tokens} of {answer.prompt_tokens}"
        cells.append(", ".join(filter(None, (f"{1000 * answer.ttft_s:.0f}", answer.cache, read))))
    note(f"  {way}: chat {number + 1} had {options.turns} turns")
    return cells
