"""Whether an answer depends on what else happens: the same requests in every way, token by token.

`--questions` is a file with a JSON object with a "question" on each line: the test file of GSM8K
(MIT; `grade_school_math/data/test.jsonl` of the public repository openai/grade-school-math). Half
of the requests are greedy, half sampled with a seed. The first way gives the expected tokens and
log-probabilities; a row counts what another way changes. llama.cpp answers greedily, alone, then
in a crowd and over its cached prompts.
"""

from __future__ import annotations

import itertools
import json
import os
from argparse import Namespace
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.checkpoints import packaged_file
from benchmarks.client import Client
from benchmarks.harness import MeasureFailed, Row, note
from benchmarks.servers import LLAMA_CPP_MISSING, llama_cpp
from xla_backend import BackendProcess, GenerationOptions, TokenIds, question
from xla_backend.checkpoints.models import PACKAGED_MODEL, Registry
from xla_backend.checkpoints.tokenization import Tokenizer

OPTIONS = {"questions": "", "requests": 300, "new_tokens": 16, "crowd": 16}
CONTEXT = 512
FEW_DRAFTS = 3


@dataclass(frozen=True)
class Ask:
    """A request.

    Attributes:
        ids: of its prompt. salt: what shares its prefixes.
    """

    ids: tuple[int, ...]
    options: GenerationOptions
    salt: str


@dataclass(frozen=True)
class Written:
    """The tokens of an answer, and their log-probabilities."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]


def measure(options: Namespace) -> Iterator[Row | str]:
    """A row for each way."""
    if not options.questions:
        raise MeasureFailed("name the questions: --questions grade_school_math/data/test.jsonl")
    lines = Path(options.questions).read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["question"] for line in lines[: options.requests]]
    requests = _requests(texts, options.new_tokens)
    salts = map(str, itertools.count(len(requests)))

    def with_new_salts() -> list[Ask]:
        return [replace(ask, salt=next(salts)) for ask in requests]

    def drafted(ask: Ask) -> Ask:
        more = ask.options.replace(prompt_lookup_num_tokens=FEW_DRAFTS)
        return replace(ask, options=more)

    with _engine() as engine:
        expected = _answers(engine, requests)
        yield _row("alone, again", expected, _answers(engine, with_new_salts()))
        yield _row("over cached prompts", expected, _answers(engine, requests))
        crowd = _answers(engine, with_new_salts(), options.crowd)
        yield _row(f"in a crowd of {options.crowd}", expected, crowd)
        yield _row("with drafts", expected, _answers(engine, [*map(drafted, with_new_salts())]))
        yield _row(
            "stopped and continued", expected, _continued(engine, with_new_salts(), expected)
        )
    for name, cores in (("after a restart", None), ("with one thread", 1)):
        with _engine(cores) as engine:
            yield _row(name, expected, _answers(engine, with_new_salts()))
    yield from _of_llama_cpp(texts, options)


def _requests(texts: Sequence[str], new_tokens: int) -> list[Ask]:
    tokenizer = Tokenizer.load(Registry().locate(PACKAGED_MODEL).folder)
    greedy = GenerationOptions(max_new_tokens=new_tokens)
    return [
        Ask(
            tuple(tokenizer.encode(question(text))),
            greedy.replace(temperature=0.8, top_p=0.95, seed=number) if number % 2 else greedy,
            str(number),
        )
        for number, text in enumerate(texts)
    ]


@contextmanager
def _engine(cores: int | None = None) -> Iterator[BackendProcess]:
    """An engine without a store, on so many cores."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:cores])
    try:
        engine = BackendProcess(default_model=PACKAGED_MODEL, store="off", warm_up=None)
    finally:
        os.sched_setaffinity(0, allowed)
    try:
        engine.wait_ready()
        yield engine
    finally:
        engine.close()


def _answers(engine: BackendProcess, requests: Sequence[Ask], at_once: int = 1) -> list[Written]:
    def answer(ask: Ask) -> Written:
        result = engine.generate(
            PACKAGED_MODEL, TokenIds(ask.ids), ask.options, cache_salt=ask.salt
        )
        tokens = result.tokens
        return Written(tuple(t.id for t in tokens), tuple(t.logprob for t in tokens))

    with ThreadPoolExecutor(at_once) as threads:
        return list(threads.map(answer, requests))


def _continued(
    engine: BackendProcess, requests: Sequence[Ask], expected: Sequence[Written]
) -> list[Written]:
    """Greedy answers whose first half is part of the prompt; sampled ones as they are expected,
    because a seed's numbers start again."""
    halves = [len(one.ids) // 2 for one in expected]
    greedy = [place for place, ask in enumerate(requests) if not ask.options.do_sample]
    found = _answers(
        engine,
        [
            replace(
                requests[place],
                ids=requests[place].ids + expected[place].ids[: halves[place]],
                options=requests[place].options.replace(
                    max_new_tokens=requests[place].options.max_new_tokens - halves[place]
                ),
            )
            for place in greedy
        ],
    )
    whole = list(expected)
    for place, rest in zip(greedy, found, strict=True):
        first = halves[place]
        whole[place] = Written(
            expected[place].ids[:first] + rest.ids,
            expected[place].logprobs[:first] + rest.logprobs,
        )
    return whole


def _row(way: str, expected: Sequence[Written], found: Sequence[Written]) -> Row:
    note(f"  {way}")
    pairs = list(zip(expected, found, strict=True))
    return {
        "program": "this engine",
        "way": way,
        "answers": len(pairs),
        "texts changed": sum(one.ids != other.ids for one, other in pairs),
        "log-probabilities changed": sum(one.logprobs != other.logprobs for one, other in pairs),
    }


def _of_llama_cpp(texts: Sequence[str], options: Namespace) -> Iterator[Row | str]:
    with llama_cpp(packaged_file(), options.crowd, CONTEXT) as url:
        if url is None:
            yield LLAMA_CPP_MISSING
            return
        client = Client(url, PACKAGED_MODEL)

        def answer(text: str) -> str:
            message = {"role": "user", "content": text}
            more = {"max_tokens": options.new_tokens, "temperature": 0.0}
            return client.chat([message], **more).text

        expected = [answer(text) for text in texts]
        for name, at_once in (("over cached prompts", 1), (f"in a crowd of {options.crowd}", 16)):
            with ThreadPoolExecutor(at_once) as threads:
                found = list(threads.map(answer, texts))
            changed = sum(one != other for one, other in zip(expected, found, strict=True))
            yield {
                "program": "llama.cpp",
                "way": name,
                "answers": len(texts),
                "texts changed": changed,
                "log-probabilities changed": "",
            }
