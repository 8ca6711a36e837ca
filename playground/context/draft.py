"""`Draft`: the settings of a request from a link, a preset or an earlier visit.

Knows the names of a request's settings and its variables, and checks their values. Must not know
components. `ui/assets/request.js` writes what is read here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from playground.context import json_values as kinds
from playground.ui.markup import clean, quoted
from playground.ui.option_controls import EARLY_STOPPING, NAMES, grammar_from, stops_from
from xla_backend import GenerationOptions, InvalidRequest, Message, ModelInfo
from xla_backend.interface.options import DEFAULT_OPTIONS
from xla_backend.interface.tools import Tools
from xla_backend.openai_api.history import calls_of
from xla_backend.openai_api.host import meant

TEXT, JSON, TOOLS, CHOICE, YES_NO = ANSWERS = ("Text", "JSON", "Tools", "Choice", "Yes or no")
"""The forms of an answer."""
CHAT = "chat"
"""The mode with links of its own, whose settings are not the Playground's."""
SIDES = "side_by_side"
"""The name of an earlier mode in links that have two columns."""
AT = ("left", "right", "third")
"""The prefixes of a column's settings: `left.model`."""
_EMPTY: dict[str, Any] = {
    "system": "",
    "messages": "",
    "begins_with": "",
    "raw": False,
    "variables": "",
    "questions": "",
    "tools": "",
}
"""The settings that a request can be without."""
SETTINGS = ("model", "prompt", *_EMPTY, "answer_as", "choices", *NAMES)
"""The names of all settings."""
VARIABLE = re.compile(r"\{\{\s*([^{}]+?)\s*\}\}")
"""A variable in a prompt: a text from a field or a row stands for it."""
_WHOLE_NUMBERS = ("max_new_tokens", "num_beams", "top_k", "seed", "prompt_lookup_num_tokens")
_SWITCHES = {"1": True, "true": True, "0": False, "false": False}
# Gradio, Hugging Face and the page itself add these.
_OF_OTHERS = re.compile(r"_|utm_|(view|deep_link|session_hash|logs|embed|theme|tab|present)$")


@dataclass(frozen=True)
class _Message:
    role: Literal["system", "user", "assistant", "tool"]
    content: kinds.Text = ""
    tool_calls: tuple[dict[str, Any], ...] = ()  # in OpenAI's form
    tool_call_id: kinds.Text = ""


_MESSAGES = TypeAdapter(list[_Message])
_VARIABLES = TypeAdapter(dict[kinds.Text, kinds.Text])


@dataclass(frozen=True)
class Draft:
    """The settings of a request that this page can use."""

    # values of the fields by name, but for the options
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)  # those that are set
    run: bool = False  # whether to run the request at once
    problems: tuple[str, ...] = ()  # one sentence for each setting that was left out

    @property
    def is_empty(self) -> bool:
        """Whether nothing is set."""
        return not (self.settings or self.options)

    def whole(self) -> Draft:
        """With settings that are not set empty, as in a new request."""
        kind = JSON if self.options.get("grammar") else TEXT
        return replace(self, settings={**_EMPTY, "answer_as": kind, **self.settings})

    def problem(self, what: str) -> str:
        """The message if only parts could be used; empty otherwise.

        Args:
            what: where it comes from: "link".
        """
        if not self.problems:
            return ""
        not_run = " Nothing was run." if self.run else ""
        rest = "" if self.is_empty else " Its other settings are used."
        return f"Parts of this {what} are invalid. {' '.join(self.problems)}{rest}{not_run}"


def read(
    values: Mapping[str, Any],
    models: Sequence[ModelInfo],
    ranges: Mapping[str, tuple[float, float]],
) -> Draft:
    """Reads settings; checks each value by itself.

    Args:
        values: by name; texts as in a link, or JSON values as the browser keeps them.
        models: the models that can be chosen.
        ranges: of the page's controls, for those that have bounds.
    """
    settings: dict[str, Any] = {}
    options: dict[str, Any] = {}
    problems: list[str] = []
    run = False
    for name, value in values.items():
        try:
            text = value if isinstance(value, str) else json.dumps(value)
            if name in NAMES:
                options[name] = _option(name, text, ranges.get(name))
            elif name == "run":
                run = _switch(name, text)
            elif name in SETTINGS:
                settings[name] = _model(text, models) if name == "model" else _setting(name, text)
            elif not _OF_OTHERS.match(name):
                raise InvalidRequest(f"There is no setting {quoted(name)}.")
        except InvalidRequest as error:
            problems.append(str(error))
    try:
        GenerationOptions(**options)
    except InvalidRequest as error:  # each option is valid, but not together with the others
        problems.append(str(error))
        options.clear()
    return Draft(settings, options, run, tuple(problems))


def by_column(query: Mapping[str, str]) -> list[dict[str, str]]:
    """Each column's settings, for `read`; those without a prefix are the first one's."""
    first, *others = (f"{at}." for at in AT)
    found = [
        {name.removeprefix(at): text for name, text in query.items() if name.startswith(at)}
        for at in others
    ]
    if query.get("tab") == SIDES:
        found[0].setdefault("answer_as", TEXT)  # the second is there even without settings
    own = {n.removeprefix(first): t for n, t in query.items() if not n.startswith(tuple(others))}
    return [own, *filter(None, found)]


def messages_in(text: str) -> tuple[Message, ...]:
    """The messages before a prompt.

    Raises:
        InvalidRequest: the text is no JSON list of them.
    """
    try:
        found = _MESSAGES.validate_json(text) if text.strip() else []
    except (ValidationError, ValueError):
        raise InvalidRequest(
            'messages must be a JSON list like [{"role": "user", "content": "Hello"}], with the '
            f"roles system, user, assistant and tool, not {quoted(text)}."
        ) from None
    return tuple(
        Message(each.role, each.content, tuple(calls_of([*each.tool_calls])), each.tool_call_id)
        for each in found
    )


def messages_text(messages: Sequence[Message]) -> str:
    """The inverse of `messages_in`."""
    return _json([message.to_dict() for message in messages])


def tools_in(text: str) -> Tools | None:
    """The tools that a model may call, from a JSON list in OpenAI's form; None if it is empty.

    Raises:
        InvalidRequest: it is no such list.
    """
    try:
        found = json.loads(text) if text.strip() else []
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list):
        raise InvalidRequest(
            f'tools must be a JSON list of {{"type": "function", "function": ...}}, not '
            f"{quoted(text)}."
        )
    return Tools.of(found, None, several=False)


def variables_in(text: str) -> dict[str, str]:
    """The values of a prompt's variables by their names, in lower case.

    Raises:
        InvalidRequest: the text is no JSON object of texts.
    """
    try:
        found = _VARIABLES.validate_json(text) if text.strip() else {}
    except (ValidationError, ValueError):
        raise InvalidRequest(
            f'variables must be a JSON object of texts like {{"name": "Ada"}}, not {quoted(text)}.'
        ) from None
    return {name.lower(): value for name, value in found.items()}


def _model(text: str, models: Sequence[ModelInfo]) -> str:
    name = meant(text, models, lambda _: False) if text and models else text
    if name not in [model.name for model in models]:
        raise InvalidRequest(f"The model {quoted(text)} is not offered here.")
    return name


def _setting(name: str, text: str) -> Any:
    if name == "raw":
        return _switch(name, text)
    if name == "answer_as" and text not in ANSWERS:
        raise InvalidRequest(f"answer_as must be one of {', '.join(ANSWERS)}, not {quoted(text)}.")
    if name == "messages":
        return messages_text(messages_in(text))
    if name == "tools":
        tools_in(text)
    if name == "variables":
        return _json(variables_in(text))
    return clean(text)


def _json(value: Any) -> str:
    """The form for the page's editors; Gradio warns of tags, but none of this becomes one."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c") if value else ""


def _switch(name: str, text: str) -> bool:
    if text.lower() not in _SWITCHES:
        raise InvalidRequest(f"{name} must be 1 or 0, not {quoted(text)}.")
    return _SWITCHES[text.lower()]


def _option(name: str, text: str, bounds: tuple[float, float] | None) -> Any:
    value: Any = text
    if name == "early_stopping":
        value = {"true": True, "false": False, **EARLY_STOPPING}.get(text.lower(), text)
    elif isinstance(getattr(DEFAULT_OPTIONS, name), bool):
        value = _switch(name, text)
    elif name == "stop":
        value = tuple(stops_from(text))
    elif name == "grammar":
        value = grammar_from(text)
    elif name in _WHOLE_NUMBERS and re.fullmatch(r"[+-]?[0-9]{1,12}", text, re.ASCII):
        value = int(text)
    elif name not in _WHOLE_NUMBERS and re.fullmatch(
        r"[+-]?([0-9]{1,12}\.?[0-9]{0,12}|\.[0-9]{1,12})", text, re.ASCII
    ):
        value = float(text)
    GenerationOptions(**{name: value})  # The engine's own sentence, where it refuses.
    if bounds and not bounds[0] <= value <= bounds[1]:
        raise InvalidRequest(
            f"{name} goes from {bounds[0]:g} to {bounds[1]:g} on this page, not {quoted(text)}."
        )
    return value


def filled_in(text: str, value: Callable[[str], str | None]) -> str:
    """A text with its variables replaced; values are not searched for variables.

    Args:
        text: with or without variables.
        value: takes a variable's name; a variable for which it returns None stays as it is.
    """

    def replacement(found: re.Match[str]) -> str:
        given = value(found[1])
        return found[0] if given is None else given

    return VARIABLE.sub(replacement, text)
