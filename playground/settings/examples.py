"""The examples of the Playground tab: requests worth clicking, each showing one thing.

Knows prompts and options, and which model understands which. Must not know components.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from playground.context.limits import Limits
from xla_backend import GenerationOptions, ModelInfo

DEFAULTS = GenerationOptions(max_new_tokens=96, temperature=0.7)
ANSWER_DEFAULTS = GenerationOptions(max_new_tokens=40)
"""Answers are short, and greedy decoding gives the best one."""
INSTRUCT_DEFAULTS = GenerationOptions(max_new_tokens=128)
NEARLY_GREEDY = 0.3
"""Highest recommended temperature at which the page starts without sampling."""


@dataclass(frozen=True)
class Example:
    """A request, and a name that says what it shows; `questions` are to be answered with yes or no
    about the prompt."""

    name: str
    prompt: str
    options: GenerationOptions
    questions: tuple[str, ...] = ()


def _to_continue(opening: str, other: str, longer: str) -> tuple[Example, ...]:
    """What each of these beginnings shows beside the first."""
    beams = DEFAULTS.replace(num_beams=4, temperature=0.0)
    bolder = DEFAULTS.replace(temperature=1.2, top_p=0.95)
    return (
        Example("A short opening", opening, DEFAULTS),
        Example("Same shape, other words", other, DEFAULTS),
        Example("Longer prompt, another shape", longer, DEFAULTS),
        Example("Four beams, another shape", opening, beams),
        Example("Bolder, same shape", opening, bolder),
    )


EXAMPLES = _to_continue(
    "Once upon a time",
    "One day a small rabbit",
    "Once upon a time there was a little fox who lived near the river with his sister. "
    "He had a red kite, and he wanted to fly it on the hill. But one morning",
)
"""For models that continue a story."""

ENGLISH_EXAMPLES = _to_continue(
    "The best thing about the sea is",
    "In the year 2050, most people will",
    "The library stood at the end of a quiet street. Nobody had borrowed a book there for "
    "years, but every evening a light went on in the reading room. When the new librarian "
    "finally climbed the stairs to see who it was, she found",
)
"""For models that were trained on general English."""

# Held-out stories of the recipe's generator, which t5-stories has never read; a test compares.
HELD_OUT_STORIES = {
    5: "One day, a merry dog named Ned woke up in a dry desert. For his birthday, he had been "
    "given a red balloon. A little later he came home without the balloon. "
    '"Oh no, where is my balloon?" cried Ned. By good luck, Rosa the badger was near. '
    '"Where did you see it last?" asked Rosa. At last they found the balloon beside the stream. '
    "Ned hugged Rosa and danced with joy. And Ned learned that two pairs of eyes are better than "
    "one.",
    12: "A little pony named Alfie lived near a stone bridge. The morning was cool and fresh. More "
    "than anything, Alfie wanted to speak to the bees. One night he tried, but the bees only "
    "buzzed. Some of the others laughed at him. Along came Pia, a proud otter. "
    '"Do you know the secret?" asked Pia. "Speak in a soft voice." They practiced all day long. '
    "In the end he could speak to the bees, and everybody clapped. Good night!",
    39: "Once upon a time there was a little elephant called Molly. She lived on a rusty boat. One "
    'rainy day a small voice called, "Help, help!" It was Toby, a busy goat, who was caught in a '
    'net. "Hold on, I am coming!" shouted Molly. Quickly she untied every knot. Toby shook all '
    "over, and then he began to laugh. To say thank you, Toby sang her a song.",
}

READER_EXAMPLES = (
    Example("Sum up a story", f"summarize: {HELD_OUT_STORIES[5]}", ANSWER_DEFAULTS),
    Example(
        "Ask about it, same shape",
        f"question: Where was the balloon? context: {HELD_OUT_STORIES[5]}",
        ANSWER_DEFAULTS,
    ),
    Example(
        "Another story, same shape",
        f"question: What did Alfie want to do? context: {HELD_OUT_STORIES[12]}",
        ANSWER_DEFAULTS,
    ),
    Example(
        "Four beams, another shape",
        f"summarize: {HELD_OUT_STORIES[39]}",
        ANSWER_DEFAULTS.replace(num_beams=4),
    ),
)
"""For t5-stories, which answers questions about such stories."""

T5_EXAMPLES = (
    Example(
        "Translate",
        "translate English to German: The house is small, but the garden is full of roses.",
        ANSWER_DEFAULTS,
    ),
    Example(
        "Same shape, other words",
        "translate English to French: We will meet you at the station at half past nine.",
        ANSWER_DEFAULTS,
    ),
    Example(
        "Sum up, another shape",
        "summarize: The town council met on Tuesday to decide about the old bridge. Engineers had "
        "found cracks in two of its pillars and asked for it to be closed before winter. Shop "
        "owners were against it, because the detour through the valley takes half an hour. After "
        "three hours the council voted to close the bridge to lorries at once, and to all other "
        "traffic in spring, when the repairs are to begin.",
        ANSWER_DEFAULTS,
    ),
    Example(
        "Four beams, another shape",
        "translate English to German: The house is small, but the garden is full of roses.",
        ANSWER_DEFAULTS.replace(num_beams=4),
    ),
)
"""For T5 models that were trained on tasks with these prefixes."""

INSTRUCT_EXAMPLES = (
    Example("A question", "What is the capital of France?", INSTRUCT_DEFAULTS),
    Example(
        "Same shape, other words", "Give me three tips for a good night's sleep.", INSTRUCT_DEFAULTS
    ),
    Example(
        "Four beams, another shape",
        "Summarize in one sentence: The town council met on Tuesday to decide about the old "
        "bridge. Engineers had found cracks in two of its pillars and asked for it to be closed "
        "before winter. After three hours the council voted to close the bridge to lorries at "
        "once.",
        INSTRUCT_DEFAULTS.replace(num_beams=4),
    ),
    Example(
        "Decide: ten questions at once",
        "Hello, I ordered the blue kettle on the second of May, order 4417. It arrived this "
        "morning, three weeks late, and the box was open. The lid is cracked, so hot water runs "
        "over my hand when I pour. My daughter burned a finger, not badly, but she cried for an "
        "hour. I have written twice to your shop and called once; nobody has answered. I do not "
        "want another kettle. I want my 39 euros back, to the card I paid with, before Friday. "
        "Otherwise I will tell my bank to take the money back, and I will write about it on every "
        "page that I can find. Your shop in Lyon was always friendly, and I am sorry that it has "
        "come to this. Please call me in the evening, I work until six. Martine Blanchet",
        INSTRUCT_DEFAULTS,
        (
            "Is the writer angry?",
            "Is the product broken?",
            "Was anybody hurt?",
            "Does the writer want a new kettle?",
            "Does the writer want money back?",
            "Did the parcel arrive on time?",
            "Has the shop answered?",
            "Is a date named by which to act?",
            "Does the writer threaten to do something?",
            "Should a person read this today?",
        ),
    ),
)
"""For instruct models: of 30 prompts, those that SmolLM2-135M-Instruct answers best."""

ALL_EXAMPLES = (EXAMPLES, ENGLISH_EXAMPLES, READER_EXAMPLES, T5_EXAMPLES, INSTRUCT_EXAMPLES)


def examples_for(model: ModelInfo | None) -> tuple[Example, ...]:
    """What the model was made for; the first one's options are its defaults."""
    if model is None:
        return EXAMPLES
    if model.is_instruct:
        # Beams search for the most likely text; all others are sampled as the model's makers do.
        # Where that is nearly greedy, it is greedy: of five sampled answers of SmolLM2 to the first
        # question, three were wrong and two of them without an end.
        is_sampled = model.sampling.get("temperature", 1.0) > NEARLY_GREEDY
        sampling = model.sampling if is_sampled else {}
        return tuple(
            example
            if example.options.num_beams > 1
            else replace(example, options=example.options.replace(**sampling))
            for example in INSTRUCT_EXAMPLES
        )
    knows_stories = PurePath(model.name).name.endswith("-stories")
    if model.family == "encoder-decoder":
        return READER_EXAMPLES if knows_stories else T5_EXAMPLES
    return EXAMPLES if knows_stories else ENGLISH_EXAMPLES


def is_example_prompt(prompt: str, sets: Sequence[tuple[Example, ...]] = ALL_EXAMPLES) -> bool:
    """Whether the page itself put this prompt there."""
    return any(example.prompt == prompt for examples in sets for example in examples)


def defaults_for(model: ModelInfo | None) -> GenerationOptions:
    """The options that the page begins with."""
    return examples_for(model)[0].options


def are_example_options(
    options: GenerationOptions, limits: Limits, sets: Sequence[tuple[Example, ...]]
) -> bool:
    """Whether the page itself set these options, within these limits; each run draws a seed."""
    return any(
        limits.within(example.options) == options.replace(seed=0)
        for examples in sets
        for example in examples
    )
