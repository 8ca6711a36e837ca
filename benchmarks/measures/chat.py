"""A chat of ten turns at `/v1`, long prompts, and a restart: the time to the first token.

Ways: a plain OpenAI client, one with a `cache_salt`, and llama.cpp if it is installed. Each uses a
server that has just started with an empty store, for several chats in turn. Turns 1, 2 and 10 are
short, the others are long. A cell has TTFT in milliseconds, the outcome, and the number of cached
prompt tokens. Greedy texts of such a small model may not end, so clients set `max_tokens`. The
plain client then sends the last turn again to a restarted server, whose prefixes come from disk,
and once more with a new salt, so that all of it is read.
"""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from openai import APIError

from benchmarks.checkpoints import packaged_file
from benchmarks.client import Answer, Client
from benchmarks.harness import Row, note
from benchmarks.servers import LLAMA_CPP_MISSING, llama_cpp, settle, this_app
from xla_backend.checkpoints.models import PACKAGED_MODEL

OPTIONS = {"chats": 2, "turns": 10, "max_tokens": 256, "prompt_tokens": [1700, 6900]}
CONTEXT = 8192
"""This engine's, too."""
SHORT = "And what else should I know of it?"
SENTENCE = "The old man walked to the sea. "
SENTENCE_TOKENS = 8
LONG = "Here is more of the story, please remember it. " + SENTENCE * 18
PLAIN, SALTED, PEER = "plain", "with cache_salt", "llama.cpp"
Messages = list[dict[str, str]]


def measure(options: Namespace) -> Iterator[Row | str]:
    """A row for each chat and turn, each long prompt, and the turn after a restart."""
    ways: dict[str, dict[str, str]] = {}
    for way in (PLAIN, SALTED, PEER):
        with tempfile.TemporaryDirectory() as store:
            with server(way, store) as url:
                if url is None:
                    continue
                cells = ways[way] = {}
                client = Client(url, PACKAGED_MODEL)
                for number in range(options.chats):
                    messages = _chat(way, client, options, number, cells)
                for tokens in options.prompt_tokens:
                    text = f"A story of {tokens} words. " + SENTENCE * (tokens // SENTENCE_TOKENS)
                    cells[f"prompt of {tokens:,}"] = _cell(_ask(client, user(text), 1))
            if way == PLAIN:
                with server(way, store) as url:
                    assert url is not None, "only llama.cpp may be missing"
                    settle(url)
                    client = Client(url, PACKAGED_MODEL)
                    _ask(client, user(SHORT), 1)
                    cells["last turn after a restart"] = _cell(_ask(client, messages, 1))
                    cells["last turn, all read"] = _cell(
                        _ask(client, messages, 1, extra_body={"cache_salt": "another"})
                    )
    for what in ways[PLAIN]:
        yield {"what": what} | {
            f"{way}, TTFT ms": cells.get(what, "") for way, cells in ways.items()
        }
    if PEER not in ways:
        yield LLAMA_CPP_MISSING


def server(way: str, store: str) -> AbstractContextManager[str | None]:
    """The server of a way; None if it is not installed."""
    if way == PEER:
        return llama_cpp(packaged_file(), 1, CONTEXT)
    return this_app("--models", PACKAGED_MODEL, store=store)


def user(text: str) -> Messages:
    """The first message of a chat."""
    return [{"role": "user", "content": text}]


def _ask(client: Client, messages: Messages, max_tokens: int, **more: Any) -> Answer:
    return client.chat(messages, temperature=0.0, max_tokens=max_tokens, **more)


def _cell(answer: Answer) -> str:
    read = f"{answer.cached_tokens} of {answer.prompt_tokens}"
    return ", ".join(filter(None, (f"{1000 * answer.ttft_s:.0f}", answer.cache, read)))


def _chat(
    way: str, client: Client, options: Namespace, number: int, cells: dict[str, str]
) -> Messages:
    """Fills the cells of a chat's turns; the messages of the last turn."""
    messages: Messages = []
    more: dict[str, Any] = {}
    if way == SALTED:
        more["extra_body"] = {"cache_salt": f"chat {number}"}
    for turn in range(options.turns):
        is_long = 2 <= turn < options.turns - 1
        messages += user(LONG if is_long else SHORT)
        what = f"chat {number + 1}, turn {turn + 1}"
        try:
            answer = _ask(client, messages, options.max_tokens, **more)
        except APIError as error:
            note(f"  {way}, turn {turn + 1}: {error}")
            cells[what] = "refused"
            break
        cells[what] = _cell(answer)
        messages.append({"role": "assistant", "content": answer.text})
    note(f"  {way}: chat {number + 1} is over")
    return messages[: 2 * options.turns - 1]
