"""`Fields`: an object of a request, and the fields of other programs that mean something here.

Knows which names of OpenAI's, vLLM's, llama.cpp's and Ollama's requests are read under another
name, refused, or without effect; every other unknown field is listed in the answer. docs/api.md has
the same lists. Must not know what a request does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, PrivateAttr, model_validator

from xla_backend.interface.options import OPTIONS
from xla_backend.openai_api.errors import NotSupported

MEANINGS = {
    **dict.fromkeys(("n_predict", "num_predict", "max_new_tokens"), "max_tokens"),
    "repeat_penalty": "repetition_penalty",
    **dict.fromkeys(("n_cmpl", "num_return_sequences"), "n"),
    "typ_p": "typical_p",
    "penalty_last_n": "repeat_last_n",
    "min_new_tokens": "min_tokens",
    "structured_output": "structured_outputs",
    "regex": "guided_regex",
    "ebnf": "guided_grammar",
    "no_stop_trim": "include_stop_str_in_output",
    "enable_thinking": "think",
}
"""Names of other programs, and those of the same fields here."""

_NONE: tuple[object, ...] = (None, False, "", [], {})  # and 0, which equals False
REFUSED: dict[str, tuple[object, ...]] = {
    # OpenAI's; the first two of completions
    "tools": _NONE,
    "tool_choice": (None, "none", "auto"),
    "functions": _NONE,
    "function_call": (None, "none", "auto"),
    "modalities": (None, ["text"]),
    "audio": _NONE,
    "prediction": _NONE,
    "web_search_options": (None,),
    "suffix": _NONE,
    "best_of": (None, 1),
    "system": _NONE,
    # vLLM's
    "use_beam_search": _NONE,
    **dict.fromkeys(("chat_template", "documents"), _NONE),
    **dict.fromkeys(("prompt_logprobs", "prompt_embeds", "truncate_prompt_tokens"), _NONE),
    "skip_special_tokens": (None, True),
    # llama.cpp's and Ollama's
    **dict.fromkeys(("samplers", "n_probs", "lora", "min_keep"), _NONE),
    **dict.fromkeys(("mirostat", "dynatemp_range", "dry_multiplier"), _NONE),
    **dict.fromkeys(("xtc_probability", "n_indent", "t_max_predict_ms"), _NONE),
    **dict.fromkeys(("images", "context", "template", "raw"), _NONE),
    **dict.fromkeys(("typical_p", "tfs_z"), (None, 1)),
    "top_n_sigma": (None, -1),
    "repeat_last_n": (None, -1),
}
"""Unsupported fields that would change an answer, with their values that have no effect."""
_INSTEAD = {
    "repeat_last_n": "repetition_penalty counts the whole text: leave it out.",
}

_NUMBERS = {
    *(name for name, option in OPTIONS.items() if option.range),
    *("max_tokens", "max_completion_tokens", "max_output_tokens", "min_tokens"),
    *("n", "top_logprobs"),
}
WITHOUT_EFFECT = frozenset(
    # OpenAI's and Anthropic's
    "user metadata store service_tier safety_identifier prompt_cache_key prompt_cache_retention "
    "cache_control thinking "
    # what a sampler that is refused would read
    "mirostat_tau mirostat_eta dynatemp_exponent dry_base dry_allowed_length dry_penalty_last_n "
    "dry_sequence_breakers xtc_threshold "
    # settings of a server: slots, memory, threads
    "cache_prompt id_slot slot_id n_keep num_keep n_discard num_ctx num_batch num_gpu main_gpu "
    "num_thread numa use_mmap use_mlock keep_alive priority request_id "
    # what is done in any case
    "spaces_between_special_tokens do_sample".split()
)
"""Fields that no answer depends on."""
MOST_LISTED = 20


class Fields(BaseModel):
    """An object of a request.

    Whole numbers may be written as floats, options also as text. Unknown fields are listed in
    `ignored`.
    """

    model_config = ConfigDict(strict=True, extra="ignore")

    _ignored: list[str] = PrivateAttr(default_factory=list)

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, values: Any, read: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(values, dict):
            return read(values)
        values = {
            name: _whole(value, name in _NUMBERS) for name, value in cls.translated(values).items()
        }
        fields = read(values)
        if cls.model_config.get("extra") == "ignore":
            fields._ignored += [
                name[:60]
                for name, value in values.items()
                if name not in cls.model_fields
                and name not in WITHOUT_EFFECT
                and value not in (None, "", [], {})
            ]
        for name in cls.model_fields:
            inner = getattr(fields, name)
            parts = enumerate(inner) if isinstance(inner, list) else [("", inner)]
            for place, part in parts:
                if isinstance(part, Fields):
                    at = f"{name}.{place}".rstrip(".")
                    fields._ignored += [f"{at}.{each}" for each in part._ignored]
        return fields

    @classmethod
    def translated(cls, values: dict[str, Any]) -> dict[str, Any]:
        """The values by the names that they have here."""
        return values

    @property
    def ignored(self) -> dict[str, list[str]]:
        """The answer's field for what was not understood, if there is anything."""
        return {"ignored_fields": self._ignored[:MOST_LISTED]} if self._ignored else {}


def translated(sent: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request that generates text, by the names that they have here.

    Args:
        sent: their names and values.
        known: the names of the request's own fields.

    Raises:
        NotSupported: a field asks for something that would change the answer.
    """
    values = dict(sent)
    if isinstance(values.get("options"), dict):  # Ollama's
        values = values.pop("options") | values
    for name in values.keys() & MEANINGS.keys() - known.keys():
        value = values.pop(name)
        if values.get(MEANINGS[name]) is None:
            values[MEANINGS[name]] = value
    if values.get("do_sample") is False and values.get("temperature") is None:
        values["temperature"] = 0.0
    if (form := values.pop("format", None)) and not values.get("response_format"):
        is_json = form == "json"
        values["response_format"] = (
            {"type": "json_object"} if is_json else {"type": "json_schema", "schema": form}
        )
    if "chat_template_kwargs" in known and (think := values.pop("think", None)) is not None:
        key, value = "reasoning_effort", think
        if isinstance(think, bool):
            key, value = "chat_template_kwargs", {"enable_thinking": think}
        values.setdefault(key, value)
    if values.get("repetition_penalty") in (None, 1):
        values.pop("repeat_last_n", None)
    for name, harmless in REFUSED.items():
        if name in values and name not in known and values.pop(name) not in harmless:
            instead = _INSTEAD.get(name, "Leave it out.")
            raise NotSupported(name, f"{name} is not supported. {instead}")
    return values


def _whole(value: Any, is_number: bool = False) -> Any:
    """Whole numbers, also in lists, as integers: JavaScript and Lua know no other numbers. Forms of
    web pages send text for a number."""
    if is_number and isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = float(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list) and any(isinstance(each, float) for each in value):
        return [_whole(each) for each in value]
    return value
