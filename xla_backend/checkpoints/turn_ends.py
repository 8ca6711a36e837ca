"""Which tokens end a text besides those that a model's config names.

Knows the control tokens by which chat templates end a turn, and where a folder's tokenizer names
its end. Must not know weights, GGUF files, or what is generated. llama.cpp and vLLM end a text at
both; without them an answer goes on with the user's next question.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

NAMES = frozenset(
    "<|im_end|> <|eot_id|> <|eom_id|> <|end|> <|return|> <end_of_turn> <turn|> <|end_of_turn|> "
    "<|END_OF_TURN_TOKEN|> <|endofturn|> <end_of_utterance> <EOT> [EOT] <|endoftext|> "
    "<|end_of_text|>".split()
)
"""Control tokens that mean nothing else, in any vocabulary."""


def merged(named: int | Iterable[int] | None, others: Iterable[int]) -> int | list[int] | None:
    """`eos_token_id` with further tokens; an int where there is one."""
    first = [] if named is None else [named] if isinstance(named, int) else list(named)
    ends = list(dict.fromkeys([*first, *others]))
    return ends if len(ends) > 1 else next(iter(ends), None)


def of_folder(folder: Path, is_chat: bool) -> list[int]:
    """The ends that only the tokenizer's files name; none where they cannot be read.

    Args:
        is_chat: whether there is a chat template, whose ends of a turn count too.
    """
    settings = _read(folder / "tokenizer_config.json") or {}
    tokens = _read(folder / "tokenizer.json", "added_tokens")
    end = settings.get("eos_token")
    end = end.get("content") if isinstance(end, dict) else end
    wanted = (NAMES if is_chat else frozenset()) | {end}
    return [
        token["id"]
        for token in (tokens if isinstance(tokens, list) else ())
        if isinstance(token, Mapping)
        and token.get("content") in wanted
        and (token.get("special") or token.get("content") == end)
        and type(token.get("id")) is int
    ]


def _read(path: Path, key: str = "") -> Any:
    """A JSON file, or only the value of a key: a vocabulary of 30 MB takes long to read."""
    try:
        text = path.read_text(encoding="utf-8")
        if not key:
            return json.loads(text)
        start = text.index(":", text.index(f'"{key}"')) + 1
        return json.JSONDecoder().raw_decode(text[start : start + 2**22].lstrip())[0]
    except (OSError, ValueError, RecursionError):
        return None
