"""The public endpoints of Gradio, which are also the tools for agents: generate, predict,
transcribe, models. Other programs have `/v1`.

Knows their names, types and documentation. Must not know the page's components.
"""

# No postponed annotations here: Gradio reads an answer's type from the signature.

import asyncio
import dataclasses
import functools
import inspect
import logging
from collections.abc import Callable, Coroutine
from typing import Any, get_type_hints

import gradio as gr
from gradio_client.utils import is_file_obj_with_meta

from playground.context.page_context import PageContext
from playground.context.runs import UNEXPECTED, page_mode
from xla_backend import BackendError, GenerationOptions, InvalidRequest, Prompt, question
from xla_backend.interface.options import OPTIONS, WINDOW_TOKENS
from xla_backend.interface.requests import SpeechRequest, TextRequest

_MEANINGS = {
    "prompt": "The text to continue; for T5 models, the text to answer, including the task.",
    "model": "Name of an offered model.",
    "chat": "Whether the prompt is a question to an instruct model, not a text to continue.",
    "system": "The system prompt; only with chat.",
} | {
    name: f"{option.sentence} From {option.range}." if option.range else option.sentence
    for name, option in OPTIONS.items()
}
# Some callers send values without names, so new ones come last.
_ORDER = (
    *("prompt", "model", "max_new_tokens", "num_beams", "temperature", "top_k", "top_p"),
    *("repetition_penalty", "length_penalty", "early_stopping", "seed", "exact_key", "min_p"),
    *("presence_penalty", "frequency_penalty", "logit_bias", "stop", "chat", "system"),
)
REQUEST = {name: _MEANINGS[name] for name in dict.fromkeys((*_ORDER, *_MEANINGS))}
"""The parameters of a request, in order, with their descriptions."""
logger = logging.getLogger(__name__)


def add_endpoints(page: "PageContext") -> None:
    """Adds the endpoints to the `gr.Blocks` that is being built."""
    backend = page.backend
    default_model = next((info.name for info in page.models()), "")

    def request_from(*values: Any) -> tuple[str, Prompt, GenerationOptions]:
        """The checked model, prompt and options."""
        given = dict(zip(REQUEST, values, strict=True))
        prompt, model, chat, system = map(given.pop, ("prompt", "model", "chat", "system"))
        if chat:
            prompt = question(prompt, system)
        elif system:
            raise InvalidRequest("system needs chat: a text to continue has no system prompt.")
        options = GenerationOptions(**{name: of for name, of in given.items() if of is not None})
        page.check_request(model, prompt, options)
        return model, prompt, options

    async def generate(*values: Any) -> dict[str, Any]:
        """Continue or answer a prompt, and report the cache outcome and the times.

        Returns:
            An object with model, text, prompt_tokens, new_tokens, key, cache,
            timing, ttft_s and tpot_s (seconds).
        """
        model, prompt, options = request_from(*values)
        request = TextRequest(model, prompt, options, page_mode(options), in_chunks=False)
        stream = await asyncio.to_thread(backend.submit, request)
        return (await stream.whole()).to_json()

    async def predict(*values: Any) -> dict[str, Any]:
        """Predict the cache outcome of a request: hit, disk, reused or miss.

        Nothing is run.

        Returns:
            An object with cache, key, requested_key, prompt_tokens and expected_s (seconds, or null
            if nothing comparable was measured yet).
        """
        model, prompt, options = await asyncio.to_thread(request_from, *values)
        return backend.predict(model, prompt, options, mode=page_mode(options)).to_json()

    async def models() -> list[dict[str, Any]]:
        """List the models that requests can name, for text and for speech.

        Returns:
            Objects with name, family, source, description, context_length and more.
        """
        return [dataclasses.asdict(info) for info in [*page.models(), *page.speech_models()]]

    for function, is_queued in ((generate, True), (predict, False)):
        endpoint = published(taking_requests(function, default_model))
        gr.api(endpoint, api_name=function.__name__, queue=is_queued)
    gr.api(published(models), api_name="models", queue=False)
    if speech_models := page.speech_models():
        _add_transcribe(page, speech_models[0].name)


def published(function: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    """The function as an endpoint, whose errors are one sentence."""

    @functools.wraps(function)
    async def endpoint(*values: Any) -> Any:
        try:
            return await function(*values)
        except BackendError as error:  # only the text of a gr.Error reaches the caller
            raise gr.Error(str(error), print_exception=False) from error
        except Exception as error:
            logger.exception("An endpoint failed unexpectedly")
            raise gr.Error(UNEXPECTED, print_exception=False) from error

    return endpoint


def taking_requests(function: Callable[..., Any], default_model: str) -> Callable[..., Any]:
    """Gives a function of any values the parameters of `REQUEST`.

    Gradio reads names, types and defaults from the signature, which is made from the fields of
    `GenerationOptions`, and descriptions from the docstring.
    """
    kinds: dict[str, Any] = {"prompt": str, "model": str, "chat": bool, "system": str}
    kinds |= get_type_hints(GenerationOptions)
    # Their types in JSON.
    kinds |= {"logit_bias": dict[str, float], "stop": list[str], "stop_token_ids": list[int]}
    kinds |= {"grammar": dict[str, Any] | None}
    # Without this, Gradio's panel writes Python's False into JavaScript and JSON.
    kinds["early_stopping"] |= None
    defaults = {"model": default_model, "chat": False, "system": ""}
    defaults |= GenerationOptions().to_dict()
    defaults["early_stopping"] = None
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=defaults.get(name, inspect.Parameter.empty),
            annotation=kinds[name],
        )
        for name in REQUEST
    ]
    answer = dict[str, Any]
    function.__signature__ = inspect.Signature(parameters, return_annotation=answer)  # type: ignore[attr-defined]
    function.__annotations__ = {**kinds, "return": answer}
    described = "".join(f"    {name}: {meaning}\n" for name, meaning in REQUEST.items())
    function.__doc__ = str(inspect.getdoc(function)).replace(
        "Returns:", f"Parameters:\n{described}Returns:"
    )
    return function


def _add_transcribe(page: "PageContext", default_model: str) -> None:
    async def transcribe(
        recording: dict[str, Any],
        model: str = default_model,
        max_new_tokens: int = WINDOW_TOKENS,
        num_beams: int = 1,
        language: str = "",
    ) -> dict[str, Any]:
        """Transcribe a recording, and report the times.

        A recording longer than the model's window is cut into windows, which all run on one
        compiled function.

        Parameters:
            recording: an uploaded file: WAV, FLAC, OGG, MP3, M4A or WebM, of at most ten minutes.
                In Python, `handle_file("recording.wav")` of `gradio_client`.
            model: name of an offered speech model.
            max_new_tokens: bound on the tokens of each window. Part of the compiled shape.
            num_beams: number of beams, 1 to 8. Part of the compiled shape.
            language: as "en" or "German"; empty to detect it.
        Returns:
            An object with model, text, prompt_tokens (frames of sound), new_tokens, key, cache,
            timing, ttft_s and tpot_s (seconds), audio_s and real_time_factor (seconds, with
            waiting, for a second of sound).
        """
        # Anything else could name a file of the server.
        if not is_file_obj_with_meta(recording):
            raise InvalidRequest(
                "recording must be an uploaded file: in Python, send "
                "gradio_client.handle_file(PATH)."
            )
        options = GenerationOptions(max_new_tokens=max_new_tokens, num_beams=num_beams)
        page.check_request(model, options=options)
        request = SpeechRequest(
            model,
            recording["path"],
            options,
            language=language or None,
            max_seconds=page.limits.audio_s,
            in_chunks=False,
        )
        stream = await asyncio.to_thread(page.backend.submit_speech, request)
        return (await stream.whole()).to_json()

    gr.api(published(transcribe), api_name="transcribe")
