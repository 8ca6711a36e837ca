"""The examples: that each model gets those it was made for, and that their names are true."""

from dataclasses import replace

import pytest

from demo_models.recipes.stories import write_story
from playground.context.limits import Limits
from playground.settings.examples import (
    ALL_EXAMPLES,
    ENGLISH_EXAMPLES,
    EXAMPLES,
    HELD_OUT_STORIES,
    READER_EXAMPLES,
    T5_EXAMPLES,
    Example,
    are_example_options,
    defaults_for,
    examples_for,
    is_example_prompt,
)
from xla_backend import ModelInfo
from xla_backend.checkpoints.models import HUB_MODELS, Registry
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.interface.buckets import BucketRules, CacheKey


def model(name: str, family: str = "decoder-only") -> ModelInfo:
    return ModelInfo(name, family, "bundled", "")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (model("gpt2-stories"), EXAMPLES),
        (model("opt-stories"), EXAMPLES),
        (model("/somewhere/gpt2-stories"), EXAMPLES),
        (model("openai-community/gpt2"), ENGLISH_EXAMPLES),
        (model("t5-stories", "encoder-decoder"), READER_EXAMPLES),
        (model("google/flan-t5-small", "encoder-decoder"), T5_EXAMPLES),
    ],
)
def test_a_model_gets_what_it_was_made_for(info: ModelInfo, expected: tuple[Example, ...]) -> None:
    assert examples_for(info) == expected


def test_the_stories_to_read_are_those_that_no_model_was_trained_on() -> None:
    held_out = {seed: write_story(seed, "held-out") for seed in HELD_OUT_STORIES}
    assert {seed: story.text for seed, story in held_out.items()} == HELD_OUT_STORIES
    inputs = {f"summarize: {story.text}" for story in held_out.values()}
    inputs |= {
        f"question: {form} context: {story.text}"
        for story in held_out.values()
        for question in story.questions
        for form in question.forms
    }
    assert {example.prompt for example in READER_EXAMPLES} <= inputs

    assert is_example_prompt(EXAMPLES[0].prompt)
    assert not is_example_prompt("My own words")
    assert not is_example_prompt(EXAMPLES[0].prompt, [T5_EXAMPLES])
    few = EXAMPLES[0].options.replace(max_new_tokens=7)
    assert are_example_options(EXAMPLES[3].options, Limits(), ALL_EXAMPLES)
    assert not are_example_options(few, Limits(), ALL_EXAMPLES)
    assert are_example_options(few, Limits(new_tokens=7), ALL_EXAMPLES), "the page has set no more"


def test_a_name_that_speaks_of_the_shape_is_right() -> None:
    checked = 0
    registry = Registry(HUB_MODELS[:0])
    for info in registry.list():
        if info.family == "speech":
            continue
        tokenizer = Tokenizer.load(registry.locate(info.name).folder)
        first, *others = examples_for(info)

        def key_of(example: Example, tokenizer=tokenizer, info=info) -> CacheKey:
            options = example.options
            return BucketRules().key_for(
                len(tokenizer.encode(example.prompt)),
                options.num_beams,
                options.max_new_tokens,
                info.context_length,
            )

        for example in others:
            if example.questions:  # read by rows of all lengths
                continue
            says_same = "same shape" in example.name.lower()
            assert says_same != ("another shape" in example.name.lower())
            assert (key_of(example) == key_of(first)) == says_same, (info.name, example.name)
            checked += 1
    assert checked >= 2 * (len(EXAMPLES) - 1)


@pytest.mark.parametrize(("temperature", "top_p"), [(0.6, 0.95), (0.2, 0.9)])
def test_an_instruct_model_is_sampled_as_its_makers_recommend_or_greedy_where_that_is_near(
    temperature: float, top_p: float
) -> None:
    """Sampled at 0.2, SmolLM2 answered the first question wrongly, and without an end."""
    sampling = {"temperature": temperature, "top_p": top_p}
    greedy = (0.0, 1.0)
    info = replace(model("talker"), is_instruct=True, sampling=sampling)
    for example in examples_for(info):
        is_search = example.options.num_beams > 1
        found = example.options.temperature, example.options.top_p
        assert found == (greedy if is_search or temperature < 0.3 else (temperature, top_p))
    assert defaults_for(info) == examples_for(info)[0].options
    base = replace(model("gpt2-stories"), sampling=sampling)
    assert examples_for(base) == EXAMPLES, "what makers say of chats is not of continuing"
