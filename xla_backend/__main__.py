"""The command line: `python -m xla_backend generate PROMPT ...`, `chat`, `decide TEXT`,
`transcribe FILE ...`, `warm`, `inspect`, `models`, `baseline`.

Knows arguments, output and exit statuses. Results go to stdout, everything else to stderr. Exit
status: 0 if all requests succeeded, 2 if a request was wrong (the others are still served), 1 if
this program failed.
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
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, NoReturn

from xla_backend import __version__
from xla_backend.baselines import overlay
from xla_backend.checkpoints import kinds
from xla_backend.checkpoints.models import (
    DEFAULT_MODEL,
    PACKAGED_MODEL,
    PACKAGED_SPEECH_MODEL,
    RECOMMENDED,
    Registry,
)
from xla_backend.checkpoints.prompts import UNBOUNDED_PROMPT_TOKENS
from xla_backend.compilation.startup import (
    captured_native_stderr,
    prepare_environment,
    retain_freed_memory,
)
from xla_backend.compilation.store import FOLDER_VARIABLE, chosen_folder, open_store
from xla_backend.engine.importing import import_engine
from xla_backend.inspection import table
from xla_backend.inspection.inspector import Inspector
from xla_backend.interface.buckets import CacheKey
from xla_backend.interface.decisions import Decisions, Question
from xla_backend.interface.errors import BackendError, InvalidRequest
from xla_backend.interface.grammar import KINDS, Grammar
from xla_backend.interface.options import (
    DEFAULT_OPTIONS,
    OPTIONS,
    WINDOW_TOKENS,
    GenerationOptions,
)
from xla_backend.interface.prompt import Prompt, question
from xla_backend.interface.results import CacheOutcome, GenerationResult, ModelInfo, Transcription
from xla_backend.interface.timing import PHASES, RESTORING
from xla_backend.prediction.vocabulary import Vocabulary
from xla_backend.rows.scheduler import ROW_COUNTS
from xla_backend.terminal_chat import TerminalChat

if TYPE_CHECKING:
    from xla_backend.engine.backend import Backend

OK, PROGRAM_FAULT, REQUEST_FAULT, INTERRUPTED = 0, 1, 2, 130

_NO_STORE_TO_FILL = (
    "There is no store to fill. Name a folder that can be written with --store or in "
    f"{FOLDER_VARIABLE}."
)

CHAT_TOKENS = 256
"""Default bound on the tokens of an answer."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    parsed = _parser().parse_args(_expanded(sys.argv[1:] if arguments is None else arguments))
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if parsed.verbose else logging.WARNING,
        format="%(levelname)s %(name)s: %(message)s",
    )
    prepare_environment(quiet=not parsed.verbose)
    retain_freed_memory()
    with _results_only() as out:
        try:
            return parsed.run(parsed, out)
        except BackendError as error:
            return _print_error(error)
        except KeyboardInterrupt:
            return INTERRUPTED
        except BrokenPipeError:  # `| head` has read enough
            return OK


def generate(parsed: argparse.Namespace, out: IO[str]) -> int:
    """Generates a text for each prompt, one after the other.

    Raises:
        BackendError: the options or the model are wrong, so no prompt can be served.
    """
    options = _options(parsed)  # errors show before the engine starts
    if parsed.system and not parsed.chat:
        raise InvalidRequest("--system is for messages: add --chat.")

    def answer(backend: Backend, text: str) -> GenerationResult:
        own = options
        prompt: Prompt = text
        if parsed.chat:
            own = _options(parsed, backend.load(parsed.model).sampling)
            prompt = question(text, parsed.system)
        mode = None if own.needs_rows else "padded"
        return backend.generate(parsed.model, prompt, own, mode=mode, exact_key=parsed.exact_key)

    return _answer_all(parsed, out, parsed.prompts, answer)


def chat(parsed: argparse.Namespace, out: IO[str]) -> int:
    """Talks with a model until the end of the input.

    Raises:
        BackendError: the options or the model are wrong.
    """
    _options(parsed)  # errors show before the engine starts
    backend = _open_backend(parsed)
    info = backend.load(parsed.model)
    if not info.is_instruct:
        raise InvalidRequest(
            f"{parsed.model} has no chat template, so it cannot answer messages. Choose an "
            "instruct model; `models` lists them."
        )
    options = _options(parsed, info.sampling, max_new_tokens=CHAT_TOKENS)
    TerminalChat(backend, info, options, parsed.system, out).run()
    backend.close()
    return OK


def decide(parsed: argparse.Namespace, out: IO[str]) -> int:
    """Answers questions about a text with probabilities.

    Raises:
        BackendError: a question or the model is wrong.
    """
    yes_no = parsed.yes_no or ([] if parsed.questions else [""])
    if not all(map(str.strip, yes_no)):
        raise InvalidRequest("ask a question: --yes-no 'Is it spam?', or --questions FILE.")
    values: Any = {}
    if parsed.questions is not None:
        try:
            values = json.loads(_read("questions", parsed.questions))
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(
                f"the questions {parsed.questions} are not JSON: {error}."
            ) from error
    if isinstance(values, dict):
        values |= {each: {"type": "yes_no", "instructions": each} for each in yes_no}
    questions = Question.all_of(values)
    return _answer_all(
        parsed,
        out,
        [parsed.text],
        lambda backend, text: backend.decide(parsed.model, text, questions),
    )


def transcribe(parsed: argparse.Namespace, out: IO[str]) -> int:
    """Transcribes the recordings, one after the other.

    Raises:
        BackendError: the options or the model are wrong, so no recording can be served.
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
    """Prints all results; a failed request does not stop the others."""
    backend = _open_backend(parsed)
    status = OK
    for request in requests:
        try:
            result = answer(backend, request)
        except BackendError as error:
            status = _print_error(error)
            continue
        line = json.dumps(result.to_json()) if parsed.json else _describe_result(result)
        print(line, file=out, flush=True)
    backend.close()
    return status


def warm(parsed: argparse.Namespace, out: IO[str]) -> int:
    """Compiles all combinations of the sizes into the store.

    Raises:
        BackendError: the sizes or the model are wrong, or there is no store to fill.
    """
    is_speech = _registry(parsed).locate(parsed.model).info.family == "speech"
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
    pool_rows = _numbers("pool_rows", parsed.pool_rows)
    if wrong := sorted(set(pool_rows) - set(ROW_COUNTS)):
        raise InvalidRequest(f"pool_rows can be {', '.join(map(str, ROW_COUNTS))}, not {wrong[0]}.")
    if open_store(parsed.store) is None:
        raise InvalidRequest(_NO_STORE_TO_FILL)
    backend = _open_backend(parsed)
    keys = _keys(backend, parsed.model, lengths, options)
    pooled = backend.pool_key(parsed.model) if pool_rows else None
    if pool_rows and pooled is None:
        raise InvalidRequest(f"{parsed.model} has no pool: leave pool_rows out.")
    from tqdm import tqdm

    # A bar only on a terminal; programs read the lines on stdout.
    total = len(keys) + len(pool_rows)
    with tqdm(total=total, unit="function", file=sys.stderr, disable=None) as bar:

        def report(rows: int, key: CacheKey, outcome: CacheOutcome, seconds: float) -> None:
            of = f"{key} for {rows} rows" if rows > 1 else str(key)
            line = f"{outcome.value.upper()} · {of} · {seconds:.3f} s"
            if parsed.json:
                values = {"key": key.to_dict(), "rows": rows, "cache": outcome.value}
                line = json.dumps({"model": parsed.model, **values, "total_s": seconds})
            bar.clear()
            print(line, file=out, flush=True)
            bar.update()

        backend.warm(parsed.model, keys, partial(report, 1))
        for rows in pool_rows:
            assert pooled is not None, "it was checked"
            backend.warm(parsed.model, [pooled], partial(report, rows), rows)
    backend.close()
    return OK


def inspect(parsed: argparse.Namespace, out: IO[str]) -> int:
    """Inspects the compiled functions of a key; compiles them first if the store has none.

    Raises:
        BackendError: the sizes or the model are wrong, or there is no store.
    """
    sizes = [parsed.padded_length, parsed.num_beams, parsed.max_new_tokens]
    if min(sizes) < 1:
        raise InvalidRequest(f"sizes must be at least 1, not {min(sizes)}.")
    key = CacheKey(*sizes)
    registry = _registry(parsed)
    identity = Vocabulary.load(registry.locate(parsed.model)).identity
    with contextlib.ExitStack() as stack:
        folder = parsed.store
        if chosen_folder(folder) is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="xla-backend-inspect-"))
        if (store := open_store(folder)) is None:
            raise InvalidRequest(_NO_STORE_TO_FILL)
        inspector = Inspector(store, registry, gives_way=False)
        if key not in inspector.keys(identity):
            inspector.make(parsed.model, key)
        seen = inspector.inspect(parsed.model, identity, key)
        measured = inspector.measure(parsed.model, identity, key) if parsed.measure else None
        passes = inspector.passes(parsed.model, identity, key) if parsed.passes else []
    if parsed.json:
        values = {"prefill": seen.prefill.to_json(), "decode": seen.decode.to_json()}
        if measured:
            values["decode"]["measured"] = measured.to_json()
        if passes:
            values["decode"]["passes"] = list(map(dataclasses.asdict, passes))
        print(json.dumps(values), file=out)
    else:
        print("\n".join(table.lines(seen, measured, passes)), file=out)
    return OK


def _numbers(name: str, text: str | None) -> list[int]:
    """The numbers of a comma-separated list; none if it was not given.

    Raises:
        InvalidRequest: it is not such a list.
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
    """The cache keys of requests of these sizes.

    Raises:
        InvalidRequest: no request can be that large.
    """
    info = backend.load(model)
    if info.family == "speech":
        if lengths:
            raise InvalidRequest(f"{model} has windows of one length: leave padded_lengths out.")
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
        shortest = length  # the shortest prompt with this key
        while shortest > 1 and backend.key_for(model, shortest - 1, one) == key:
            shortest -= 1
        if context is not None and shortest + one.max_new_tokens > context:
            raise InvalidRequest(
                f"No request can have {key}: the context of {model} is {context} tokens, "
                "prompt and new ones together."
            )
        keys.append(key)
    return list(dict.fromkeys(keys))


def _registry(parsed: argparse.Namespace) -> Registry:
    return Registry(weights=parsed.weights, activations=parsed.activations, kernels=parsed.kernels)


def _open_backend(parsed: argparse.Namespace) -> Backend:
    """An engine with the model loaded.

    Raises:
        ModelUnavailable: it cannot be loaded.
    """
    registry = _registry(parsed)
    registry.locate(parsed.model)  # reports a wrong name before TensorFlow's slow import
    quiet = contextlib.nullcontext() if parsed.verbose else captured_native_stderr()
    with quiet:
        import_engine()
        from xla_backend.engine.backend import Backend
    backend = Backend(registry, store=parsed.store)
    backend.load(parsed.model)
    return backend


def models(parsed: argparse.Namespace, out: IO[str]) -> int:
    """Lists the models."""
    for info in Registry().list():
        line = json.dumps(dataclasses.asdict(info)) if parsed.json else _describe_model(info)
        print(line, file=out, flush=True)
    return OK


def install_baseline(parsed: argparse.Namespace, out: IO[str]) -> int:
    """Installs the baseline overlay, unless it is installed.

    Raises:
        BaselineMissing: it cannot be installed.
    """
    del parsed
    if not overlay.is_installed():
        for progress in overlay.install():
            line = f"{progress.step} · {progress.elapsed_s:.0f} s"
            print(f"\r{line:<50}", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
    print(f"The baseline is in {overlay.folder()}", file=out)
    return OK


class _Parser(argparse.ArgumentParser):
    """Prints `error: ...`, like the other errors of this command line."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(REQUEST_FAULT, f"error: {message}\n")


def _takes(metavar: str, text: str | None = None, **more: Any) -> dict[str, Any]:
    return {"metavar": metavar, "help": text, **more}


def _switch(text: str) -> dict[str, Any]:
    return {"action": "store_true", "help": text}


_MODEL = _takes("NAME", "a name that `models` lists, or a folder (default: %(default)s)")
_LANGUAGE = _takes("L", 'the language, as "de" or "German" (default: detected)')
_SAVED = f"folder of compiled functions (default: ${FOLDER_VARIABLE}, or the user's cache)"
_STORE = {"--store": _takes("FOLDER", _SAVED)}
_NO_STORE = {"dest": "store", "action": "store_const", "const": "off"}
_ANY_STORE = _STORE | {"--no-store": _NO_STORE | {"help": "compile again, save nothing"}}
_WEIGHTS = {
    "--weights": _takes(
        "KIND",
        "format of weights in memory: auto (as stored), float32, bfloat16, int8 (default: "
        f"${kinds.VARIABLE}, or auto)",
    ),
    "--activations": _takes(
        "KIND",
        "exact, or int8: faster with GGUF and int8 weights, changes some tokens (default: "
        f"${kinds.ACTIVATIONS_VARIABLE}, or exact)",
    ),
    "--kernels": _takes(
        "KIND", f"own, xla or auto: own where it can run (default: ${kinds.KERNELS_VARIABLE}, auto)"
    ),
}
_OUTPUT = {
    "--json": _switch("one JSON object per line on stdout"),
    "--verbose": _switch("show the log of the libraries"),
}
# As text: GenerationOptions checks the numbers, with better messages.
_FORMS: dict[str, dict[str, Any]] = {
    "early_stopping": {"metavar": "=never", "nargs": "?"},
    "logit_bias": {"metavar": "ID=B", "action": "append"},
    "stop": {"metavar": "TEXT", "action": "append"},
    "stop_token_ids": {"metavar": "ID", "action": "append"},
    "include_stop_str_in_output": {"action": "store_true"},
    "ignore_eos": {"action": "store_true"},
}
"""The forms of options that are not numbers."""
_OPTIONS = {
    f"--{name.replace('_', '-')}": {"help": option.help} | _FORMS[name]
    if name in _FORMS
    else _takes(
        "N",
        f"{option.help} ({option.range}; default: {getattr(DEFAULT_OPTIONS, name):g}"
        f"{', for messages what the makers of the model recommend' * (name in RECOMMENDED)})",
    )
    for name, option in OPTIONS.items()
    if name != "grammar"  # given by its kind, below
}
_ENDS = (
    *("--stop", "--stop-token-ids", "--include-stop-str-in-output"),
    *("--min-new-tokens", "--ignore-eos"),
)
_GRAMMAR = {
    "--json-schema": _takes("FILE", "the text is valid JSON of the schema in this file"),
    "--json-object": _switch("the text is a JSON object"),
    "--regex": _takes("PATTERN", "the text matches this regular expression"),
    "--choice": _takes("TEXT", "the text is this, or another --choice", action="append"),
}


def _most_tokens(of: str, default: int) -> dict[str, dict[str, Any]]:
    text = f"maximum number of tokens {of} ({OPTIONS['max_new_tokens'].range}; default: {default})"
    return {"--max-new-tokens": _takes("N", text)}


_SYSTEM = "the system prompt"
COMMANDS: dict[str, tuple[Callable[..., int], str, dict[str, dict[str, Any]]]] = {
    "generate": (
        generate,
        "continue prompts, one after the other",
        {"prompts": _takes("PROMPT", nargs="+"), "--model": _MODEL | {"default": DEFAULT_MODEL}}
        | {
            "--chat": _switch("each prompt is a message that an instruct model answers"),
            "--system": _takes("TEXT", f"{_SYSTEM}, with --chat", default=""),
        }
        | _OPTIONS
        | _GRAMMAR
        | {"--exact-key": _switch("never reuse a larger compiled function")}
        | _WEIGHTS
        | _ANY_STORE
        | _OUTPUT,
    ),
    "chat": (
        chat,
        "chat with an instruct model",
        {
            "--model": _MODEL | {"default": PACKAGED_MODEL},
            "--system": _takes("TEXT", _SYSTEM, default=""),
        }
        | _OPTIONS
        | _most_tokens("per answer", CHAT_TOKENS)
        | _WEIGHTS
        | _ANY_STORE
        | {"--verbose": _OUTPUT["--verbose"]},
    ),
    "decide": (
        decide,
        "answer questions about a text with probabilities; generate nothing",
        {
            "text": _takes("TEXT"),
            "--model": _MODEL | {"default": PACKAGED_MODEL},
            "--yes-no": _takes("QUESTION", "a question; can be given again", action="append"),
            "--questions": _takes(
                "FILE", 'questions as JSON: {"tone": {"type": "choice", "criteria": ["calm", "x"]}}'
            ),
        }
        | _WEIGHTS
        | _ANY_STORE
        | _OUTPUT,
    ),
    "transcribe": (
        transcribe,
        "transcribe recordings, one after the other",
        {"files": _takes("FILE", nargs="+"), "--model": _MODEL | {"default": PACKAGED_SPEECH_MODEL}}
        | {flag: takes for flag, takes in _OPTIONS.items() if flag not in _ENDS}
        | _most_tokens("per window", WINDOW_TOKENS)
        | {"--language": _LANGUAGE}
        | _WEIGHTS
        | _ANY_STORE
        | _OUTPUT,
    ),
    "warm": (
        warm,
        "compile into the store, before the first request",
        {"--model": _MODEL | {"default": DEFAULT_MODEL}}
        | {
            flag: _takes("N,N,...", text, default=default)
            for flag, default, text in (
                ("--padded-lengths", None, "prompt lengths in tokens, rounded up as in requests"),
                ("--num-beams", "1", "numbers of beams (default: 1)"),
                ("--max-new-tokens", None, "numbers of new tokens, rounded up as in requests"),
                ("--pool-rows", None, "numbers of rows of the pool, 1 to 16"),
            )
        }
        | _WEIGHTS
        | _STORE
        | _OUTPUT,
    ),
    "inspect": (
        inspect,
        "show what XLA made of a function: kernels, FLOPs, bytes, where a token's time goes",
        {"--model": _MODEL | {"default": DEFAULT_MODEL}}
        | {
            "--padded-length": _takes(
                "N", "slots of the prompt (default: 16)", default=16, type=int
            ),
            "--num-beams": _takes("N", "beams (default: 1)", default=1, type=int),
            "--max-new-tokens": _takes(
                "N", "slots of new tokens (default: 32)", default=32, type=int
            ),
            "--measure": _switch("also run a token with XLA's profiler, and measure this machine"),
            "--passes": _switch("also list what each XLA pass changed (diffs with --json)"),
        }
        | _WEIGHTS
        | _ANY_STORE
        | _OUTPUT,
    ),
    "models": (models, "list the models", _OUTPUT),
    "baseline": (
        install_baseline,
        "install Transformers' TensorFlow models, which Compare runs beside this engine",
        {},
    ),
}
"""Each command's function, help, and arguments with argparse's keywords."""


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m xla_backend", description=__doc__.partition(":")[0])
    parser.add_argument("--version", action="version", version=f"xla_backend {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, (run, text, flags) in COMMANDS.items():
        command = commands.add_parser(name, help=text, allow_abbrev=False)
        command.set_defaults(run=run, verbose=False)
        store = command.add_mutually_exclusive_group() if "--store" in flags else command
        for flag, keywords in flags.items():
            (store if flag in _ANY_STORE else command).add_argument(flag, **keywords)
    return parser


def _expanded(arguments: Sequence[str]) -> list[str]:
    """Gives a bare --early-stopping a value, so that it does not take the next word as one."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    flag = "--early-stopping"
    return [f"{flag}=true" if word == flag else word for word in arguments[:end]] + list(
        arguments[end:]
    )


def _options(
    parsed: argparse.Namespace,
    sampling: Mapping[str, float] = MappingProxyType({}),
    **defaults: int,
) -> GenerationOptions:
    """The given options; defaults for the others.

    Args:
        parsed: the arguments.
        sampling: the model's defaults, used without beams.
        **defaults: instead of the options' own.

    Raises:
        InvalidRequest: one has a wrong type or is out of range.
    """
    values: dict[str, Any] = dict(defaults)
    for name, option in OPTIONS.items():
        if (given := getattr(parsed, name, None)) is not None:
            values[name] = _number(given) if option.range else given
    if isinstance(word := values.get("early_stopping"), str):
        values["early_stopping"] = {"true": True, "false": False}.get(word, word)
    if pairs := values.get("logit_bias"):
        split = (pair.partition("=") for pair in pairs)
        values["logit_bias"] = {token_id: _number(bias) for token_id, _, bias in split}
    if ids := values.get("stop_token_ids"):
        values["stop_token_ids"] = [*map(_number, ids)]
    if values.get("num_beams", 1) == 1:
        values = {**sampling, **values}
    return GenerationOptions.from_dict(values | {"grammar": _grammar(parsed)})


def _grammar(parsed: argparse.Namespace) -> Grammar | None:
    """The grammar of the text.

    Raises:
        InvalidRequest: there are several, or one is invalid.
    """
    forms = {
        name: value for name in KINDS if (value := getattr(parsed, name, None)) not in (None, False)
    }
    if len(forms) > 1:
        names = " and ".join(f"--{name.replace('_', '-')}" for name in forms)
        raise InvalidRequest(f"{names} each set a grammar: leave out all but one.")
    if (file := forms.get("json_schema")) is not None:
        forms["json_schema"] = _read("schema", file)
    return Grammar.of(forms or None)


def _read(what: str, file: str) -> str:
    """A file's text.

    Raises:
        InvalidRequest: it cannot be read.
    """
    try:
        return Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the {what} {file} cannot be read: {error}.") from error


def _number(text: str) -> int | float | str:
    """The number, or the text if it is not one, for the error message."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


@contextlib.contextmanager
def _results_only() -> Iterator[IO[str]]:
    """Reserves stdout for results: output of libraries goes to stderr."""
    sys.stdout.flush()
    results = os.dup(1)
    os.dup2(2, 1)
    out = os.fdopen(results, "w", encoding=sys.stdout.encoding, errors="backslashreplace")
    try:
        yield out
    finally:
        with contextlib.suppress(BrokenPipeError):
            out.close()


def _print_error(error: BackendError) -> int:
    print(f"error: {error}", file=sys.stderr, flush=True)
    return REQUEST_FAULT


def _describe_result(result: GenerationResult) -> str:
    seconds = result.timing.to_dict()
    names = RESTORING if result.cache is CacheOutcome.DISK else {}
    phases = ", ".join(
        f"{names.get(phase, phase).lower()} {seconds[f'{phase}_s']:.3f}"
        for phase in PHASES
        if seconds[f"{phase}_s"] >= 0.0005
    )
    about = [result.cache.value.upper(), str(result.key), _describe_sizes(result)]
    about.append(f"{result.timing.total_s:.3f} s ({phases})")
    for value, text in (
        (result.ttft_s, "TTFT {:.3f} s"),
        (result.tpot_s, "TPOT {:.4f} s"),
        (result.tokens_per_second, "{:.0f} tokens/s"),
        (result.tokens_per_pass, "{:.1f} tokens a pass"),
        (result.rounded_bits, "weights rounded to {} bits"),
        (None if result.activations == kinds.EXACT else result.activations, "activations {}"),
        (result.speedup, "{:.0f} times faster to the first token than its first call"),
    ):
        about += [] if value is None else [text.format(value)]
    text = _describe_decisions(result) if isinstance(result, Decisions) else result.text
    return f"{text}\n[{' · '.join(about)}]"


def _describe_decisions(result: Decisions) -> str:
    lines = []
    for decision in result.decisions:
        ranked = sorted(decision.probabilities.items(), key=lambda each: -each[1])
        found = ", ".join(f"{option} {probability:.3f}" for option, probability in ranked)
        lines.append(f"{decision.question.name}: {found}")
    return "\n".join(lines)


def _describe_sizes(result: GenerationResult) -> str:
    if isinstance(result, Transcription):
        windows = len(result.windows)
        return (
            f"{result.audio_s:.1f} s of sound in {windows} window{'s' * (windows != 1)}, "
            f"{1 / result.real_time_factor:.1f} times real time"
        )
    return f"{result.prompt_tokens} + {result.new_tokens} tokens"


def _describe_model(info: ModelInfo) -> str:
    size = f", {info.download_bytes / 1e9:.2f} GB" if info.download_bytes else ""
    place = "on this computer" if info.on_disk else f"to download{size}"
    about = [info.family, info.source, place]
    about += [f"license {info.license}"] if info.license else []
    about += [f"context {info.context_length}"] if info.context_length else []
    return f"{info.name}  [{', '.join(about)}]  {info.description}"


if __name__ == "__main__":
    sys.exit(main())
