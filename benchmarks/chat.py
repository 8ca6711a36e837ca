"""Conversations: how the time to the first token grows with what was said, and many at once.

Knows the engine from outside. Run as

    python -m benchmarks.chat [--model SmolLM2-135M-Instruct] [--talks 5]

Each talk has ten turns of 40 new tokens. The messages of turns 2 and 10 are equally short; those
between are long, so that turn 10 comes after about 1,500 tokens. Its TTFT over that of turn 2 is
what a visitor feels of the length. The same prompts run without reuse, in turn. Then eight talks
run side by side. Functions are made before anything is measured.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from benchmarks import terminal
from benchmarks.machine import Bystanders
from xla_backend.checkpoints.models import PACKAGED_MODEL
from xla_backend.interface.prompt import Message

if TYPE_CHECKING:
    from xla_backend import Backend, GenerationOptions, GenerationResult

NEW_TOKENS = 40
SHORT = "And what else should I know of it?"
LONG = "Here is more of the story, please remember it. " + "The old man walked to the sea. " * 18
TURNS = [SHORT, SHORT, *[LONG] * 7, SHORT]
SHORT_TURN, LONG_TURN = 1, len(TURNS) - 1
SIDE_BY_SIDE = 8


class Talk:
    """One conversation.

    Attributes:
        messages: what was said.
    """

    def __init__(self, backend: Backend, model: str, options: GenerationOptions, name: str) -> None:
        self._backend, self._model, self._options, self._name = backend, model, options, name
        self.messages: tuple[Message, ...] = ()

    def ask(self, text: str) -> GenerationResult:
        """The next turn."""
        self.messages += (Message("user", text),)
        result = self._backend.generate(
            self._model, self.messages, self._options, cache_salt=self._name
        )
        self.messages += (Message("assistant", result.text),)
        return result


def main() -> None:
    """Measures and prints tables."""
    arguments = terminal.options(__doc__, model=PACKAGED_MODEL, talks=5)
    from xla_backend import Backend, GenerationOptions

    backend = Backend()
    model, others = arguments.model, Bystanders([])
    # A text that ends early would be shorter: its end is forbidden.
    ends = dict.fromkeys(_end_tokens(backend, model), -100.0)
    options = GenerationOptions.from_dict({"max_new_tokens": NEW_TOKENS, "logit_bias": ends})
    reused: dict[int, list[float]] = {SHORT_TURN: [], LONG_TURN: []}
    whole: dict[int, list[float]] = {SHORT_TURN: [], LONG_TURN: []}
    tokens, cached, alike = {}, {}, []
    for number in range(arguments.talks + 1):  # the first one makes the functions
        talk = Talk(backend, model, options, f"talk {number}")
        for turn, text in enumerate(TURNS):
            before = talk.messages
            result = talk.ask(text)
            backend.cancel_prefetch()
            if turn in reused:
                asked = (*before, Message("user", text))
                anew = backend.generate(model, asked, options, exact_key=True)
                backend.cancel_prefetch()
                tokens[turn], cached[turn] = result.prompt_tokens, result.cached_tokens
                alike.append(_alike(result, anew))
                if number:
                    reused[turn].append(_ttft(result))
                    whole[turn].append(_ttft(anew))
    terminal.print_command("chat")
    terminal.print_head("TTFT, ms", "prompt tokens", "reused", "with reuse", "without")
    for turn, name in ((SHORT_TURN, "turn 2"), (LONG_TURN, "turn 10")):
        times = (_ms(reused[turn]), _ms(whole[turn]))
        terminal.print_row(name, tokens[turn], cached[turn], *times)
    ratios = [_median(of[LONG_TURN]) / _median(of[SHORT_TURN]) for of in (reused, whole)]
    print(f"| turn 10 over turn 2 | | | {ratios[0]:.2f} | {ratios[1]:.2f} |")
    differing = [pair.index(False) + 1 for pair in alike if not all(pair)]
    print(f"\nOf {len(alike)} pairs of answers {len(differing)} differ", end="")
    print(f", at token {min(differing)} at the earliest." if differing else ".")
    alone, together = _side_by_side(backend, model, options)
    print(
        f"\nOne talk: {alone:.1f} tokens/s. {SIDE_BY_SIDE} side by side: {together:.1f} tokens/s, "
    )
    print(f"{together / alone:.2f} times as many.")
    terminal.print_machine(others)
    backend.close()


def _side_by_side(backend: Backend, model: str, options: GenerationOptions) -> tuple[float, float]:
    """Tokens a second of one talk alone, and of all talks together, three short turns each."""
    first = Talk(backend, model, options, "first").ask(SHORT)
    for size in (2, 4, SIDE_BY_SIDE):
        backend.warm(model, [first.key], batch_size=size)

    def speed(names: Iterable[str]) -> float:
        talks = [Talk(backend, model, options, name) for name in names]
        with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
            start = time.perf_counter()
            for _ in range(3):
                list(threads.map(lambda talk: talk.ask(SHORT), talks))
            return 3 * len(talks) * NEW_TOKENS / (time.perf_counter() - start)

    rounds = [
        (speed([f"alone {i}"]), speed(f"{n} of {i}" for n in range(SIDE_BY_SIDE))) for i in range(4)
    ][1:]
    return _median([alone for alone, _ in rounds]), _median([many for _, many in rounds])


def _end_tokens(backend: Backend, model: str) -> tuple[int, ...]:
    from xla_backend.checkpoints.models import Registry

    backend.load(model)
    ends = Registry().locate(model).generation_config.eos_token_id
    return (ends,) if isinstance(ends, int) else tuple(ends or ())


def _ttft(result: GenerationResult) -> float:
    assert result.ttft_s is not None
    assert result.new_tokens == NEW_TOKENS
    return result.ttft_s


def _alike(one: GenerationResult, other: GenerationResult) -> list[bool]:
    """Of each token, whether both answers have it."""
    return [a.id == b.id for a, b in zip(one.tokens, other.tokens, strict=True)]


def _median(values: list[float]) -> float:
    return statistics.median(values)


def _ms(seconds: list[float]) -> str:
    return f"{1000 * _median(seconds):.0f} ({1000 * min(seconds):.0f} to {1000 * max(seconds):.0f})"


if __name__ == "__main__":
    main()
