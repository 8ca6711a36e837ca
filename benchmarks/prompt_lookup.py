"""Prompt lookup: how much sooner a text is there that repeats its prompt, and one that does not.

Knows the engine from outside. Run as

    python -m benchmarks.prompt_lookup [--model SmolLM2-135M-Instruct] [--drafts 3]

Twenty prompts have a text with them, to be summarised, quoted, edited or searched; ten are open
questions. Each is answered greedily with and without, in turn; the first round makes the functions
ready. What counts is the time after the first token, which is the same for both: that of all texts
of a task together, and for the least and the most each prompt's.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from benchmarks import terminal
from benchmarks.machine import Bystanders
from xla_backend.checkpoints.models import PACKAGED_MODEL
from xla_backend.interface.prompt import question

if TYPE_CHECKING:
    from xla_backend import GenerationOptions, GenerationResult

    Pairs = list[list[GenerationResult]]  # of a prompt, in each round without and with

TEXTS = (
    "The library on Mill Street opens at nine on weekdays and at ten on Saturdays. Its reading "
    "room has forty seats, two of them by the window that looks over the canal. Anna Berg has been "
    "the librarian since 1998. Last spring the city wanted to close the building because the roof "
    "leaked, but readers collected 12,000 euros in three weeks, and in June the roof was repaired.",
    "From: Maria Lopez\nTo: Support\nSubject: Order 48213\nHello, on 3 March I ordered a blue "
    "kettle and two glass cups. The kettle came on 9 March, but one of the cups was broken and the "
    "other one was missing. Please send me two new cups or return 18.50 euros to my account. You "
    "can call me on 555-0137 after five in the afternoon. Kind regards, Maria Lopez",
    "Honeybees dance to tell each other where food is. A bee that has found flowers returns to the "
    "hive and runs in the shape of an eight. The direction of the middle line shows the angle "
    "between the sun and the flowers, and the time that the bee takes for it shows the distance. "
    "Karl von Frisch described the dance in 1927 and received the Nobel Prize for it in 1973.",
    "Minutes of the meeting on 14 May. Present: Tom, Aisha, Ravi and Chen. Aisha reported that the "
    "new website will be ready on 2 June. Ravi said that the test server is too slow and asked for "
    "a larger one; Tom will order it until Friday. Chen will write the text for the front page. "
    "The next meeting is on 21 May at ten o'clock in room 204.",
    "The old lighthouse at Cape Wren was built in 1871 from grey granite. It is 34 metres high and "
    "its light could be seen from 40 kilometres away. For almost a hundred years keepers lived "
    "there with their families. The last keeper, Edward Hale, left in 1968, when the light became "
    "automatic. Today the tower is a museum, and visitors may climb its 199 steps in summer.",
)
TASKS = {
    "summarise": "Summarise this text in two sentences.",
    "quote": "Quote this text word for word.",
    "edit": "Write this text again and correct its mistakes. Change nothing else.",
    "extract": "List all names, dates and numbers in this text, with the words around them.",
}
QUESTIONS = (
    "Why is the sky blue?",
    "Write a short poem about the sea.",
    "How do I learn to play the guitar?",
    "What should I cook for four friends?",
    "Tell me a story about a dragon who is afraid of fire.",
    "What is the difference between a virus and a bacterium?",
    "Give me some advice for a job interview.",
    "Explain how a bicycle stays upright.",
    "Describe a morning in a small village.",
    "What are good reasons to read books?",
)
NEW_TOKENS = 96


def main() -> None:
    """Measures and prints a table."""
    arguments = terminal.options(__doc__, model=PACKAGED_MODEL, drafts=[3], rounds=3)
    from xla_backend import Backend, GenerationOptions

    backend, others = Backend(batch_sizes=(1,)), Bystanders([])
    plain = GenerationOptions(max_new_tokens=NEW_TOKENS)
    terminal.print_command("prompt_lookup")
    terminal.print_head(
        "drafts", "task", "tokens a pass", "times as fast", "least", "most", "same tokens"
    )
    for drafts in arguments.drafts:
        ways = (plain, plain.replace(prompt_lookup_num_tokens=drafts))

        def measured(text: str, ways: tuple[GenerationOptions, ...] = ways) -> Pairs:
            pairs = [
                [
                    backend.generate(arguments.model, question(text), way, exact_key=True)
                    for way in ways
                ]
                for _ in range(arguments.rounds + 1)
            ]
            return pairs[1:]

        with_text = []
        for task, ask in TASKS.items():
            found = [measured(f"{ask}\n\n{text}") for text in TEXTS]
            with_text += found
            terminal.print_row(drafts, task, *_numbers(found))
        terminal.print_row(drafts, "all of these", *_numbers(with_text))
        terminal.print_row(drafts, "open question", *_numbers(list(map(measured, QUESTIONS))))
    terminal.print_machine(others)
    backend.close()


def _numbers(prompts: list[Pairs]) -> list[str]:
    """Tokens a pass, speed of all prompts together, of the least and the most, and same tokens."""
    times = [
        [
            statistics.median(result.since_first_token_s for result in way)
            for way in zip(*pairs, strict=True)
        ]
        for pairs in prompts
    ]
    without, fast = (sum(way) for way in zip(*times, strict=True))
    each = sorted(one / other for one, other in times)
    results = [pairs[0] for pairs in prompts]
    passes = sum(fast.passes or 0 for _, fast in results)
    tokens = sum(fast.new_tokens - 1 for _, fast in results)
    same = sum(
        [token.id for token in one.tokens] == [token.id for token in other.tokens]
        for one, other in results
    )
    return [
        f"{tokens / passes:.2f}",
        f"**{without / fast:.2f}**",
        f"{each[0]:.2f}",
        f"{each[-1]:.2f}",
        f"{same} of {len(results)}",
    ]


if __name__ == "__main__":
    main()
