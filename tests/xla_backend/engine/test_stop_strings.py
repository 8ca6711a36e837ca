"""Stop strings: where a text ends, whatever the borders of tokens and chunks."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.xla_backend.engine.answers import ids
from xla_backend import Backend, GenerationOptions, GenerationResult, InvalidRequest
from xla_backend.engine.stop_strings import StopStrings

PROMPT = "Once upon a time"
LONG = GenerationOptions(max_new_tokens=120)


def read(strings: list[str], chunks: list[str]) -> tuple[str, bool]:
    """The text, and whether a string ended it; what was final never changed."""
    stops = StopStrings(strings)
    text = "".join([*map(stops.push, chunks), stops.finish()])
    return text, stops.is_found


@pytest.mark.parametrize(
    ("strings", "text", "expected"),
    [
        ([], "a text", "a text"),
        (["end"], "the en", "the en"),
        (["end"], "the end, the end", "the "),
        (["end"], "enend", "en"),
        (["aab"], "aaab", "a"),
        (["abab", "x"], "abaxbab", "aba"),
        (["abc", "b"], "abc", "a"),  # complete first
        (["bc", "abc"], "abc", ""),  # complete at once: the longest
        (["🦊"], "a 🦊", "a "),
        (["\n\n"], "\none\n\ntwo", "\none"),
    ],
)
def test_a_text_ends_before_the_first_string_for_any_chunks(
    strings: list[str], text: str, expected: str
) -> None:
    draw = random.Random(0)
    for _ in range(30):
        cuts = sorted(draw.choices(range(len(text) + 1), k=draw.randint(0, 6)))
        chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        assert read(strings, chunks) == (expected, expected != text)


def test_only_what_may_begin_a_string_is_held_back() -> None:
    stops = StopStrings(["The end", "hen"])
    assert [stops.push(chunk) for chunk in ("Then", " The", " en", "t", "h")] == [
        *("T", "", "", "", ""),
    ]
    assert stops.is_found


@pytest.fixture(scope="module")
def greedy(backend: Backend, small_gpt2: Path) -> GenerationResult:
    return backend.generate(str(small_gpt2), PROMPT, LONG)


def inside_tokens(result: GenerationResult) -> list[str]:
    """Pieces of a text that begin and end in the middle of tokens, and one that is several."""
    borders, length = [], 0
    for token in result.tokens:
        borders.append(length)
        length += len(token.text)
    assert length == len(result.text), "every token is whole characters"
    pieces = [
        result.text[start + 1 : end + 1]
        for start, end in zip(borders[8:], borders[10:], strict=False)
        if end - start > 3
    ]
    assert len(set(pieces)) > 5
    return [pieces[0], pieces[4], pieces[-1], result.text[borders[20] : borders[30]]]


def test_generated_and_streamed_texts_end_before_a_string(
    backend: Backend, small_gpt2: Path, greedy: GenerationResult
) -> None:
    for piece in inside_tokens(greedy):
        expected = greedy.text.split(piece)[0]
        options = LONG.replace(stop=piece)
        stream = backend.stream(str(small_gpt2), PROMPT, options)
        chunks = list(stream)
        result = backend.generate(str(small_gpt2), PROMPT, options)
        for found in (stream.result, result):
            assert (found.text, found.finish) == (expected, "stop")
            assert found.to_json()["finish_reason"] == "stop"
            assert "".join(token.text for token in found.tokens) == expected
            assert ids(found) == ids(greedy)[: len(found.tokens)]
            assert found.new_tokens + found.cut_tokens <= greedy.new_tokens
            assert found.tpot_s > 0
        assert "".join(chunks) == expected
        assert all(chunks)


def test_a_text_without_the_string_is_whole(
    backend: Backend, small_gpt2: Path, greedy: GenerationResult
) -> None:
    """Even if it ends with the beginning of one, which was held back."""
    options = LONG.replace(stop=["no such string", greedy.text[-3:] + "?"])
    stream = backend.stream(str(small_gpt2), PROMPT, options)
    assert "".join(stream) == stream.result.text == greedy.text
    assert (stream.result.finish, stream.result.cut_tokens) == (greedy.finish, 0)


def test_a_text_can_end_before_its_first_character(
    backend: Backend, small_gpt2: Path, greedy: GenerationResult
) -> None:
    options = LONG.replace(stop=greedy.text[:2])
    assert list(backend.stream(str(small_gpt2), PROMPT, options)) == []
    result = backend.generate(str(small_gpt2), PROMPT, options)
    assert (result.text, result.tokens, result.finish) == ("", (), "stop")
    assert result.ttft_s > 0


def test_the_engine_stops_writing(
    backend: Backend, small_gpt2: Path, greedy: GenerationResult
) -> None:
    long = GenerationOptions(max_new_tokens=1000)
    whole = backend.generate(str(small_gpt2), PROMPT, long)
    stopped = backend.generate(str(small_gpt2), PROMPT, long.replace(stop=greedy.text[5:9]))
    assert stopped.new_tokens + stopped.cut_tokens < whole.new_tokens
    assert stopped.key == whole.key


def test_beams_are_cut_at_the_end(backend: Backend, small_gpt2: Path) -> None:
    beams = GenerationOptions(max_new_tokens=12, num_beams=2)
    whole = backend.generate(str(small_gpt2), PROMPT, beams)
    piece = whole.text[len(whole.tokens[0].text) + 1 :][:4]
    stream = backend.stream(str(small_gpt2), PROMPT, beams.replace(stop=piece))
    assert "".join(stream) == stream.result.text == whole.text.split(piece)[0]
    assert stream.result.finish == "stop"
    assert stream.result.new_tokens + stream.result.cut_tokens == whole.new_tokens


def test_a_bias_for_a_token_that_the_model_has_not_is_refused(
    backend: Backend, small_gpt2: Path
) -> None:
    options = GenerationOptions(logit_bias={1_000_000: 1.0})
    with pytest.raises(InvalidRequest, match=r"names token 1000000, but .* has the tokens 0 to"):
        backend.generate(str(small_gpt2), PROMPT, options)
