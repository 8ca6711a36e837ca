"""The heads set by hand look where they should, before any training."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from demo_models.stories import question_text, tell
from demo_models.tokenization import train_tokenizer
from demo_models.training.first_weights import kept_words, start_reader, start_storyteller
from demo_models.training.train import build_model

TEXT = "Once upon a time, a fox named Pip lived in a village. One day Mia lost a red kite."


def looks(weights, tokens):
    """Head -> the words that get most of its attention, for the last query."""
    return [
        {tokens[i] for i in tf.argsort(head, direction="DESCENDING")[:1].numpy()}
        for head in weights[0, :, -1]
    ]


@pytest.fixture(autouse=True)
def seed():
    """What is not set by hand is random, and may by chance outweigh what is."""
    tf_keras.utils.set_random_seed(1)


@pytest.mark.parametrize("name", ["gpt2-stories", "t5-stories"])
def test_every_kind_of_word_is_whole_and_in_one_group(name):
    groups = kept_words(train_tokenizer(name))
    assert all(len(group) > 40 for group in groups)
    assert len({i for group in groups for i in group}) == sum(map(len, groups))


def test_a_storyteller_looks_for_names_kinds_and_objects():
    tokenizer, model = train_tokenizer("gpt2-stories"), build_model("gpt2-stories")
    start_storyteller(model, tokenizer)
    encoded = tokenizer.encode(TEXT)
    output = model(tf.constant([encoded.ids]), output_attentions=True)
    girl, boy, kind, thing, _ = looks(output.attentions[0], encoded.tokens)
    assert (girl, boy, kind, thing) == ({"ĠMia"}, {"ĠPip"}, {"Ġfox"}, {"Ġkite"})


def test_a_named_word_becomes_likelier():
    tokenizer, model = train_tokenizer("gpt2-stories"), build_model("gpt2-stories")
    start_storyteller(model, tokenizer)
    logits = model(tf.constant([tokenizer.encode(TEXT).ids])).logits[0, -1].numpy()
    girls, boys, *_ = kept_words(tokenizer)
    assert logits[tokenizer.token_to_id("ĠMia")] > logits[girls].mean() + logits[girls].std()
    assert logits[tokenizer.token_to_id("ĠPip")] > logits[boys].mean() + logits[boys].std()


@pytest.fixture
def reader():
    """What a fresh reader's decoder looks at: (layer, question, story) -> each head's best word."""
    tokenizer, model = train_tokenizer("t5-stories"), build_model("t5-stories")
    start_reader(model, tokenizer)

    def look(layer, question, story):
        encoded = tokenizer.encode(question_text(question, story))
        output = model(
            input_ids=tf.constant([encoded.ids]),
            decoder_input_ids=tf.constant([[0]]),
            output_attentions=True,
        )
        return [min(words) for words in looks(output.cross_attentions[layer], encoded.tokens)]

    return look


def test_a_reader_looks_for_names_the_question_kinds_and_things(reader):
    names, question, kind, thing = reader(0, "What was strange?", TEXT)
    assert (names in {"ĠMia", "ĠPip"}, kind, thing) == (True, "Ġfox", "Ġkite")
    assert question in {"Ġquestion", ":", "ĠWhat", "Ġwas", "Ġstrange", "?"}


def test_a_reader_tells_who_is_asked_for_from_who_is_not(reader):
    """By chance the own parts of two names may be too alike, so not in every story."""
    right = []
    for seed in range(20):
        story = tell(seed, "held-out")
        for asked, other in (("hero", "friend"), ("friend", "hero")):
            found = reader(1, f"What was {story.facts[asked]}?", story.text)
            right.append(
                [
                    found[0] == "Ġ" + story.facts[asked],
                    found[1].removeprefix("Ġ") in story.facts[f"{asked} kind"],
                    found[2] == "Ġ" + story.facts[other],
                ]
            )
    shares = np.mean(right, axis=0)
    assert (shares >= [0.85, 0.6, 0.85]).all(), shares


def test_only_where_to_look_is_fixed():
    model = build_model("gpt2-stories")
    start_storyteller(model, train_tokenizer("gpt2-stories"))
    fixed = [variable.name for variable in model.non_trainable_variables]
    assert [name.split("/", 2)[2] for name in fixed] == [
        "h_._0/attn/c_attn/weight:0",
        "h_._0/attn/c_attn/bias:0",
    ]
