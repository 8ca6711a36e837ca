"""Rows of the pool: the tokens of others' code, of padded keys, and of the row alone."""

import contextlib
import dataclasses
import itertools
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import checkpoints
from tests.oracle import load_oracle
from tests.waiting import wait_until
from tests.xla_backend.model.parity import FORMS, DecoderOnlyPair
from xla_backend import Backend, BucketRules, GenerationOptions, GenerationResult
from xla_backend.checkpoints import kinds
from xla_backend.checkpoints.models import Registry
from xla_backend.interface.prompt import TokenIds
from xla_backend.interface.requests import TextRequest
from xla_backend.kernels.attention.kv_blocks import BLOCK

CONTEXT, NEW = 300, 6
MAKERS = checkpoints.growing(CONTEXT)
# Layers slide, or have soft caps, or states, or attention beside states.
SOME = ("GPT-2", "Gemma 2", "LFM3", "Qwen3.5", "Falcon-H1")
WITH_STATES = ("Qwen3.5", "Falcon-H1")
"""Which go on only behind a prompt's last full block, and behind a text."""
OF_STATES = 2e-4
"""States carry rounding on: PyTorch's own float32 is 1e-5 to 1e-4 off its float64, and two float32
results that were read in other chunks may be so on either side."""
OF_XLA = ("Gemma 2", "Falcon-H1")
"""Those that `make test` runs by XLA alone, too: windows, caps; attention, states, convolutions."""
EACH = [
    pytest.param(kernels, form, marks=() if form in some else pytest.mark.release)
    for kernels, some in ((kinds.OWN, SOME), (kinds.XLA, OF_XLA))
    for form in MAKERS
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    root = tmp_path_factory.mktemp("pool")

    def folder(form: str) -> str:
        return str(found if (found := root / form).exists() else MAKERS[form](found))

    return folder


@pytest.fixture(scope="module")
def engines() -> Iterator[dict[str, Backend]]:
    """By kernels; they have one padded shape."""
    rules = BucketRules((CONTEXT,), (NEW,))
    with contextlib.ExitStack() as stack:
        yield {
            kernels: stack.enter_context(
                contextlib.closing(Backend(Registry(kernels=kernels), rules, store="off"))
            )
            for kernels in (kinds.OWN, kinds.XLA)
        }


def ids(result: GenerationResult) -> list[int]:
    return [token.id for token in result.tokens]


def assert_same(one: GenerationResult, other: GenerationResult, off: float = 1e-4) -> None:
    """The same text, with the same numbers up to rounding."""
    assert (ids(one), one.text, one.finish) == (ids(other), other.text, other.finish)
    assert [token.logprob for token in one.tokens] == pytest.approx(
        [token.logprob for token in other.tokens], abs=off
    )


@pytest.mark.parametrize(
    "form", ["GPT-2", "OPT", pytest.param("OPT post-norm", marks=pytest.mark.release)]
)
def test_transformers_writes_the_same_tokens(tmp_path: Path, form: str) -> None:
    """At the edges of blocks and chunks, and behind what an earlier prompt has computed."""
    longest = "n_positions" if form == "GPT-2" else "max_position_embeddings"
    folder = FORMS[form].write(tmp_path / "model", **FORMS[form].config, **{longest: CONTEXT})
    with contextlib.closing(Backend(store="off")) as backend:
        pair = DecoderOnlyPair(backend, folder, load_oracle(folder), is_pooled=True)
        for tokens in (2, 5, BLOCK - 1, BLOCK, BLOCK + 1, 128, 129, 257):
            prompt = pair.passage(tokens)
            result = pair.assert_same_text(prompt)
            assert result.key.is_pooled
            assert pair.logprob_difference(prompt, result) < 1e-4
            again = pair.assert_same_text(prompt, repetition_penalty=1.3)
            assert again.cached_tokens == tokens - 1
            read = backend.generate(
                str(folder), prompt, cache_salt="pool", with_prompt_logprobs=True
            )
            first, *others = read.prompt_logprobs
            assert (len(others), read.cached_tokens, first.top_logprobs) == (tokens - 1, 0, ())
            of_others = dataclasses.replace(read, tokens=tuple(others))
            start = pair.tokenizer.decode([first.id])
            assert pair.logprob_difference(start, of_others) < 1e-4
        first, second = ids(result)[:2]
        for options in (
            {"presence_penalty": 1.5, "frequency_penalty": 0.6, "max_new_tokens": 30},
            {"repetition_penalty": 0.8, "logit_bias": {first: -2.0, second: 0.7}},
        ):
            pair.assert_same_text(pair.passage(40), **options)
        assert len(backend.cached_functions()) == 1


class Conversation:
    """A talk of random tokens whose every turn is compared with one that reads all of it."""

    def __init__(self, engine: Backend, model: str, salt: str, seed: int) -> None:
        self._engine, self._model, self._salt = engine, model, salt
        self._has_states = Path(model).name in WITH_STATES
        self._dice = random.Random(seed)
        self.asked: list[int] = []
        self.text: list[int] = []

    def words(self, count: int) -> list[int]:
        return [self._dice.randrange(3, 250) for _ in range(count)]

    def ask(self, prompt: list[int]) -> int:
        """Returns how many tokens need not be computed."""
        asked, options = TokenIds(tuple(prompt)), GenerationOptions(max_new_tokens=NEW)
        row = self._engine.generate(self._model, asked, options, cache_salt=self._salt)
        assert_same(row, self._engine.generate(self._model, asked, options, mode="padded"))
        self.asked, self.text = prompt, prompt + ids(row)
        return row.cached_tokens

    def turn(self) -> None:
        """A visitor's next move."""
        known, question = self.text, self.words(self._dice.randint(1, 90))
        move = self._dice.choice(["next", "next", "next", "retry", "edit", "rewrite"])
        if not known or len(known) + len(question) > CONTEXT - NEW:
            self.ask(self.words(self._dice.randint(1, 170)))
        elif move == "next":
            assert self.ask(known + question) >= len(known) - 1
        elif move == "retry":
            last = len(self.asked) - 1
            assert self.ask(self.asked) >= (last // BLOCK * BLOCK if self._has_states else last)
        elif move == "edit":
            place = self._dice.randrange(len(self.asked))
            cached = self.ask(known[:place] + question)
            assert cached >= (0 if self._has_states else place - BLOCK)
        else:  # the template drops the answer's first half
            answer = known[len(self.asked) :]
            self.ask(self.asked + answer[len(answer) // 2 :] + question)


@pytest.mark.parametrize(("kernels", "form"), EACH)
def test_a_conversation_by_turns(
    engines: dict[str, Backend], made: Callable[[str], str], kernels: str, form: str
) -> None:
    model, engine = made(form), engines[kernels]
    for seed in range(3):
        # Two of one visitor, which begin alike, and one of somebody else.
        one, branch = (Conversation(engine, model, f"{seed}", 2 * seed + i) for i in range(2))
        other = Conversation(engine, model, f"other {seed}", seed)
        start = one.words(70)
        assert one.ask(start + one.words(5)) == 0
        assert branch.ask(start + branch.words(5)) >= (BLOCK if form in WITH_STATES else 70)
        assert other.ask(start + other.words(5)) == 0
        for _ in range(4):
            one.turn()
            branch.turn()
            other.turn()


OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0.8, "seed": 3},
    {"temperature": 1.3, "top_p": 0.7, "top_k": 0, "seed": 5},
    {"repetition_penalty": 1.6},
    {"presence_penalty": 1.5, "frequency_penalty": -0.5},
    {"logit_bias": {5: 3.0, 9: -100.0}, "temperature": 0.9, "min_p": 0.05},
    {"frequency_penalty": 2.0, "repetition_penalty": 1.2, "temperature": 0.5, "seed": 8},
    {"prompt_lookup_num_tokens": 3, "logit_bias": dict.fromkeys(range(40, 44), 100.0)},
)


@pytest.mark.parametrize(
    ("kernels", "forms", "arrivals"),
    [
        *[(kinds.OWN, [form], 30) for form in SOME],
        (kinds.XLA, ["Falcon-H1"], 30),
        *[
            pytest.param(
                *(kernels, [*MAKERS], 200), marks=[pytest.mark.release, pytest.mark.timeout(1800)]
            )
            for kernels in (kinds.OWN, kinds.XLA)
        ],
    ],
)
def test_random_arrivals(
    made: Callable[[str], str], kernels: str, forms: list[str], arrivals: int
) -> None:
    """In a memory that is too small for them; some begin alike, some are stopped."""
    models, dice = [made(form) for form in forms], random.Random(1)
    prompts: list[tuple[int, ...]] = [()]
    requests = []
    for number in range(arrivals):
        new = tuple(dice.randrange(3, 250) for _ in range(dice.choice([3, 20, 64, 150])))
        prompts.append((dice.choice(prompts)[: dice.choice([0, 0, 30, 140])] + new)[:200])
        options = dice.choice(OPTIONS) | {"max_new_tokens": dice.choice([1, 9, 40, 80])}
        asked, said = TokenIds(prompts[-1]), GenerationOptions(**options)
        requests.append(
            TextRequest(
                *(dice.choice(models), asked, said),
                cache_salt=f"{number % 3}",
                with_prompt_logprobs=number % 4 == 0,
            )
        )
    registry = Registry(kernels=kernels)
    with contextlib.closing(Backend(registry, store="off")) as backend:
        alone = [backend.submit(request).read_all() for request in requests]
    with contextlib.closing(Backend(registry, store="off", kv_bytes=1_500_000)) as backend:
        for model in models:
            pool = backend.pool_key(model)
            assert pool is not None
            for rows in (1, 4):
                backend.warm(model, [pool], rows=rows)
        streams = []
        for request in requests:
            streams.append(backend.submit(request))
            if dice.random() < 0.3:  # some come while others are under way
                next(dice.choice(streams), None)
            if dice.random() < 0.1:
                dice.choice(streams).stop()
        for stream in streams:
            for _ in stream:
                pass
        together = [stream.result for stream in streams]  # None: stopped before it began
        use = backend.kv_memory()
        # How the others met decides whether they found a prefix; this one, twice alone, must.
        longest = requests[max(range(arrivals), key=lambda number: len(prompts[number + 1]))]
        backend.submit(longest).read_all()
        twice = backend.submit(longest).read_all()
    assert max(result.batch_size for result in together if result) > 2
    assert 0 < use.used_bytes <= use.limit_bytes
    at_edge = 0
    for request, result, expected in zip(requests, together, alone, strict=True):
        assert expected is not None
        assert (
            len(expected.prompt_logprobs) == request.with_prompt_logprobs * expected.prompt_tokens
        )
        if result is not None and result.finish != "stopped":
            assert [each.logprob for each in result.prompt_logprobs] == pytest.approx(
                [each.logprob for each in expected.prompt_logprobs],
                abs=OF_STATES if forms[0] in WITH_STATES else 1e-4,
            )
        if result is None or result.finish == "stopped":
            assert result is None or ids(result) == ids(expected)[: result.new_tokens]
        elif ids(result) != ids(expected) and request.options.temperature:
            # XLA multiplies so small matrices itself, and rounds otherwise for other numbers of
            # rows: a number drawn at the very edge of a token's share falls to its neighbour.
            at_edge += 1
            pairs = zip(result.tokens, expected.tokens, strict=False)
            before = list(itertools.takewhile(lambda pair: pair[0].id == pair[1].id, pairs))
            off = max((abs(one.logprob - other.logprob) for one, other in before), default=0.0)
            assert off < (OF_STATES if forms[0] in WITH_STATES else 1e-5)
        else:
            assert_same(result, expected, OF_STATES if forms[0] in WITH_STATES else 1e-4)
    assert at_edge <= max(arrivals // 100, forms[0] in WITH_STATES)
    complete = [result for result in together if result is not None and result.finish != "stopped"]
    assert arrivals * 0.8 < len(complete)
    assert twice.cached_tokens


@pytest.mark.parametrize(
    ("kernels", "form"),
    [
        *[(kinds.OWN, form) for form in ("LFM3", "Qwen3.5", "Falcon-H1")],
        (kinds.XLA, "Falcon-H1"),
    ],
)
def test_restored_states(
    engines: dict[str, Backend],
    made: Callable[[str], str],
    tmp_path: Path,
    kernels: str,
    form: str,
) -> None:
    """In the middle of a block, and at the end of one."""
    engine, registry = engines[kernels], Registry(kernels=kernels)
    model, options, dice = made(form), GenerationOptions(max_new_tokens=NEW), random.Random(7)

    def answer(backend: Backend, prompt: list[int], salt: str = "") -> GenerationResult:
        return backend.generate(model, TokenIds(tuple(prompt)), options, cache_salt=salt)

    for count in (2 * BLOCK + 30, 2 * BLOCK - NEW + 1):
        prompt = [dice.randrange(3, 250) for _ in range(count)]
        with contextlib.closing(
            Backend(registry, store=tmp_path, prefix_store_bytes=10**9)
        ) as backend:
            prompt += ids(answer(backend, prompt, "a"))
        with contextlib.closing(
            Backend(registry, store=tmp_path, prefix_store_bytes=10**9)
        ) as backend:
            row = answer(backend, [*prompt, 5, 6], "a")
        assert row.cached_tokens == len(prompt) - 1
        assert_same(row, answer(engine, [*prompt, 5, 6]))


def test_prefixes_are_saved_before_compiles(made: Callable[[str], str], tmp_path: Path) -> None:
    """Who closes may not wait for a compiler, and kill the process."""
    backend = Backend(store=tmp_path, prefix_store_bytes=10**9)
    begun, may_end = threading.Event(), threading.Event()
    asked, options = TokenIds(tuple(range(3, 200))), GenerationOptions(max_new_tokens=1)
    backend.generate(made("GPT-2"), asked, options, cache_salt="a")
    background = backend._loop.background  # noqa: SLF001 (a job of it stands for a compiler)
    background.add("compiling", lambda _: begun.set() or may_end.wait())
    assert begun.wait(240)
    closing = threading.Thread(target=backend.close)
    closing.start()
    wait_until(lambda: len([*tmp_path.rglob("*.kv")]) == 197 // BLOCK + 1)
    assert closing.is_alive()
    may_end.set()
    closing.join()
