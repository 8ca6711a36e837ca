"""The public endpoints that run or predict a request.

Knows their names, types and documentation. Must not know the page's components.
"""

# No postponed annotations here: Gradio reads an answer's type from the signature.

import inspect
import time
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints

import gradio as gr
from gradio_client.utils import is_file_obj_with_meta

from playground.api.engine_endpoints import add_engine_endpoints, published
from playground.context.page_context import PageContext
from playground.context.runs import BETWEEN_UPDATES_S, page_mode
from playground.tabs.compare.baselines_report import claim
from playground.tabs.compare.runs import baselines_run
from xla_backend import GenerationOptions, InvalidRequest, Prompt, question
from xla_backend.baselines.comparison import CACHED_CALLS
from xla_backend.interface.options import OPTIONS, WINDOW_TOKENS

_SAID = {
    "prompt": "The text to continue; for T5 models, the text to answer, including the task.",
    "model": "Name of an offered model.",
    "exact_key": "Do not reuse a larger compiled function.",
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
REQUEST = {name: _SAID[name] for name in dict.fromkeys((*_ORDER, *_SAID))}
"""The parameters of a request, in order, with their descriptions."""


def add_endpoints(page: "PageContext") -> None:
    """Adds the endpoints to the `gr.Blocks` that is being built."""
    backend = page.backend
    models = page.models()
    default_model = models[0].name if models else ""

    def request_from(*values: Any) -> tuple[str, Prompt, GenerationOptions, bool]:
        """The checked model, prompt, options and exact key."""
        given = dict(zip(REQUEST, values, strict=True))
        prompt, model, exact_key, chat, system = (
            given.pop(name) for name in ("prompt", "model", "exact_key", "chat", "system")
        )
        if chat:
            prompt = question(prompt, system)
        elif system:
            raise InvalidRequest("system needs chat: a text to continue has no system prompt.")
        options = GenerationOptions(**{name: of for name, of in given.items() if of is not None})
        page.check_request(model, prompt, options)
        return model, prompt, options, exact_key

    def generate(*values: Any) -> dict[str, Any]:
        """Continue or answer a prompt, and report the cache outcome and the times.

        Returns:
            An object with model, text, prompt_tokens, new_tokens, key, cache,
            timing, ttft_s and tpot_s (seconds).
        """
        model, prompt, options, exact_key = request_from(*values)
        waited_s = page.line.waited_s()
        result = backend.generate(
            model, prompt, options, mode=page_mode(options), exact_key=exact_key
        )
        return result.after_waiting(waited_s).to_json()

    def stream(*values: Any) -> Iterator[dict[str, Any]]:
        """Continue or answer a prompt, and stream the text.

        Returns:
            Objects with a growing text; the last one is the answer of generate.
        """
        model, prompt, options, exact_key = request_from(*values)
        waited_s = page.line.waited_s()
        chunks = backend.stream(
            model, prompt, options, mode=page_mode(options), exact_key=exact_key
        )
        try:
            text, last = "", 0.0
            for chunk in chunks:
                text += chunk
                if time.perf_counter() - last >= BETWEEN_UPDATES_S:
                    last = time.perf_counter()
                    yield {"text": text}
        finally:
            chunks.close()  # the caller may have left
        assert chunks.result is not None  # only None after stop()
        yield chunks.result.after_waiting(waited_s).to_json()

    def predict(*values: Any) -> dict[str, Any]:
        """Predict the cache outcome of a request: hit, disk, reused or miss.

        Nothing is run.

        Returns:
            An object with cache, key, requested_key, prompt_tokens and expected_s (seconds, or null
            if nothing comparable was measured yet).
        """
        model, prompt, options, exact_key = request_from(*values)
        mode = page_mode(options)
        return backend.predict(model, prompt, options, mode=mode, exact_key=exact_key).to_json()

    def compare(
        prompt: str,
        model: str = default_model,
        max_new_tokens: int = 32,
        num_beams: int = 1,
        cached_calls: int = CACHED_CALLS,
    ) -> dict[str, Any]:
        """Measure this engine beside Transformers' generate, eager and compiled. Takes a minute.

        Each method answers the prompt in a fresh process: first calls one after the other, then
        repeated ones alternating. Other requests wait meanwhile.

        Parameters:
            prompt: the text to continue.
            model: name of an offered model.
            max_new_tokens: bound on the new tokens.
            num_beams: number of beams, 1 to 8.
            cached_calls: how often each method repeats the request after its first call, 1 to 50;
                slow methods repeat less often.
        Returns:
            An object with lanes (each with its seconds, tokens and text), identical, and claim,
            which says faster or slower only if the spreads of later calls do not overlap.
        """
        options = GenerationOptions(max_new_tokens=max_new_tokens, num_beams=num_beams)
        run = baselines_run(page, model, prompt, options, cached_calls, may_install=True)
        for _ in run.steps(backend):
            pass
        return {"claim": claim(run.comparison), **run.comparison.to_json()}

    for function, queue in (
        (generate, page.shared),
        (stream, page.shared),
        (predict, {"queue": False}),
    ):
        endpoint = published(taking_requests(function, default_model))
        gr.api(endpoint, api_name=function.__name__, **queue)
    gr.api(published(compare), api_name="compare", **page.alone)
    if speech_models := page.speech_models():
        _add_transcribe(page, speech_models[0].name)
    add_engine_endpoints(page)


def taking_requests(function: Callable[..., Any], default_model: str) -> Callable[..., Any]:
    """Gives a function of any values the parameters of `REQUEST`.

    Gradio reads names, types and defaults from the signature, which is made from the fields of
    `GenerationOptions`, and descriptions from the docstring.
    """
    asked = {"prompt": str, "model": str, "chat": bool, "system": str}
    kinds = {**asked, **get_type_hints(GenerationOptions), "exact_key": bool}
    # Their types in JSON.
    kinds |= {"logit_bias": dict[str, float], "stop": list[str], "stop_token_ids": list[int]}
    kinds |= {"grammar": dict[str, Any] | None}
    # Without this, Gradio's panel writes Python's False into JavaScript and JSON.
    kinds["early_stopping"] |= None
    asked_by_default = {"model": default_model, "chat": False, "system": ""}
    defaults = {**asked_by_default, **GenerationOptions().to_dict(), "exact_key": False}
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
    answer = dict[str, Any]  # also of a stream: Gradio describes one chunk
    function.__signature__ = inspect.Signature(parameters, return_annotation=answer)  # type: ignore[attr-defined]
    function.__annotations__ = {**kinds, "return": answer}
    said = "".join(f"    {name}: {meaning}\n" for name, meaning in REQUEST.items())
    function.__doc__ = str(inspect.getdoc(function)).replace(
        "Returns:", f"Parameters:\n{said}Returns:"
    )
    return function


def _add_transcribe(page: "PageContext", default_model: str) -> None:
    def transcribe(
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
        waited_s = page.line.waited_s()
        result = page.backend.transcribe(
            model,
            recording["path"],
            options,
            language=language or None,
            max_seconds=page.limits.audio_s,
        )
        return result.after_waiting(waited_s).to_json()

    gr.api(published(transcribe), api_name="transcribe", **page.alone)
