"""Whatever comes in, a right answer or one sentence goes out: every public entry, in this process.

Over the wire it is `tests/playground/server/test_any_request.py`. The same cases are tried at each
run, so that a failure is the change's; `make fuzz` tries others.
"""

import csv
import dataclasses
import io
import json
import math
import string
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from playground.context import draft
from playground.context.limits import Limits
from playground.context.runs import Shown
from playground.flags import LIMIT_FLAGS, flags_from
from playground.history import records, records_file
from playground.tabs.batch.prompts import MAX_PROMPTS, prompts_in, text_of_file
from playground.tabs.generate.token_view import visible
from playground.ui.csv_cells import csv_table, guarded, unguarded
from playground.ui.markup import clean, rendered
from playground.ui.option_controls import NAMES, options_from
from tests.playground.samples import INJECTIONS, result
from xla_backend import BackendError, GenerationOptions, InvalidRequest, ModelInfo
from xla_backend.__main__ import main as command_line
from xla_backend.checkpoints.audio import read
from xla_backend.checkpoints.models import Registry
from xla_backend.checkpoints.prompts import encode_prompt
from xla_backend.interface.function_comparison import FunctionRequest
from xla_backend.interface.prompt import TokenIds
from xla_backend.openai_api.errors import describe_fields, error_body
from xla_backend.openai_api.protocols.messages import MessagesRequest
from xla_backend.openai_api.protocols.responses import ResponseRequest
from xla_backend.openai_api.requests import MAX_TEXTS, ChatRequest, CompletionRequest

MIN_CASES = 1_000
_tried: list[int] = []

NUMBERS = (
    st.integers()
    | st.floats()
    | st.integers(-3, 1100)
    | st.floats(-2, 120)
    | st.just(5000).map(lambda digits: 10**digits)
)
TEXTS = st.text(st.characters(), max_size=200) | st.sampled_from(INJECTIONS)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=4,
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)


def cases(number: int) -> Callable[[Any], Any]:
    """So many cases, the same ones at each run; they count for `MIN_CASES`."""
    _tried.append(number)
    return settings(
        max_examples=number,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def is_a_sentence(error: BaseException) -> bool:
    """Whether a visitor may read it: whole, on few lines, and not endless."""
    text = str(error)
    return 10 < len(text) < 1000 and text.count("\n") <= 3 and text.rstrip()[-1] in ".?)!"


# --- options --------------------------------------------------------------------------------------


@given(st.dictionaries(st.sampled_from(list(GenerationOptions().to_dict())), VALUES, max_size=9))
@example({"max_new_tokens": True})
@example({"seed": math.nan, "top_p": -0.0})
@example({"logit_bias": {"7": -0.0}, "stop": ["\0", "🦊"]})
@cases(250)
def test_options_are_right_or_refused(values: dict[str, Any]) -> None:
    try:
        options = GenerationOptions.from_dict(values)
    except InvalidRequest as error:
        assert is_a_sentence(error)
        return
    assert GenerationOptions.from_dict(json.loads(json.dumps(options.to_dict()))) == options
    assert 1 <= options.max_new_tokens <= 8192
    assert 1 <= options.num_beams <= 8
    assert options.temperature == 0 or 0.01 <= options.temperature <= 100
    assert 0 <= options.top_p <= 1
    assert options.early_stopping in (True, False, "never")
    assert all(token >= 0 and -100 <= bias <= 100 for token, bias in options.logit_bias)
    assert all(options.stop)


@given(st.lists(VALUES, min_size=len(NAMES), max_size=len(NAMES)))
@cases(50)
def test_any_value_of_a_control_is_used_or_refused(values: list[Any]) -> None:
    try:
        assert isinstance(options_from(tuple(values)), GenerationOptions)
    except InvalidRequest as error:
        assert is_a_sentence(error)


@given(VALUES | st.just("dense"), VALUES, VALUES | st.booleans())
@cases(50)
def test_a_comparison_is_right(function: Any, batch_size: Any, pad: Any) -> None:
    try:
        request = FunctionRequest(function, batch_size, pad)
    except InvalidRequest as error:
        assert is_a_sentence(error)
    else:
        assert 1 <= request.batch_size <= request.rows


@given(VALUES)
@cases(30)
def test_a_name_is_a_model_s_or_refused(name: Any) -> None:
    with pytest.raises(BackendError) as caught:
        Registry(hub_models=(), allow_folders=False).locate(name)
    assert is_a_sentence(caught.value)


KINDS: tuple[type[Any], ...] = (ChatRequest, CompletionRequest, ResponseRequest, MessagesRequest)
NAMES = sorted({"tools", *(name for kind in KINDS for name in kind.model_fields)})


@given(
    st.sampled_from(KINDS),
    st.dictionaries(
        st.sampled_from(NAMES), VALUES | st.just([{"role": "user", "content": "Hello"}]), max_size=9
    ),
)
@example(ResponseRequest, {"input": [{"type": []}, {"role": 5}], "text": {"format": 5}})
@example(MessagesRequest, {"tool_choice": {"type": []}, "thinking": {"type": 5}})
@example(ChatRequest, {"messages": [{"role": "user", "content": [{"type": []}]}]})
@example(CompletionRequest, {"prompt": [[]], "response_format": {"type": 5}, "tools": [0]})
@cases(150)
def test_an_openai_request_is_right_or_refused(kind: type[Any], values: dict[str, Any]) -> None:
    values = {"model": "m", "prompt": "Once", "messages": [], "input": "Hello", **values}
    try:
        body = kind.model_validate(values)
        if isinstance(body, ResponseRequest | MessagesRequest):
            body = body.chat()
        runs = body.runs(256)
    except ValidationError as error:
        # FastAPI names the argument first.
        errors = [{**each, "loc": ("body", *each["loc"])} for each in error.errors()]
        status, sentence, _, param = describe_fields(errors)
        assert status == 400
        assert is_a_sentence(ValueError(sentence))
        assert param is None or param in NAMES
        json.loads(error_body(status, sentence, None, param))
    except InvalidRequest as error:
        assert is_a_sentence(error)
    else:
        assert 1 <= len(runs) <= MAX_TEXTS
        assert all(isinstance(options, GenerationOptions) for _, options in runs)


# --- prompts --------------------------------------------------------------------------------------


class Letters:
    """A tokenizer with a token for each character."""

    def encode(self, text: str, **how: Any) -> list[int]:
        return [ord(sign) for sign in text]


@given(TEXTS | VALUES, st.none() | st.integers(1, 300))
@cases(80)
def test_a_prompt_is_encoded_or_refused(prompt: Any, context: int | None) -> None:
    info = ModelInfo("m", "decoder-only", "bundled", "A model.", context_length=context)
    try:
        tokens = encode_prompt(Letters(), prompt, info)  # type: ignore[arg-type]
    except InvalidRequest as error:
        assert is_a_sentence(error)
    else:
        assert tokens
        assert context is None or len(tokens) < context


@given(TEXTS | VALUES)
@cases(30)
def test_a_prompt_of_too_many_bytes_is_refused_before_it_is_counted(prompt: Any) -> None:
    limits = Limits(prompt_bytes=50)
    try:
        limits.check_prompt(prompt)
    except InvalidRequest as error:
        assert is_a_sentence(error)
        assert len(prompt.encode("utf-8", "surrogatepass")) > 50
    with pytest.raises(InvalidRequest, match="51 bytes"):  # a token has one at least
        limits.check_prompt(TokenIds((0,) * 51))


@given(TEXTS)
@cases(40)
def test_text_travels_and_never_becomes_markup(text: str) -> None:
    escaped = rendered(lambda: text)()
    assert not set("<>\"'") & set(escaped)
    assert clean(text).encode("utf-8").decode("utf-8") == clean(text)
    assert all(sign.isprintable() for sign in visible(text))


# --- files and links ------------------------------------------------------------------------------

ROWS = st.lists(st.lists(TEXTS, min_size=1, max_size=4), max_size=6)


@st.composite
def csv_texts(draw: st.DrawFn) -> str:
    """Tables, more or less as they should be, and with a piece cut out at random."""
    out = io.StringIO()
    delimiter = draw(st.sampled_from([",", ";", "\t"]))
    writer = csv.writer(out, delimiter=delimiter)
    writer.writerow(draw(st.permutations(["prompt", "other"])))
    writer.writerows(draw(ROWS))
    text = out.getvalue()
    start = draw(st.integers(0, len(text)))
    return text[:start] + text[draw(st.integers(start, min(len(text), start + 5))) :]


@given(TEXTS | csv_texts())
@cases(80)
def test_prompts_are_found_or_the_line_is_named(text: str) -> None:
    try:
        prompts, _ = prompts_in(text)
    except InvalidRequest as error:
        assert is_a_sentence(error)
    else:
        assert 1 <= len(prompts) <= MAX_PROMPTS
        assert all(each.prompt.strip() and each.line >= 1 for each in prompts)


@given(TEXTS, st.binary(max_size=300) | csv_texts().map(lambda t: t.encode("utf-8", "replace")))
@cases(40)
def test_a_file_of_prompts_is_read_or_refused(name: str, content: bytes) -> None:
    for given_name in (name, "prompts.csv"):
        try:
            assert isinstance(text_of_file(given_name, content), str)
        except InvalidRequest as error:
            assert is_a_sentence(error)


@given(st.lists(TEXTS, min_size=1, max_size=3))
@cases(80)
def test_no_cell_begins_a_formula_and_none_loses_its_text(texts: list[str]) -> None:
    table = csv_table(["prompt"] * len(texts), [texts])
    cells = list(csv.reader(io.StringIO(table, newline=""), strict=True))[1]
    for text, cell in zip(texts, cells, strict=True):
        assert not cell.lstrip().startswith(("=", "+", "-", "@", "＝", "＋", "－", "＠"))
        assert not cell.startswith(("\t", "\r", "\n"))
        assert unguarded(cell) == clean(text)
        assert unguarded(guarded(text)) == text


A_RUN = records.record(Shown("Once", result(), ended_s=1.8e9), 1)


@given(st.data())
@cases(120)
def test_a_record_that_was_changed_is_right_or_left_out(data: st.DataObject) -> None:
    run = json.loads(json.dumps(A_RUN))
    for _ in range(data.draw(st.integers(1, 3))):
        at = run
        name = data.draw(st.sampled_from(sorted(run)))
        if isinstance(at[name], dict) and at[name] and data.draw(st.booleans()):
            at = at[name]
            name = data.draw(st.sampled_from(sorted(at)))
        if data.draw(st.booleans()):
            at[name] = data.draw(JSON_VALUES)
        else:
            at.pop(name)
            break
    kept = records.checked(run)
    if kept is not None:
        assert set(kept) == set(A_RUN)
        assert records.checked(json.loads(json.dumps(kept))) == kept
        assert records_file.to_csv([kept])


@given(
    st.binary(max_size=200)
    | JSON_VALUES.map(lambda value: json.dumps(value).encode())
    | st.lists(JSON_VALUES | st.just(A_RUN), max_size=3).map(
        lambda runs: records_file.FILE.written({"runs": runs}).encode("utf-8", "surrogatepass")
    )
)
@example(b"[" * 100_000)
@example(b'{"format": "xla-playground-runs", "version": 1, "runs": {}}')
@cases(60)
def test_an_import_brings_runs_or_says_why_not(content: bytes) -> None:
    try:
        # As the browser reads a file.
        runs, unreadable = records_file.from_json(content.decode("utf-8", "replace"))
    except InvalidRequest as error:
        assert is_a_sentence(error)
    else:
        assert runs
        assert unreadable >= 0


@given(st.dictionaries(st.sampled_from([*draft.SETTINGS, "run"]) | TEXTS, TEXTS))
@example({"max_new_tokens": "1" * 5000, "seed": "٣", "top_p": "1e5"})
@cases(100)
def test_a_link_is_read_as_far_as_it_can_be_had(query: dict[str, str]) -> None:
    model = ModelInfo("gpt2-stories", "decoder-only", "bundled", "")
    link = draft.read(query, [model], {"max_new_tokens": (1, 256)})
    assert link.settings.get("model") in (None, "gpt2-stories")
    GenerationOptions(**link.options)
    assert 1 <= link.options.get("max_new_tokens", 1) <= 256
    assert len(link.problem("link")) < 200 * (len(query) + 1)


# --- sound ----------------------------------------------------------------------------------------


def a_file(format: str, subtype: str | None = None) -> bytes:
    out = io.BytesIO()
    soundfile.write(
        out, np.sin(np.arange(800) / 5).astype("f4"), 8000, format=format, subtype=subtype
    )
    return out.getvalue()


FILES = [a_file("WAV"), a_file("FLAC"), a_file("OGG"), a_file("MP3"), a_file("AIFF"), a_file("AU")]


@st.composite
def broken_files(draw: st.DrawFn) -> bytes:
    """A recording with a few bytes changed, most of them in the header, or cut off."""
    content = bytearray(draw(st.sampled_from(FILES)))
    for _ in range(draw(st.integers(0, 6))):
        most = draw(st.sampled_from([64, len(content)])) - 1
        content[draw(st.integers(0, most))] = draw(st.integers(0, 255))
    return bytes(content[: draw(st.integers(1, len(content)))])


@pytest.fixture(scope="module")
def sound_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sound") / "recording.wav"


@given(content=broken_files() | st.binary(max_size=100))
@example(content=b"RIFF" + struct.pack("<I", 2**32 - 1) + b"WAVEfmt ")
@cases(50)
def test_a_recording_is_heard_or_refused(sound_file: Path, content: bytes) -> None:
    sound_file.write_bytes(content)
    try:
        samples = read(sound_file, 16_000, max_seconds=10)
    except InvalidRequest as error:
        assert is_a_sentence(error)
        assert str(sound_file.parent) not in str(error)
    else:
        assert samples.dtype == np.float32
        assert 1 <= len(samples) <= 160_100
        assert np.isfinite(samples).all()
        assert np.abs(samples).max() <= 1.0


@given(VALUES | st.tuples(NUMBERS, st.lists(NUMBERS, max_size=5) | VALUES))
@cases(50)
def test_samples_are_heard_or_refused(audio: Any) -> None:
    try:
        samples = read(audio, 16_000, max_seconds=10)
    except InvalidRequest as error:
        assert is_a_sentence(error)
    else:
        assert np.isfinite(samples).all()


# --- command lines --------------------------------------------------------------------------------

WORDS = st.lists(
    st.sampled_from(["--num-beams", "--max-new-tokens", "--top-p", "--json", "--model", "--seed="])
    | st.text(string.printable, max_size=10)
    | st.integers(-5, 2000).map(str),
    max_size=5,
)


@given(st.sampled_from(["generate", "transcribe", "warm", "models", ""]), WORDS)
@cases(30)
def test_the_command_line_ends_with_a_sentence(command: str, words: list[str]) -> None:
    # No model of that name, so that nothing is loaded: all that is wrong is found before.
    arguments = [command, *words, "--model", "no/such-model", "--store", "off"]
    try:
        status = command_line(arguments)
    except SystemExit as exit:
        status = exit.code
    assert status in (0, 2) if set(words) & {"-h", "--help"} else status in (0, 1, 2)


FLAGS = st.sampled_from([*(flag.name for flag in LIMIT_FLAGS), "--port", "--admin"])


@given(st.lists(FLAGS | TEXTS | st.integers(-5, 10**12).map(str), max_size=4))
@cases(35)
def test_the_flags_of_the_page_are_understood_or_refused(words: list[str]) -> None:
    try:
        flags = flags_from(words)
    except SystemExit as exit:
        assert exit.code in (0, 2)
    else:
        assert all(bound >= 1 for bound in dataclasses.astuple(flags.limits))


def test_as_many_cases_as_promised_were_tried() -> None:
    assert sum(_tried) >= MIN_CASES
