"""The command line: `python -m xla_backend generate PROMPT ...`, `decide TEXT`,
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
from xla_backend.interface.results import CacheOutcome, GenerationResult, ModelInfo
from xla_backend.interface.timing import PHASES, RESTORING
from xla_backend.prediction.vocabulary import Vocabulary
from xla_backend.rows.scheduler import ROW_COUNTS

if TYPE_CHECKING:
    from xla_backend.engine.backend import Backend

OK, REQUEST_FAULT, INTERRUPTED = 0, 2, 130

_NO_STORE_TO_FILL = (
    "There is no store to fill. Name a folder that can be written with --store or in "
    f"{FOLDER_VARIABLE}."
)


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
            return parsed.run(parsed, out) or OK
        except BackendError as error:
            return _print_error(error)
        except KeyboardInterrupt:
            return INTERRUPTED
        except BrokenPipeError:  # `| head` has read enough
            return OK


def generate(parsed: argparse.Namespace, out: IO[str]) -> int:
    """Generates a text for each prompt, one after the other."""
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
        return backend.generate(parsed.model, prompt, own, mode=mode)

    return _answer_all(parsed, out, parsed.prompts, answer)


def decide(parsed: argparse.Namespace, out: IO[str]) -> int:
    """Answers questions about a text with probabilities."""
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
    """Transcribes the recordings, one after the other."""
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


def warm(parsed: argparse.Namespace, out: IO[str]) -> None:
    """Compiles all combinations of the sizes into the store."""
    is_speech = _registry(parsed).locate(parsed.model).info.family == "speech"
    lengths = _numbers("padded_lengths", parsed.padded_lengths)
    if any(length < 1 for length in lengths):
        raise InvalidRequest(f"padded_lengths must be at least 1, not {min(lengths)}.")
    default = WINDOW_TOKENS if is_speech else DEFAULT_OPTIONS.max_new_tokens
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
    work = [(key, 1) for key in _keys(backend, parsed.model, lengths, options)]
    if pool_rows:
        if (pooled := backend.pool_key(parsed.model)) is None:
            raise InvalidRequest(f"{parsed.model} has no pool: leave pool_rows out.")
        work += [(pooled, rows) for rows in pool_rows]

    def report(key: CacheKey, outcome: CacheOutcome, seconds: float) -> None:
        of = f"{key} for {rows} rows" if rows > 1 else str(key)
        line = f"{outcome.value.upper()} · {of} · {seconds:.3f} s"
        if parsed.json:
            values = {"key": key.to_dict(), "rows": rows, "cache": outcome.value}
            line = json.dumps({"model": parsed.model, **values, "total_s": seconds})
        print(line, file=out, flush=True)

    for key, rows in work:
        backend.warm(parsed.model, [key], report, rows)
    backend.close()


def inspect(parsed: argparse.Namespace, out: IO[str]) -> None:
    """Inspects the compiled functions of a key; compiles them first if the store has none."""
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


def models(parsed: argparse.Namespace, out: IO[str]) -> None:
    """Lists the models."""
    for info in Registry().list():
        line = json.dumps(dataclasses.asdict(info)) if parsed.json else _describe_model(info)
        print(line, file=out, flush=True)


def install_baseline(parsed: argparse.Namespace, out: IO[str]) -> None:
    """Installs the baseline overlay, unless it is installed."""
    del parsed
    for progress in () if overlay.is_installed() else overlay.install():
        print(f"{progress.step} · {progress.elapsed_s:.0f} s", file=sys.stderr, flush=True)
    print(f"The baseline is in {overlay.folder()}", file=out)


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
    if info.family == "speech" and lengths:
        raise InvalidRequest(f"{model} has windows of one length: leave padded_lengths out.")
    context = None if info.family == "speech" else info.context_length
    most = context or UNBOUNDED_PROMPT_TOKENS
    keys = []
    for length, one in itertools.product(lengths or [1], options):
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


class _Parser(argparse.ArgumentParser):
    """Prints `error: ...`, like the other errors of this command line."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(REQUEST_FAULT, f"error: {message}\n")


# As text: GenerationOptions checks the numbers, with better messages.
_FORMS: dict[str, dict[str, Any]] = {
    "early_stopping": {"metavar": "=never", "nargs": "?"},
    "logit_bias": {"metavar": "ID=B", "action": "append"},
    "stop": {"metavar": "TEXT", "action": "append"},
    "stop_token_ids": {"metavar": "ID", "action": "append"},
    "include_stop_str_in_output": {"action": "store_true"},
    "ignore_eos": {"action": "store_true"},
    "exact_key": {"action": "store_true"},
}
"""The forms of options that are not numbers."""
_NOT_OF_SPEECH = (
    *("stop", "stop_token_ids", "include_stop_str_in_output"),
    *("min_new_tokens", "ignore_eos"),
)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m xla_backend", description=__doc__.partition(":")[0])
    parser.add_argument("--version", action="version", version=f"xla_backend {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    new = _command(commands, generate, "continue prompts, one after the other", DEFAULT_MODEL)
    new.add_argument("prompts", metavar="PROMPT", nargs="+")
    _add_switch(new, "--chat", "each prompt is a message that an instruct model answers")
    _add(new, "--system", "TEXT", "the system prompt, with --chat", default="")
    _add_options(new, DEFAULT_OPTIONS.max_new_tokens)
    _add(new, "--json-schema", "FILE", "the text is valid JSON of the schema in this file")
    _add_switch(new, "--json-object", "the text is a JSON object")
    _add(new, "--regex", "PATTERN", "the text matches this regular expression")
    _add(new, "--choice", "TEXT", "the text is this, or another --choice", action="append")

    about = "answer questions about a text with probabilities; generate nothing"
    new = _command(commands, decide, about, PACKAGED_MODEL)
    new.add_argument("text", metavar="TEXT")
    _add(new, "--yes-no", "QUESTION", "a question; can be given again", action="append")
    example = 'questions as JSON: {"tone": {"type": "choice", "criteria": ["calm", "x"]}}'
    _add(new, "--questions", "FILE", example)

    about = "transcribe recordings, one after the other"
    new = _command(commands, transcribe, about, PACKAGED_SPEECH_MODEL)
    new.add_argument("files", metavar="FILE", nargs="+")
    _add_options(new, WINDOW_TOKENS, " per window", _NOT_OF_SPEECH)
    _add(new, "--language", "L", 'the language, as "de" or "German" (default: detected)')

    about = "compile into the store, before the first request"
    new = _command(commands, warm, about, DEFAULT_MODEL)
    for flag, default, text in (
        ("--padded-lengths", None, "prompt lengths in tokens, rounded up as in requests"),
        ("--num-beams", "1", "numbers of beams (default: 1)"),
        ("--max-new-tokens", None, "numbers of new tokens, rounded up as in requests"),
        ("--pool-rows", None, "numbers of rows of the pool, 1 to 16"),
    ):
        _add(new, flag, "N,N,...", text, default=default)

    about = "show what XLA made of a function: kernels, FLOPs, bytes, where a token's time goes"
    new = _command(commands, inspect, about, DEFAULT_MODEL)
    for flag, slots, text in (
        ("--padded-length", 16, "slots of the prompt"),
        ("--num-beams", 1, "beams"),
        ("--max-new-tokens", 32, "slots of new tokens"),
    ):
        _add(new, flag, "N", f"{text} (default: {slots})", default=slots, type=int)
    about = "also run a token with XLA's profiler, and measure this machine"
    _add_switch(new, "--measure", about)
    _add_switch(new, "--passes", "also list what each XLA pass changed (diffs with --json)")

    _command(commands, models, "list the models")
    about = "install Transformers' TensorFlow models, which Compare runs beside this engine"
    _command(commands, install_baseline, about, name="baseline")
    return parser


def _command(
    commands: Any, run: Callable[..., int | None], text: str, model: str = "", name: str = ""
) -> argparse.ArgumentParser:
    """A command, with the flags that all have in common; those of a model if it has a default."""
    command = commands.add_parser(name or run.__name__, help=text, allow_abbrev=False)
    command.set_defaults(run=run, verbose=False)
    if not name:
        _add_switch(command, "--json", "one JSON object per line on stdout")
        _add_switch(command, "--verbose", "show the log of the libraries")
    if not model:
        return command
    of = "a name that `models` lists, or a folder (default: %(default)s)"
    _add(command, "--model", "NAME", of, default=model)
    for flag, about, variable in (
        (
            "--weights",
            "format of weights in memory: auto (as stored), float32, bfloat16, int8",
            f"${kinds.VARIABLE}, or auto",
        ),
        (
            "--activations",
            "exact, or int8: faster with GGUF and int8 weights, changes some tokens",
            f"${kinds.ACTIVATIONS_VARIABLE}, or exact",
        ),
        ("--kernels", "own, xla or auto: own where it can run", f"${kinds.KERNELS_VARIABLE}, auto"),
    ):
        _add(command, flag, "KIND", f"{about} (default: {variable})")
    store = command.add_mutually_exclusive_group()
    saved = f"folder of compiled functions (default: ${FOLDER_VARIABLE}, or the user's cache)"
    store.add_argument("--store", metavar="FOLDER", help=saved)
    if run is not warm:
        about = "compile again, save nothing"
        store.add_argument(
            "--no-store", dest="store", action="store_const", const="off", help=about
        )
    return command


def _add(command: argparse.ArgumentParser, flag: str, metavar: str, text: str, **more: Any) -> None:
    command.add_argument(flag, metavar=metavar, help=text, **more)


def _add_switch(command: argparse.ArgumentParser, flag: str, text: str) -> None:
    command.add_argument(flag, action="store_true", help=text)


def _add_options(
    command: argparse.ArgumentParser, new_tokens: int, of: str = "", without: Sequence[str] = ()
) -> None:
    """Adds the options of `GenerationOptions`, but for grammars, which are given by their kind."""
    defaults = DEFAULT_OPTIONS.replace(max_new_tokens=new_tokens)
    for name, option in OPTIONS.items():
        flag = f"--{name.replace('_', '-')}"
        if name == "grammar" or name in without:
            continue
        if name in _FORMS:
            command.add_argument(flag, help=option.help, **_FORMS[name])
            continue
        what = f"{option.help}{of * (name == 'max_new_tokens')}"
        default = f"{getattr(defaults, name):g}"
        default += ", for messages what the makers of the model recommend" * (name in RECOMMENDED)
        _add(command, flag, "N", f"{what} ({option.range}; default: {default})")


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
    """A result for people; `--json` has all of it."""
    seconds = result.timing.to_dict()
    names = RESTORING if result.cache is CacheOutcome.DISK else {}
    phases = ", ".join(
        f"{names.get(phase, phase).lower()} {seconds[f'{phase}_s']:.3f}"
        for phase in PHASES
        if seconds[f"{phase}_s"] >= 0.0005
    )
    about = [result.cache.value.upper(), str(result.key)]
    about.append(f"{result.prompt_tokens} + {result.new_tokens} tokens")
    about.append(f"{result.timing.total_s:.3f} s ({phases})")
    if result.tokens_per_second is not None:
        about.append(f"{result.tokens_per_second:.0f} tokens/s")
    if result.speedup is not None:
        about.append(f"{result.speedup:.0f} times faster to the first token than its first call")
    lines = [result.text]
    if isinstance(result, Decisions):
        lines = [
            f"{each.question.name}: "
            + ", ".join(f"{answer} {p:.3f}" for answer, p in each.probabilities.items())
            for each in result.decisions
        ]
    return "\n".join([*lines, f"[{' · '.join(about)}]"])


def _describe_model(info: ModelInfo) -> str:
    size = f", {info.download_bytes / 1e9:.2f} GB" if info.download_bytes else ""
    place = "on this computer" if info.on_disk else f"to download{size}"
    about = [info.family, info.source, place]
    about += [f"license {info.license}"] if info.license else []
    about += [f"context {info.context_length}"] if info.context_length else []
    return f"{info.name}  [{', '.join(about)}]  {info.description}"


if __name__ == "__main__":
    sys.exit(main())
