"""The command line: `python -m xla_backend generate PROMPT ...`, `transcribe FILE ...`, `warm`,
`models`.

Knows arguments, what is printed where, and exit statuses. Must not know how text is generated.
Results go to stdout, everything else to stderr. Exit status: 0 when every request was answered, 2
when a request was at fault (the others are answered all the same), 1 when this program was.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import IO, TYPE_CHECKING, Any, NoReturn

from xla_backend.batch import BATCH_SIZES
from xla_backend.buckets import CacheKey
from xla_backend.errors import BackendError, InvalidRequest
from xla_backend.models import DEFAULT_MODEL, DEFAULT_SPEECH_MODEL, Registry
from xla_backend.options import WINDOW_TOKENS, GenerationOptions
from xla_backend.prompts import UNBOUNDED_PROMPT_TOKENS
from xla_backend.results import CacheOutcome, GenerationResult, ModelInfo, Transcription
from xla_backend.startup import (
    import_engine,
    keep_freed_memory,
    native_noise_held_back,
    prepare_environment,
)
from xla_backend.store import FOLDER_VARIABLE, open_store
from xla_backend.timing import PHASES

if TYPE_CHECKING:
    from xla_backend.backend import Backend

OK, PROGRAM_FAULT, REQUEST_FAULT, INTERRUPTED = 0, 1, 2, 130

OPTIONS = {
    "num_beams": ("N", "beams to search side by side, 1 to 8 (default: 1)"),
    "max_new_tokens": ("N", "most tokens to generate, 1 to 1024 (default: 32)"),
    "temperature": ("T", "above 0: sample, and how freely (default: 0, the likeliest text)"),
    "top_k": ("K", "sample from the K likeliest tokens; 0: from all (default: 50)"),
    "top_p": ("P", "sample from the likeliest tokens that add up to P (default: 1)"),
    "repetition_penalty": ("R", "above 1: repeat less (default: 1)"),
    "length_penalty": ("L", "beams: above 0 favours longer texts (default: 1)"),
    "seed": ("S", "the noise of sampling; the same seed gives the same text (default: 0)"),
}
"""Options that take a number, as `GenerationOptions` names them: placeholder and help."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    parsed = _parser().parse_args(_spell_out(sys.argv[1:] if arguments is None else arguments))
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if parsed.verbose else logging.WARNING,
        format="%(levelname)s %(name)s: %(message)s",
    )
    prepare_environment(quiet=not parsed.verbose)
    keep_freed_memory()
    with _results_only() as out:
        try:
            return parsed.run(parsed, out)
        except BackendError as error:
            return _complain(error)
        except KeyboardInterrupt:
            return INTERRUPTED
        except BrokenPipeError:  # `| head`: whoever reads has had enough
            return OK


def generate(parsed: argparse.Namespace, out: IO[str]) -> int:
    """Answers the prompts one after the other.

    Raises:
        BackendError: the options or the model are at fault, so that no prompt can be answered.
    """
    options = _options(parsed)
    return _answer_all(
        parsed,
        out,
        parsed.prompts,
        lambda backend, prompt: backend.generate(
            parsed.model, prompt, options, exact_key=parsed.exact_key
        ),
    )


def transcribe(parsed: argparse.Namespace, out: IO[str]) -> int:
    """Writes down the recordings one after the other.

    Raises:
        BackendError: the options or the model are at fault, so that nothing can be transcribed.
    """
    options = _options(parsed, max_new_tokens=WINDOW_TOKENS)
    return _answer_all(
        parsed,
        out,
        parsed.files,
        lambda backend, file: backend.transcribe(
            parsed.model, file, options, language=parsed.language
        ),
    )


def _answer_all(
    parsed: argparse.Namespace,
    out: IO[str],
    requests: Sequence[str],
    answer: Callable[[Backend, str], GenerationResult],
) -> int:
    """Prints every answer; a request that is at fault does not stop the rest."""
    backend = _open_backend(parsed)
    status = OK
    for request in requests:
        try:
            result = answer(backend, request)
        except BackendError as error:
            status = _complain(error)
            continue
        line = json.dumps(result.to_json()) if parsed.json else _describe_result(result)
        print(line, file=out, flush=True)
    backend.close()
    return status


def warm(parsed: argparse.Namespace, out: IO[str]) -> int:
    """Fills the store with every combination of the sizes.

    Raises:
        BackendError: the sizes or the model are at fault, or there is no store to fill.
    """
    is_speech = Registry().locate(parsed.model).info.family == "speech"
    lengths = _numbers("padded_lengths", parsed.padded_lengths)
    if any(length < 1 for length in lengths):
        raise InvalidRequest(f"padded_lengths must be at least 1, not {min(lengths)}.")
    default = WINDOW_TOKENS if is_speech else GenerationOptions().max_new_tokens
    options = [
        GenerationOptions(num_beams=num_beams, max_new_tokens=max_new_tokens)
        for num_beams, max_new_tokens in itertools.product(
            _numbers("num_beams", parsed.num_beams),
            _numbers("max_new_tokens", parsed.max_new_tokens) or [default],
        )
    ]
    batch_sizes = _numbers("batch_sizes", parsed.batch_sizes)
    if wrong := sorted(set(batch_sizes) - set(BATCH_SIZES)):
        raise InvalidRequest(f"batch_sizes can be 1, 2, 4 and 8, not {wrong[0]}.")
    if is_speech and batch_sizes != [1]:
        raise InvalidRequest("Recordings run one at a time: leave batch_sizes out.")
    if open_store(parsed.store) is None:
        raise InvalidRequest(
            f"There is no store to fill. Name a folder that can be written with --store or in "
            f"{FOLDER_VARIABLE}."
        )
    backend = _open_backend(parsed)
    keys = _keys(backend, parsed.model, lengths, options)
    from tqdm import tqdm

    # Silent unless someone watches; the lines on stdout are for the rest.
    total = len(keys) * len(batch_sizes)
    with tqdm(total=total, unit="function", file=sys.stderr, disable=None) as bar:

        def tell(size: int, key: CacheKey, outcome: CacheOutcome, seconds: float) -> None:
            of = f"{key} for {size} requests" if size > 1 else str(key)
            line = f"{outcome.value.upper()} · {of} · {seconds:.3f} s"
            if parsed.json:
                values = {"key": key.to_dict(), "batch_size": size, "cache": outcome.value}
                line = json.dumps({"model": parsed.model, **values, "total_s": seconds})
            bar.clear()
            print(line, file=out, flush=True)
            bar.update()

        for size in batch_sizes:
            backend.warm(parsed.model, keys, partial(tell, size), size)
    backend.close()
    return OK


def _numbers(name: str, text: str | None) -> list[int]:
    """A list as the command line takes it; empty if it was not given.

    Raises:
        InvalidRequest: it is none.
    """
    try:
        return [] if text is None else [int(word) for word in text.split(",")]
    except ValueError:
        raise InvalidRequest(
            f"{name} must be whole numbers with commas between them, like 16,64, not {text!r}."
        ) from None


def _keys(
    backend: Backend, model: str, lengths: list[int], options: list[GenerationOptions]
) -> list[CacheKey]:
    """The keys that requests of these sizes ask for.

    Raises:
        InvalidRequest: no request can be as large.
    """
    info = backend.load(model)
    if info.family == "speech":
        if lengths:
            raise InvalidRequest(
                f"{model} hears windows of one length: there are no padded_lengths to choose."
            )
        return list(dict.fromkeys(backend.key_for(model, 1, one) for one in options))
    context = info.context_length
    keys = []
    for length, one in itertools.product(lengths or [1], options):
        most = UNBOUNDED_PROMPT_TOKENS if context is None else context
        if length > most:
            raise InvalidRequest(
                f"padded_lengths must be at most {most} for {model}, not {length}."
            )
        key = backend.key_for(model, length, one)
        shortest = length  # that asks for this key
        while shortest > 1 and backend.key_for(model, shortest - 1, one) == key:
            shortest -= 1
        if context is not None and shortest + one.max_new_tokens > context:
            raise InvalidRequest(
                f"No request can ask for {key}: the context of {model} is {context} tokens, "
                "prompt and new ones together."
            )
        keys.append(key)
    return list(dict.fromkeys(keys))


def _open_backend(parsed: argparse.Namespace) -> Backend:
    """An engine with the model loaded.

    Raises:
        ModelUnavailable: it cannot be.
    """
    registry = Registry()
    registry.locate(parsed.model)  # a wrong name is told before the seconds that TensorFlow takes
    quiet = contextlib.nullcontext() if parsed.verbose else native_noise_held_back()
    with quiet:
        import_engine()
        from xla_backend.backend import Backend
    backend = Backend(registry, store=parsed.store)
    backend.load(parsed.model)
    return backend


def models(parsed: argparse.Namespace, out: IO[str]) -> int:
    """Lists what can be loaded."""
    for info in Registry().list():
        line = json.dumps(dataclasses.asdict(info)) if parsed.json else _describe_model(info)
        print(line, file=out, flush=True)
    return OK


class _Parser(argparse.ArgumentParser):
    """Says `error: ...` as every other complaint of this command line does."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(REQUEST_FAULT, f"error: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m xla_backend", description=__doc__.partition(":")[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser(
        "generate", help="continue prompts, one after the other", allow_abbrev=False
    )
    command.set_defaults(run=generate)
    command.add_argument("prompts", nargs="+", metavar="PROMPT")
    _add_model_and_options(command, DEFAULT_MODEL, OPTIONS)
    command.add_argument(
        "--exact-key",
        action="store_true",
        help="never run on a larger compiled function: show the cold call",
    )
    _add_store_flags(command)
    _add_output_flags(command)

    command = commands.add_parser(
        "transcribe", help="write down recordings, one after the other", allow_abbrev=False
    )
    command.set_defaults(run=transcribe)
    command.add_argument("files", nargs="+", metavar="FILE")
    _add_model_and_options(
        command,
        DEFAULT_SPEECH_MODEL,
        OPTIONS | {"max_new_tokens": ("N", "most tokens a window, 1 to 1024 (default: 224)")},
    )
    command.add_argument(
        "--language",
        metavar="L",
        help='what is spoken, as "de" or "German" (default: the model hears it)',
    )
    _add_store_flags(command)
    _add_output_flags(command)

    command = commands.add_parser(
        "warm", help="compile ahead of the first request, into the store", allow_abbrev=False
    )
    command.set_defaults(run=warm)
    _add_model(command, DEFAULT_MODEL)
    for flag, default, text in (
        ("--padded-lengths", None, "prompt lengths in tokens, rounded up as prompts are"),
        ("--num-beams", "1", "numbers of beams (default: 1)"),
        ("--max-new-tokens", None, "numbers of new tokens, rounded up likewise"),
        ("--batch-sizes", "1", "how many requests run at once: of 1, 2, 4, 8 (default: 1)"),
    ):
        command.add_argument(flag, default=default, metavar="N,N,...", help=text)
    _add_store_flags(command, may_be_off=False)
    _add_output_flags(command)

    command = commands.add_parser("models", help="list the models", allow_abbrev=False)
    command.set_defaults(run=models)
    _add_output_flags(command)
    return parser


def _add_model_and_options(
    command: argparse.ArgumentParser, model: str, options: dict[str, tuple[str, str]]
) -> None:
    _add_model(command, model)
    for name, (placeholder, text) in options.items():
        # Kept as text: numbers are checked by GenerationOptions, whose sentences say more.
        command.add_argument(f"--{name.replace('_', '-')}", metavar=placeholder, help=text)
    command.add_argument(
        "--early-stopping",
        nargs="?",
        metavar="=never",
        help="beams: stop as soon as enough texts are finished; with =never, only when no "
        "better one is possible",
    )


def _add_model(command: argparse.ArgumentParser, default: str) -> None:
    command.add_argument(
        "--model",
        default=default,
        metavar="NAME",
        help="a name that `models` lists, or a folder (default: %(default)s)",
    )


def _add_store_flags(command: argparse.ArgumentParser, may_be_off: bool = True) -> None:
    either = command.add_mutually_exclusive_group()
    either.add_argument(
        "--store",
        metavar="FOLDER",
        help=f"keeps compiled functions (default: ${FOLDER_VARIABLE}, or the user's cache)",
    )
    if may_be_off:
        either.add_argument(
            "--no-store",
            dest="store",
            action="store_const",
            const="off",
            help="compile anew, keep nothing",
        )


def _add_output_flags(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="one JSON object a line on stdout")
    command.add_argument("--verbose", action="store_true", help="show what the libraries log")


def _spell_out(arguments: Sequence[str]) -> list[str]:
    """Gives a bare --early-stopping its value, so that it cannot take the next word for it."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    flag = "--early-stopping"
    return [f"{flag}=true" if word == flag else word for word in arguments[:end]] + list(
        arguments[end:]
    )


def _options(parsed: argparse.Namespace, **defaults: int) -> GenerationOptions:
    """The options that were given, and for others the defaults.

    Raises:
        InvalidRequest: one is of the wrong type or out of range.
    """
    values: dict[str, Any] = defaults | {
        name: _number(getattr(parsed, name))
        for name in OPTIONS
        if getattr(parsed, name) is not None
    }
    if parsed.early_stopping is not None:
        values["early_stopping"] = {"true": True, "false": False}.get(
            parsed.early_stopping, parsed.early_stopping
        )
    return GenerationOptions.from_dict(values)


def _number(text: str) -> int | float | str:
    """A number if it is one; else the text, for the message that will name it."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


@contextlib.contextmanager
def _results_only() -> Iterator[IO[str]]:
    """Keeps stdout for results: what any library prints there goes to stderr instead."""
    sys.stdout.flush()
    results = os.dup(1)
    os.dup2(2, 1)
    out = os.fdopen(results, "w", encoding=sys.stdout.encoding, errors="backslashreplace")
    try:
        yield out
    finally:
        with contextlib.suppress(BrokenPipeError):
            out.close()


def _complain(error: BackendError) -> int:
    print(f"error: {error}", file=sys.stderr, flush=True)
    return REQUEST_FAULT


def _describe_result(result: GenerationResult) -> str:
    seconds = result.timing.to_dict()
    phases = ", ".join(
        f"{phase.replace('_', ' ')} {seconds[f'{phase}_s']:.3f}"
        for phase in PHASES
        if seconds[f"{phase}_s"] >= 0.0005
    )
    parts = [
        result.cache.value.upper(),
        str(result.key),
        _describe_sizes(result),
        f"{result.timing.total_s:.3f} s ({phases})",
    ]
    if result.tokens_per_second is not None:
        parts.append(f"{result.tokens_per_second:.0f} tokens/s")
    if result.speedup is not None:
        parts.append(f"{result.speedup:.0f} times faster than its first call")
    return f"{result.text}\n[{' · '.join(parts)}]"


def _describe_sizes(result: GenerationResult) -> str:
    if isinstance(result, Transcription):
        windows = len(result.windows)
        return (
            f"{result.audio_s:.1f} s of sound in {windows} window{'s' * (windows != 1)}, "
            f"{1 / result.real_time_factor:.1f} times real time"
        )
    return f"{result.prompt_tokens} + {result.new_tokens} tokens"


def _describe_model(info: ModelInfo) -> str:
    return f"{info.name}  [{info.family}, {info.source}]  {info.description}"


if __name__ == "__main__":
    sys.exit(main())
