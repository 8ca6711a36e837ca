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
from typing import IO, TYPE_CHECKING, Any

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
from xla_backend.checkpoints.text_files import read_text
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
    parsed = _parser().parse_args(arguments)
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
    values = _from_json("questions", parsed.questions) if parsed.questions else {}
    if isinstance(values, dict):
        values |= {each: {"type": "yes_no", "instructions": each} for each in parsed.yes_no or ()}
    questions = Question.all_of(values)
    return _answer_all(
        parsed,
        out,
        [parsed.text],
        lambda backend, text: backend.decide(parsed.model, text, questions),
    )


def transcribe(parsed: argparse.Namespace, out: IO[str]) -> int:
    """Transcribes the recordings, one after the other."""
    options = _options(parsed)
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
    info = _registry(parsed).locate(parsed.model).info
    is_speech, lengths = info.family == "speech", parsed.padded_lengths or [1]
    if is_speech and parsed.padded_lengths:
        raise InvalidRequest(f"{info.name} has windows of one length: leave padded_lengths out.")
    most = info.context_length or UNBOUNDED_PROMPT_TOKENS
    if not 1 <= min(lengths) <= max(lengths) <= most:
        raise InvalidRequest(f"padded_lengths must be from 1 to {most} for {info.name}.")
    if wrong := sorted(set(parsed.pool_rows) - set(ROW_COUNTS)):
        raise InvalidRequest(f"pool_rows can be {', '.join(map(str, ROW_COUNTS))}, not {wrong[0]}.")
    default = WINDOW_TOKENS if is_speech else DEFAULT_OPTIONS.max_new_tokens
    sizes = itertools.product(parsed.num_beams, parsed.max_new_tokens or [default])
    options = [GenerationOptions(num_beams=beams, max_new_tokens=new) for beams, new in sizes]
    if open_store(parsed.store) is None:
        raise InvalidRequest(_NO_STORE_TO_FILL)
    backend = _open_backend(parsed)
    pairs = itertools.product(lengths, options)
    keys = dict.fromkeys(backend.key_for(parsed.model, length, one) for length, one in pairs)
    work = [(key, 1) for key in keys]
    if parsed.pool_rows:
        if (pooled := backend.pool_key(parsed.model)) is None:
            raise InvalidRequest(f"{parsed.model} has no pool: leave pool_rows out.")
        work += [(pooled, rows) for rows in parsed.pool_rows]

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


def _numbers(text: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"needs whole numbers with commas between them, like 16,64, not {text!r}"
        ) from None


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


def _number(text: str) -> int | float | str:
    """The number, or the text if it is not one: `GenerationOptions` has better messages."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def _bias(text: str) -> tuple[str, int | float | str]:
    token_id, _, bias = text.partition("=")
    return token_id, _number(bias)


_FORMS: dict[str, dict[str, Any]] = {
    "early_stopping": {
        "metavar": "true|false|never",
        "type": lambda word: {"true": True, "false": False}.get(word, word),
    },
    "logit_bias": {"metavar": "ID=B", "action": "append", "type": _bias},
    "stop": {"metavar": "TEXT", "action": "append"},
    "stop_token_ids": {"metavar": "ID", "action": "append", "type": _number},
    "include_stop_str_in_output": {"action": "store_true", "default": None},
    "ignore_eos": {"action": "store_true", "default": None},
    "exact_key": {"action": "store_true", "default": None},
}
"""The forms of options that are not numbers."""
_NOT_OF_SPEECH = (
    *("stop", "stop_token_ids", "include_stop_str_in_output"),
    *("min_new_tokens", "ignore_eos"),
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m xla_backend", description=__doc__.partition(":")[0])
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
        ("--padded-lengths", [], "prompt lengths in tokens, rounded up as in requests"),
        ("--num-beams", [1], "numbers of beams (default: 1)"),
        ("--max-new-tokens", [], "numbers of new tokens, rounded up as in requests"),
        ("--pool-rows", [], "numbers of rows of the pool, 1 to 16"),
    ):
        _add(new, flag, "N,N,...", text, default=default, type=_numbers)

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
    about = "a name that `models` lists, or a folder (default: %(default)s)"
    _add(command, "--model", "NAME", about, default=model)
    about = "format of weights in memory: auto (as stored), float32, bfloat16, int8"
    _add(command, "--weights", "KIND", f"{about} (default: ${kinds.VARIABLE}, or auto)")
    about = "exact, or int8: faster with GGUF and int8 weights, changes some tokens"
    default = f"${kinds.ACTIVATIONS_VARIABLE}, or exact"
    _add(command, "--activations", "KIND", f"{about} (default: {default})")
    about = f"own, xla or auto: own where it can run (default: ${kinds.KERNELS_VARIABLE}, or auto)"
    _add(command, "--kernels", "KIND", about)
    about = (
        f"folder of compiled functions, or off (default: ${FOLDER_VARIABLE}, or the user's cache)"
    )
    _add(command, "--store", "FOLDER", about)
    return command


def _add(command: argparse.ArgumentParser, flag: str, metavar: str, text: str, **more: Any) -> None:
    command.add_argument(flag, metavar=metavar, help=text, **more)


def _add_switch(command: argparse.ArgumentParser, flag: str, text: str) -> None:
    command.add_argument(flag, action="store_true", help=text)


def _add_options(
    command: argparse.ArgumentParser, new_tokens: int, of: str = "", without: Sequence[str] = ()
) -> None:
    """Adds the options of `GenerationOptions`, but for grammars, which are given by their kind."""
    for name, option in OPTIONS.items():
        if name == "grammar" or name in without:
            continue
        form = _FORMS.get(name)
        if form is None:
            default = f"{getattr(DEFAULT_OPTIONS, name):g}"
            default += ", for messages what the makers of the model recommend" * (
                name in RECOMMENDED
            )
            about = f"{option.help} ({option.range}; default: {default})"
            form = {"metavar": "N", "type": _number, "help": about}
        if name == "max_new_tokens":
            about = f"{option.help}{of} ({option.range}; default: {new_tokens})"
            form |= {"help": about, "default": new_tokens}
        command.add_argument(f"--{name.replace('_', '-')}", **{"help": option.help} | form)


def _options(
    parsed: argparse.Namespace, defaults: Mapping[str, float] = MappingProxyType({})
) -> GenerationOptions:
    """The given options; defaults for the others, which without beams may sample.

    Raises:
        InvalidRequest: one has a wrong type or is out of range, or there are several grammars.
    """
    named = vars(parsed)
    given = {name: named[name] for name in OPTIONS if named.get(name) is not None}
    if "logit_bias" in given:
        given["logit_bias"] = tuple(given["logit_bias"])
    forms = {kind: named[kind] for kind in KINDS if named.get(kind)}
    if len(forms) > 1:
        names = " and ".join(f"--{kind.replace('_', '-')}" for kind in forms)
        raise InvalidRequest(f"{names} each set a grammar: leave out all but one.")
    if "json_schema" in forms:
        forms["json_schema"] = _from_json("schema", forms["json_schema"])
    if given.get("num_beams", 1) == 1:
        given = {**defaults, **given}
    return GenerationOptions.from_dict(given | {"grammar": Grammar.of(forms or None)})


def _from_json(what: str, file: str) -> Any:
    """The value in a file.

    Raises:
        InvalidRequest: it cannot be read.
    """
    try:
        return json.loads(read_text(Path(file)))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"the {what} {file} cannot be read as JSON: {error}.") from error


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
