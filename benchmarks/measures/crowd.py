"""Clients that arrive at `/v1` at intervals, compared with llama.cpp with a slot for each.

Every client requests another story of a fixed number of tokens from SmolLM2, with the end token
forbidden. `--clients 1 2 4 8 16 --gap-ms 0` shows what batches bring. The first round has an empty
store; the later ones start when nothing is left to compile, the servers in turn, and their medians
count. `--watched 1` adds rounds in which a page shows *Requests*, with 200 that have ended.
"""

from __future__ import annotations

import statistics
import threading
from argparse import Namespace
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import httpx2

from benchmarks.checkpoints import packaged_file
from benchmarks.client import PATIENCE_S, Answer, Client, ask_all
from benchmarks.harness import Row, in_turn, ratio
from benchmarks.servers import LLAMA_CPP_MISSING, llama_cpp, settle, this_app
from xla_backend.checkpoints.models import PACKAGED_MODEL
from xla_backend.interface.request_record import NEWEST

OPTIONS = {"clients": [16], "gap_ms": 150.0, "new_tokens": 100, "rounds": 3, "watched": 0}
CONTEXT = 512
ENGINE, WATCHED, PEER = "this engine", "watched", "llama.cpp"
SUBJECTS = "a dog,the sea,a clock,two sisters,a bridge,rain,a thief,an old map,bread,the moon"
ANY_LENGTH = {"logit_bias": {"2": -100}, "temperature": 0.0}
"""Options that forbid SmolLM2's end of a text."""


@dataclass(frozen=True)
class Wave:
    """The clients' times of a server in one round, in seconds, and tokens/s of all together."""

    ttft_s: float
    longest_ttft_s: float
    tpot_s: float
    rate: float

    @classmethod
    def of(cls, answers: list[Answer], wall_s: float) -> Wave:
        """From the answers and the seconds for all of them."""
        waits = [answer.ttft_s for answer in answers]
        return cls(
            statistics.median(waits),
            max(waits),
            statistics.median(answer.tpot_s for answer in answers),
            sum(answer.tokens for answer in answers) / wall_s,
        )


def measure(options: Namespace) -> Iterator[Row | str]:
    """A row for each server's first round with so many clients, and for the later ones."""
    peer = llama_cpp(packaged_file(), max(options.clients), CONTEXT)
    with this_app("--models", PACKAGED_MODEL) as url, peer as peer_url:
        settle(url)

        def wave(name: str, address: str, clients: int) -> Wave:
            client = Client(address, PACKAGED_MODEL)
            more = ANY_LENGTH | {"max_tokens": options.new_tokens}
            requests = [partial(client.chat, story(number), **more) for number in range(clients)]
            with watched(url) if name == WATCHED else nullcontext():
                answers = ask_all(requests, options.gap_ms / 1000)
            if name != PEER:
                settle(url)
            return Wave.of(*answers)

        addresses = {ENGINE: url} | ({PEER: peer_url} if peer_url else {})
        if options.watched:
            addresses[WATCHED] = url
            for number in range(NEWEST):
                Client(url, PACKAGED_MODEL).chat(story(number), max_tokens=1)
        waves = {
            (name, clients): partial(wave, name, address, clients)
            for clients in options.clients
            for name, address in addresses.items()
        }
        for title, rounds in (("first", 1), ("later", options.rounds)):
            taken = in_turn(waves, rounds)
            for (name, clients), found in taken.items():
                yield {
                    "server": name,
                    "clients": clients,
                    "rounds": title,
                    "TTFT median, s": statistics.median(each.ttft_s for each in found),
                    "largest, s": statistics.median(each.longest_ttft_s for each in found),
                    "TPOT median, ms": 1000 * statistics.median(each.tpot_s for each in found),
                    "tokens/s": statistics.median(each.rate for each in found),
                }
            rates = {way: [each.rate for each in found] for way, found in taken.items()}
            for clients in options.clients if options.watched else ():
                of = ratio(rates[WATCHED, clients], rates[ENGINE, clients])
                yield f"Tokens/s of {clients}, the {title} rounds, watched over not: {of:.3f}."
    if not peer_url:
        yield LLAMA_CPP_MISSING


@contextmanager
def watched(url: str) -> Iterator[None]:
    """The stream of *Requests* is open and read, as by a page that all are trusted on."""
    is_over = threading.Event()
    with (
        httpx2.stream("GET", f"{url}/requests/events", timeout=PATIENCE_S, trust_env=False) as sent,
        ThreadPoolExecutor(1) as reader,
    ):
        chunks = sent.iter_raw()
        next(chunks)
        reader.submit(lambda: next((chunk for chunk in chunks if is_over.is_set()), None))
        yield
        is_over.set()


def story(number: int) -> list[dict[str, str]]:
    """Messages that ask for a story, another one for each number."""
    subjects = SUBJECTS.split(",")
    subject = f"{subjects[number % len(subjects)]} in the year {1900 + number}"
    return [{"role": "user", "content": f"Tell me a story about {subject}."}]
