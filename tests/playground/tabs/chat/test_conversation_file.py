"""Conversations as files."""

import json
from dataclasses import replace

import pytest

from playground.tabs.chat.conversation import Conversation, Figures, Turn
from playground.tabs.chat.conversation_file import FILE, from_json, to_json, to_markdown
from tests.playground.samples import result
from xla_backend import InvalidRequest

FIGURES = Figures.of(result(cached_tokens=3), reuses=True, left_out=0)
TALK = Conversation(
    "/home/me/talker", "Be brief.", turns=(Turn("¿Qué?", "**ok**", FIGURES),), name="Name"
)


def test_json_brings_it_back_as_another_one_and_markdown_has_what_it_cost() -> None:
    text = to_json(TALK)
    assert "/home/me" not in text
    assert TALK.id not in text
    found = from_json(text)
    assert found.id != TALK.id
    assert replace(found, id=TALK.id, changed_s=TALK.changed_s, model=TALK.model) == TALK

    text = to_markdown(TALK)
    assert text.startswith(
        "# Name\n\nModel: talker\n\nSystem prompt: Be brief.\n\n## User\n\n¿Qué?"
    )
    assert "HIT · TTFT 22 ms · TPOT 40 ms · 3 tokens · reused 3 of 5 prompt tokens" in text


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("GIF89a\ufffd", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "no conversation of this page"),
        (json.dumps({"format": "xla-playground-runs"}), "no conversation of this page"),
        (to_json(TALK).replace('"version": 1', '"version": 2'), "another version"),
        (to_json(TALK).replace('"turns"', '"turn"'), "cannot be read"),
        (to_json(replace(TALK, turns=())), "cannot be read"),
        (" " * (FILE.max_bytes + 1), "larger than"),
    ],
)
def test_another_file_is_refused_with_a_sentence(data: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as refusal:
        from_json(data)
    assert "othing was changed" in str(refusal.value)
