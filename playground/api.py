"""The public endpoints that run a request, or say what it would meet.

Knows their names, types and documentation. Must not know the page's components.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import gradio as gr
from gradio_client.utils import is_file_obj_with_meta

from playground.api_engine import add_engine_endpoints, published
from playground.compare_lanes import claim
from playground.compare_runs import lanes_run
from playground.runs import BETWEEN_UPDATES_S, with_waiting
from xla_backend import GenerationOptions, InvalidRequest
from xla_backend.lanes import CACHED_CALLS
from xla_backend.options import WINDOW_TOKENS

if TYPE_CHECKING:
    from playground.page import PageContext


def add_endpoints(page: PageContext) -> None:
    """Adds the endpoints to the `gr.Blocks` that is being built."""
    backend = page.backend
    models = page.models()
    default_model = models[0].name if models else ""

    def generate(
        prompt: str,
        model: str = default_model,
        max_new_tokens: int = 32,
        num_beams: int = 1,
        temperature: float = 0.0,
        top_k: int = 50,
        top_p: float = 1.0,
        repetition_penalty: float = 1.0,
        length_penalty: float = 1.0,
        early_stopping: bool | Literal["never"] = False,
        seed: int = 0,
        exact_key: bool = False,
    ) -> dict[str, Any]:
        """Continue or answer a prompt, and say if a function was compiled, and where time went.

        Parameters:
            prompt: the text to continue; for T5 models, the text to answer, task included.
            model: name of a model that the page offers.
            max_new_tokens: most tokens to generate, 1 to 1024. Part of the compiled shape.
            num_beams: beams searched, 1 to 8. Part of the compiled shape.
            temperature: 0 takes the likeliest token; above 0 tokens are drawn.
            top_k: when drawing, keep only the k likeliest tokens; 0 keeps all.
            top_p: when drawing, keep the likeliest tokens that add up to top_p.
            repetition_penalty: above 1 makes tokens that already occurred less likely.
            length_penalty: above 0 favours longer texts in beam search.
            early_stopping: when beam search ends: true, false or "never".
            seed: the same seed draws the same text.
            exact_key: a larger compiled function, if there is one, may not serve instead.
        Returns:
            An object with model, text, prompt_tokens, new_tokens, key, cache and timing (seconds).
        """
        options = GenerationOptions(
            max_new_tokens=max_new_tokens,
            num_beams=num_beams,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            repetition_penalty=repetition_penalty,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
            seed=seed,
        )
        page.check_request(model, prompt, options)
        waited_s = page.line.waited_s()
        result = backend.generate(model, prompt, options, exact_key=exact_key)
        return with_waiting(result, waited_s).to_json()

    def request_from(*values: Any) -> tuple[str, str, GenerationOptions, bool]:
        """Model, prompt, options and exact key, from the values of `generate`'s parameters."""
        named = inspect.signature(generate).bind(*values)
        named.apply_defaults()
        options = dict(named.arguments)
        prompt, model, exact = (options.pop(name) for name in ("prompt", "model", "exact_key"))
        wanted = GenerationOptions(**options)
        page.check_request(model, prompt, wanted)
        return model, prompt, wanted, exact

    def stream(*values: Any) -> Iterator[dict[str, Any]]:
        """Continue or answer a prompt, and send the text while it grows.

        Returns:
            Objects whose text grows; the last one is what generate answers.
        """
        model, prompt, options, exact_key = request_from(*values)
        waited_s = page.line.waited_s()
        pieces = backend.stream(model, prompt, options, exact_key=exact_key)
        try:
            text, last = "", 0.0
            for delta in pieces:
                text += delta
                if time.perf_counter() - last >= BETWEEN_UPDATES_S:
                    last = time.perf_counter()
                    yield {"text": text}
        finally:
            pieces.close()  # The caller may have left.
        assert pieces.result is not None  # Only who calls stop() gets none.
        yield with_waiting(pieces.result, waited_s).to_json()

    def predict(*values: Any) -> dict[str, Any]:
        """Say what a request would meet if it were sent now: hit, disk, reused or miss.

        Nothing is run. The prompt's tokens are counted, and the engine's memory is looked at.

        Returns:
            An object with cache, key, requested_key, prompt_tokens and expected_s (seconds, or null
            where nothing comparable was measured yet).
        """
        model, prompt, options, exact_key = request_from(*values)
        return backend.predict(model, prompt, options, exact_key=exact_key).to_json()

    def compare(
        prompt: str,
        model: str = default_model,
        max_new_tokens: int = 32,
        num_beams: int = 1,
        cached_calls: int = CACHED_CALLS,
    ) -> dict[str, Any]:
        """Measure this engine beside Transformers' generate, eager and compiled. Takes a minute.

        Each lane answers the prompt in a fresh process of its own, one after the other: the first
        call, then repeated ones. Nobody else is served meanwhile.

        Parameters:
            prompt: the text to continue.
            model: name of a model that the page offers.
            max_new_tokens: most tokens to generate, 1 to 1024.
            num_beams: beams searched, 1 to 8.
            cached_calls: how often each lane repeats the request after its first call, 1 to 50.
        Returns:
            An object with lanes (each with its seconds, tokens and text), identical, and claim.
        """
        options = GenerationOptions(max_new_tokens=max_new_tokens, num_beams=num_beams)
        run = lanes_run(page, model, prompt, options, cached_calls)
        for _ in run.steps(backend):
            pass
        return {"claim": claim(run.comparison.results), **run.comparison.to_json()}

    gr.api(published(generate), api_name="generate", **page.beside_others)
    gr.api(published(_as(generate, stream)), api_name="stream", **page.beside_others)
    gr.api(published(_as(generate, predict)), api_name="predict", queue=False)
    gr.api(published(compare), api_name="compare", **page.alone)
    if speech_models := page.speech_models():
        _add_transcribe(page, speech_models[0].name)
    add_engine_endpoints(page)


def _as(like: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with the parameters of another one, and what is said about them."""
    signature = inspect.signature(like)
    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__annotations__ = dict(like.__annotations__)
    head, _, returns = inspect.getdoc(function).partition("Returns:")  # type: ignore[union-attr]
    shared = inspect.getdoc(like).partition("Parameters:")[2].partition("Returns:")[0]  # type: ignore[union-attr]
    function.__doc__ = f"{head}Parameters:{shared}Returns:{returns}"
    return function


def _add_transcribe(page: PageContext, default_model: str) -> None:
    def transcribe(
        recording: dict[str, Any],
        model: str = default_model,
        max_new_tokens: int = WINDOW_TOKENS,
        num_beams: int = 1,
        language: str = "",
    ) -> dict[str, Any]:
        """Write down what is said in a recording, and say what that cost.

        A recording that is longer than what the model hears at once is cut into windows, which all
        run on one compiled function.

        Parameters:
            recording: an uploaded file: WAV, FLAC, OGG or MP3, of at most ten minutes. In Python,
                `handle_file("recording.wav")` of `gradio_client`.
            model: name of a speech model that the page offers.
            max_new_tokens: most tokens for each window, 1 to 1024 and no more than the model can
                write. Part of the compiled shape.
            num_beams: beams searched, 1 to 8. Part of the compiled shape.
            language: what is spoken, as "en" or "German"; empty to let the model hear it.
        Returns:
            An object with model, text, prompt_tokens (frames of sound), new_tokens, key, cache,
            timing (seconds), audio_s and real_time_factor (seconds of work for a second of sound).
        """
        # Anything else could name a file of the server's own.
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
        return with_waiting(result, waited_s).to_json()

    gr.api(published(transcribe), api_name="transcribe", **page.alone)
