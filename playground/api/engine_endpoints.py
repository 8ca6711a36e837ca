"""The public endpoints about the engine, and how a function becomes an endpoint.

Knows names, types and documentation. Must not know the page's components.
"""

# No postponed annotations here: Gradio reads an answer's type from the signature.

import dataclasses
import functools
import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import gradio as gr

from playground.context.page_context import PageContext
from playground.context.runs import UNEXPECTED
from playground.tabs.inside.functions import NO_STORE, check_own
from playground.tabs.shapes.shapes import survey
from playground.ui.components import SEPARATE_PROCESS
from xla_backend import BackendError, BucketRules, CacheKey, InvalidRequest

MAX_SHAPES = 200

logger = logging.getLogger(__name__)


def published(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as an endpoint, whose errors are one sentence."""
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def endpoint(*values: Any) -> Iterator[Any]:
            with _errors_as_sentences():
                yield from function(*values)
    else:

        @functools.wraps(function)
        def endpoint(*values: Any) -> Any:
            with _errors_as_sentences():
                return function(*values)

    return endpoint


@contextmanager
def _errors_as_sentences() -> Iterator[None]:
    # Only the text of a gr.Error reaches the caller.
    try:
        yield
    except BackendError as error:
        raise gr.Error(str(error), print_exception=False) from error
    except Exception as error:
        logger.exception("An endpoint failed unexpectedly")
        raise gr.Error(UNEXPECTED, print_exception=False) from error


def add_engine_endpoints(page: "PageContext") -> None:
    """Adds the endpoints to the `gr.Blocks` that is being built."""
    backend = page.backend
    names = [model.name for model in page.models()]

    def models() -> list[dict[str, Any]]:
        """List the models that requests can name, for text and for speech.

        Returns:
            Objects with name, family, source, description, context_length and more.
        """
        return [dataclasses.asdict(info) for info in [*page.models(), *page.speech_models()]]

    def entries() -> list[dict[str, Any]]:
        """List the compiled functions in the engine's memory, and the times of their calls.

        Returns:
            Objects with model, key, first_call (seconds), hits and cached (statistics of the calls
            after the first, in seconds; null before there is one).
        """
        return [entry.to_json() for entry in backend.cached_functions()]

    def warm(
        padded_lengths: list[int],
        num_beams: list[int],
        max_new_tokens: list[int],
        model: str = names[0] if names else "",
    ) -> list[dict[str, Any]]:
        """Compile every combination of these sizes in the background.

        entries lists those that are done.

        Parameters:
            padded_lengths: prompt slots, rounded up as in requests.
            num_beams: numbers of beams, 1 to 8.
            max_new_tokens: new slots, rounded up as in requests.
            model: name of an offered model.
        Returns:
            Objects with model, key, and cache: hit if it was in memory already, otherwise disk or
            miss; sizes for which the model has no room have a null key.
        """
        page.check_model(model)
        sizes = [
            _numbers("padded_lengths", padded_lengths, BucketRules().padded_lengths),
            _numbers("num_beams", num_beams, tuple(range(1, 9))),
            _numbers("max_new_tokens", max_new_tokens, BucketRules().max_new_tokens),
        ]
        if len(list(product(*sizes))) > MAX_SHAPES:
            raise InvalidRequest(f"At most {MAX_SHAPES} combinations are allowed at once.")
        backend.load(model)  # only a loaded model's functions can be compiled
        shapes = survey(backend, model, *sizes)
        backend.prefetch(model, [shape.key for shape in shapes if shape.key is not None])
        return [
            {
                "model": model,
                "key": shape.key.to_dict() if shape.key else None,
                "cache": shape.outcome.value if shape.outcome else None,
            }
            for shape in shapes
        ]

    def inspect(
        model: str = names[0] if names else "",
        padded_length: int = 16,
        num_beams: int = 1,
        max_new_tokens: int = 32,
        measure: bool = False,
    ) -> dict[str, Any]:
        """Inspect the compiled functions of a shape: kernels, FLOPs, bytes, origins.

        They must be in the store: generate a text of that shape first. Nothing is compiled, and the
        engine is not used.

        Parameters:
            model: name of an offered model.
            padded_length: prompt slots, as entries lists them.
            num_beams: beams, likewise.
            max_new_tokens: new slots, likewise.
            measure: also run a token with XLA's profiler, which takes ten seconds; only on private
                pages.
        Returns:
            An object with prefill (one call) and decode (one token), each with operations,
            hlo_instructions, optimized_instructions, kernels, flops, bytes, weight_bytes,
            constants_bytes, code_bytes, trace_s, compile_s, memory in bytes and kernel_list; with
            measure, decode has measured.
        """
        page.check_model(model)
        if page.inspector is None:
            raise InvalidRequest(NO_STORE)
        if measure:
            check_own(page)
        key = CacheKey(padded_length, num_beams, max_new_tokens)
        identity = backend.identity(model)
        seen = page.inspector.inspect(model, identity, key)
        answer = {"prefill": seen.prefill.to_json(), "decode": seen.decode.to_json()}
        if measure:
            measured = page.inspector.measure(model, identity, key)
            answer["decode"]["measured"] = measured.to_json()
        return answer

    gr.api(published(models), api_name="models", queue=False)
    gr.api(published(inspect), api_name="inspect", **SEPARATE_PROCESS)
    gr.api(published(entries), api_name="entries", queue=False)
    if page.admin:
        gr.api(published(warm), api_name="warm", **page.alone)


def _numbers(name: str, values: object, sizes: tuple[int, ...]) -> list[int]:
    """The sizes that these values round up to, each once.

    Raises:
        InvalidRequest: they are not a list of whole numbers in range.
    """
    rule = f"{name} must be a list of whole numbers from 1 to {sizes[-1]}"
    if not isinstance(values, list) or not values:
        raise InvalidRequest(f"{rule}.")
    for value in values:
        if type(value) is not int or not 1 <= value <= sizes[-1]:
            raise InvalidRequest(f"{rule}, not {str(value)[:40]}.")
    return sorted({min(size for size in sizes if size >= value) for value in values})
