"""Messages of a conversation, as programs send them back.

Knows what becomes of earlier answers: calls that the token limit cut, parts of other models'
answers, roles of other protocols. Nothing in an old turn is refused, or the conversation could
never go on: what is no text becomes a short note. Must not know requests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from xla_backend.interface.prompt import ToolCall
from xla_backend.openai_api.errors import NotSupported

Role = Literal["system", "user", "assistant", "tool"]
_ROLES: Mapping[str, Role] = {
    **{"system": "system", "user": "user", "assistant": "assistant", "tool": "tool"},
    **{"developer": "system", "function": "tool", "ipython": "tool"},
    **{"model": "assistant", "ai": "assistant", "human": "user"},
}
_THOUGHTS = ("thinking", "redacted_thinking", "reasoning")
_TITLES = ("title", "source")
_NAMES = ("tool_name", "filename", "name", "file_id")


def role_of(role: str) -> tuple[Role, str]:
    """The engine's role, and what stands before the text of roles that no template knows."""
    known = _ROLES.get(role.lower())
    return (known, "") if known else ("user", f"{role[:80]}: ")


def text_of(content: Any, is_newest: bool = False) -> str:
    """The text of a message's content: text, or parts of any protocol.

    Args:
        content: as it was sent.
        is_newest: whether its images and files are refused; otherwise they become notes.

    Raises:
        NotSupported: see above.
    """
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    return "".join(_part(part, is_newest) for part in parts)


def _part(part: Any, is_newest: bool) -> str:
    if part is None or isinstance(part, str):
        return part or ""
    if not (isinstance(part, Mapping) and {"type", "text", "refusal", "content"} & part.keys()):
        return json.dumps(part, ensure_ascii=False)
    kind, source, inner = part.get("type"), part.get("source"), part.get("content")
    if kind in _THOUGHTS:
        return ""
    for name in ("text", "refusal"):
        if name in part:
            text = part[name]
            return text_of(text.get("value") if isinstance(text, Mapping) else text)
    if isinstance(source, Mapping):  # of an Anthropic document
        inner = source.get({"text": "data", "content": "content"}.get(str(source.get("type")), ""))
    if isinstance(inner, str | list):
        titles = [part[name] for name in _TITLES if isinstance(part.get(name), str)]
        return "\n".join([*titles, text_of(inner, is_newest)])
    if kind == "input_json":
        return json.dumps(part.get("data"), ensure_ascii=False)
    if is_newest and kind != "tool_reference":
        raise NotSupported(
            "messages", f"Content of the type {str(kind)[:40]!r} is not supported: send only text."
        )
    names = [str(part[name])[:80] for name in _NAMES if part.get(name)]
    return f"[{' '.join([str(kind)[:40], *names[:1]])}, which is not shown here]"


def calls_of(calls: Any) -> Iterator[ToolCall]:
    """The calls of an earlier answer, in OpenAI's form or with the function's fields alone."""
    for call in calls if isinstance(calls, list) else [calls]:
        if isinstance(call, Mapping):
            inner = call.get("function") or call.get("custom")
            function = inner if isinstance(inner, Mapping) else call
            arguments = function.get("arguments", function.get("input"))
            yield ToolCall(
                str(call.get("id") or ""),
                str(function.get("name") or "unknown"),
                _object(arguments),
            )


def _object(arguments: Any) -> str:
    """Arguments as a JSON object; others, such as those that were cut, are a field of one."""
    read = arguments
    if isinstance(arguments, str):
        try:
            read = json.loads(arguments) if arguments else {}
        except (ValueError, RecursionError):
            read = arguments
    if not isinstance(read, dict):
        read = {"arguments": arguments} if read else {}  # PHP writes {} as []
    return json.dumps(read, ensure_ascii=False)
