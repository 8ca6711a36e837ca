"""`Tools`: the functions that a request allows the model to call.

Knows OpenAI's form of them, which chat templates use, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xla_backend.interface.errors import InvalidRequest

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
MAX_TOOLS = 128
"""OpenAI's limit."""
_NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True)
class Tools:
    """Functions, and which of them may or must be called.

    Attributes:
        listed: all of them, for the chat template: `{"type": "function", "function": {...}}`.
        allowed: those that may be called.
        must_call: the answer must be a call.
        several: an answer may have several calls.
    """

    listed: tuple[dict[str, Any], ...]
    allowed: tuple[dict[str, Any], ...]
    must_call: bool
    several: bool

    @classmethod
    def of(cls, tools: Sequence[Any], choice: Any, several: bool) -> Tools | None:
        """The tools of a request; None if there are none, or none may be called.

        Args:
            tools: in OpenAI's form.
            choice: "none", "auto", "required" or an object with a function's name.
            several: see above.

        Raises:
            InvalidRequest: a tool is malformed, or not a function.
        """
        if choice == "none" or (not tools and choice in (None, "auto")):
            return None
        if len(tools) > MAX_TOOLS:
            raise InvalidRequest(f"a request can have {MAX_TOOLS} tools, not {len(tools)}.")
        listed = tuple(map(_listed, tools))
        by_name = {tool["function"]["name"]: tool for tool in listed}
        if len(by_name) < len(listed):
            raise InvalidRequest("two tools have the same name.")
        if choice in (None, "auto", "required"):
            if not listed:
                raise InvalidRequest(f"tool_choice {choice!r} needs tools.")
            return cls(listed, listed, choice == "required", several)
        function = choice.get("function") if isinstance(choice, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(name, str) or name not in by_name:
            raise InvalidRequest(
                "tool_choice must be none, auto, required, or an object with the name of one of "
                f'the tools, as {{"type": "function", "function": {{"name": "f"}}}}, not '
                f"{choice!r:.60}."
            )
        return cls(listed, (by_name[name],), must_call=True, several=several)


def _listed(tool: Any) -> dict[str, Any]:
    kind = tool.get("type") if isinstance(tool, Mapping) else None
    function = tool.get("function") if kind == "function" else None
    if not isinstance(function, Mapping):
        raise InvalidRequest(
            f"a tool of the type {kind!r:.40} is not supported, only those of the type "
            '"function" with an object "function" of name, description and parameters.'
        )
    name, parameters = function.get("name"), function.get("parameters") or _NO_PARAMETERS
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise InvalidRequest(
            f"the name of a tool must be letters, digits, '_', '-' and '.', 64 at most, not "
            f"{name!r:.80}."
        )
    if not isinstance(parameters, Mapping):
        raise InvalidRequest(f"the parameters of the tool {name} must be a JSON schema.")
    described = {"name": name, "description": function.get("description") or ""}
    strict = {"strict": True} if function.get("strict") else {}
    return {"type": "function", "function": {**described, "parameters": {**parameters}, **strict}}
