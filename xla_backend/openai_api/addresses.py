"""What to say of an address at which there is nothing: what is not offered, or what was meant.

Knows addresses of other programs. Must not know HTTP.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from fastapi import FastAPI

from xla_backend.openai_api.outside import PATH

NOT_OFFERED = {
    **dict.fromkeys(
        ("embeddings", "embedding", "embed", "rerank", "reranking", "score"),
        "Embeddings and reranking are not offered: the models here write text.",
    ),
    "speech": "Speech output is not offered: models write text, or transcribe speech.",
    "translations": "Recordings are not translated: /v1/audio/transcriptions transcribes them.",
    "moderations": "Moderation is not offered: the models here write text.",
    "conversations": "Conversations are not stored: name the last answer as previous_response_id.",
    "input_items": "Input items are not stored: keep them, or name previous_response_id.",
    "generations": "Images are not offered: the models here write text.",
    "compact": "Conversations are not compacted: send fewer messages, or ask for a summary.",
    "cancel": "Answers are not made in the background: close the connection to stop one.",
    "pull": "Models are not loaded by this address: name one in a request, or in --models.",
}
"""Endpoints of other programs that are not offered, by the end of the address."""
_SAME = {
    **dict.fromkeys(("/api/chat", "/invocations"), f"{PATH}/chat/completions"),
    **dict.fromkeys(("/api/generate", "/generate", f"{PATH}/generate"), f"{PATH}/completions"),
    **dict.fromkeys(("/api/tags", "/api/ps", "/api/show", "/model_info"), f"{PATH}/models"),
    **dict.fromkeys(("/healthz", "/livez", "/readyz", "/ping"), "/health"),
    **dict.fromkeys(("/load", "/server_info", "/info"), f"{PATH}/props"),
}
"""Addresses of Ollama, SGLang, vLLM and llama.cpp, and what is nearest to them."""


def nothing_at(path: str, api: FastAPI) -> str:
    """A sentence that names the address that is probably meant, or says that it is not offered."""
    if sentence := NOT_OFFERED.get(path.rpartition("/")[2]):
        return sentence
    near = _SAME.get(path) or _nearest(
        path.lower(), [PATH + getattr(route, "path", "") for route in api.routes]
    )
    rest = f"{near} may be meant." if near else f"{PATH}/models lists the models."
    return f"There is nothing at this address. {rest}"


def _nearest(path: str, known: Sequence[str]) -> str:
    """The address that is probably meant; empty if none is like it."""
    parts = path.strip("/").split("/")
    for size in range(len(parts), 0, -1):
        end = "/" + "/".join(parts[-size:])
        if alike := [each for each in known if each.endswith(end)]:
            return min(alike, key=len)
    alike = [each for each in known if each.startswith(f"{path}/")]
    alike = alike or [each for each in known if path.startswith(f"{each}/") and each != PATH]
    alike = alike or difflib.get_close_matches(path, known, 1, 0.8)
    return next(iter(alike), "")
