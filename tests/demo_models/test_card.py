"""A card shows the numbers of its folder, and only those."""

import json

import pytest

from demo_models.card import ABOUT, EVALUATION_FILE, TRAINING_FILE, write_card

TRAINING = {"parameters": 2_265_600, "steps": 5000, "tokens": 6_000_000, "seconds": 1200, "loss": 1}
STORYTELLER = {
    "stories": 200,
    "perplexity": 1.5,
    "known_words": 0.985,
    "consistent": 0.9,
    "examples": [["Once", " upon a time"]],
}
READER = {
    "stories": 300,
    "answers": 0.91,
    "answers_by_fact": {"hero": 0.99, "place": 0.8},
    "summaries": 0.85,
    "examples": [["question: Who?", "Pip"]],
}


@pytest.mark.parametrize("name", ABOUT)
def test_card(name, tmp_path):
    evaluation = READER if name == "t5-stories" else STORYTELLER
    (tmp_path / TRAINING_FILE).write_text(json.dumps(TRAINING))
    (tmp_path / EVALUATION_FILE).write_text(json.dumps(evaluation))
    (tmp_path / "model.safetensors").write_bytes(bytes(9_000_000))
    write_card(name, tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert card.startswith("---\nlicense: apache-2.0\n")
    for shown in ("2,265,600", "9.0 MB", "20 minutes", "5,000 tokens/s"):
        assert shown in card
    assert ("91.0%" in card) == (name == "t5-stories")
    assert ("98.5%" in card) == (name != "t5-stories")
