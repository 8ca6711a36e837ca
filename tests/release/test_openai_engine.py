"""OpenAI's protocol with a real engine: the same texts as by the other ways to it, and batches."""

import json
import math
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
import tokenizers
from gradio_client import Client

from playground.tabs.speech.examples import FOLDER
from tests import checkpoints
from tests.playground.served import serve
from tests.waiting import wait_until
from xla_backend.interface.request_queue import AT_ONCE

RECORDING = FOLDER / "command-1.flac"
QUESTION = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where is it?"}]
SAMPLED: dict[str, Any] = {"temperature": 0.8, "seed": 5}


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.instruct(tmp_path_factory.mktemp("models") / "talker")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "requests.jsonl"


@pytest.fixture(scope="module")
def url(talker: Path, small_gpt2: Path, log: Path) -> Iterator[str]:
    models = f"{talker},{small_gpt2},whisper-commands"
    served = serve("--models", models, "--no-store", "--metrics", "--log-requests", str(log))
    yield served.url
    served.end()


@pytest.fixture(scope="module")
def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def of_gradio(url: str) -> Client:
    return Client(url, verbose=False)


def test_the_key_has_all_of_its_function(client: openai.OpenAI, small_gpt2: Path) -> None:
    asked = {"model": str(small_gpt2), "prompt": "Once upon a time", "max_tokens": 8}
    lookup: Any = client.completions.create(**asked, extra_body={"prompt_lookup_num_tokens": 3})
    sizes = {"padded_length": 16, "num_beams": 1, "max_new_tokens": 16}
    assert lookup.timings["key"] == sizes | {"prompt_lookup_num_tokens": 3}


def test_token_ids_are_their_text(client: openai.OpenAI, small_gpt2: Path) -> None:
    ids = tokenizers.Tokenizer.from_file(str(small_gpt2 / "tokenizer.json")).encode("The wind").ids
    asked: dict[str, Any] = {"model": str(small_gpt2), "max_tokens": 8, "temperature": 0}
    text, tokens = (client.completions.create(prompt=each, **asked) for each in ("The wind", ids))
    assert tokens.choices[0].text == text.choices[0].text
    assert tokens.usage == text.usage
    with pytest.raises(openai.BadRequestError, match="token id 1000000 is not one of this model's"):
        client.completions.create(prompt=[10**6], **asked)


def test_logprobs_are_probabilities_of_the_text(client: openai.OpenAI, small_gpt2: Path) -> None:
    [choice] = client.completions.create(
        model=str(small_gpt2), prompt="The wind", max_tokens=8, temperature=0, logprobs=5
    ).choices
    for logprob, top in zip(
        choice.logprobs.token_logprobs, choice.logprobs.top_logprobs, strict=True
    ):
        # Greedy: each is the most likely of those that are named.
        assert logprob == pytest.approx(max(top.values()))
        assert sum(map(math.exp, top.values())) <= 1.001


def test_a_stop_string_ends_the_text(client: openai.OpenAI, small_gpt2: Path) -> None:
    asked: dict[str, Any] = {"model": str(small_gpt2), "prompt": "The wind", "temperature": 0}
    whole = client.completions.create(max_tokens=24, **asked).choices[0].text
    stop = whole[len(whole) // 2 :][:3]
    [cut] = client.completions.create(max_tokens=24, stop=stop, **asked).choices
    assert cut.finish_reason == "stop"
    assert cut.text == whole[: whole.index(stop)]


def test_n_texts_run_side_by_side(client: openai.OpenAI, small_gpt2: Path) -> None:
    asked: dict[str, Any] = {"model": str(small_gpt2), "prompt": "The wind", "max_tokens": 16}
    alone = [
        client.completions.create(temperature=0.8, seed=seed, **asked).choices[0].text
        for seed in range(4)
    ]
    sizes = set()

    def side_by_side() -> bool:
        texts = [""] * 4
        for event in client.completions.create(temperature=0.8, seed=0, n=4, stream=True, **asked):
            [choice] = event.choices
            texts[choice.index] += choice.text
            if choice.finish_reason:  # an idle engine begins the first at once, without the others
                sizes.add(event.model_extra["timings"]["batch_size"])
        assert texts == alone
        return max(sizes) > 1  # once the function for several is there, made in the background

    wait_until(side_by_side)


def test_both_apis_share_rows(client: openai.OpenAI, of_gradio: Client, small_gpt2: Path) -> None:
    """One of each waits at a time: a batch of two has one of both."""
    asked: dict[str, Any] = {"model": str(small_gpt2), "prompt": "The wind"}
    ahead: dict[str, Any] = {**asked, "max_tokens": 200, "extra_body": {"num_beams": 2}}

    def together() -> bool:
        with ThreadPoolExecutor(3) as threads:
            first = threads.submit(client.completions.create, **ahead)
            job = of_gradio.submit(**asked, max_new_tokens=32, api_name="/generate")
            own: Any = client.completions.create(max_tokens=32, temperature=0, **asked)
            first.result()
        other = job.result()
        assert own.choices[0].text == other["text"]
        return own.timings["batch_size"] == other["batch_size"] == 2

    wait_until(together)


def test_models_have_fingerprints(client: openai.OpenAI, small_gpt2: Path, talker: Path) -> None:
    def fingerprint(model: Path) -> str | None:
        asked = client.completions.create(model=str(model), prompt="The", max_tokens=1)
        return asked.system_fingerprint

    assert fingerprint(small_gpt2) == fingerprint(small_gpt2)
    assert fingerprint(small_gpt2) != fingerprint(talker)


def test_curl_reads_a_stream(url: str, small_gpt2: Path) -> None:
    body = {"model": str(small_gpt2), "prompt": "The wind", "max_tokens": 8, "stream": True}
    asked = [f"{url}/v1/completions", "-H", "Content-Type: application/json"]
    done = subprocess.run(
        ["curl", "-sN", *asked, "-d", json.dumps(body)], capture_output=True, text=True
    )
    *events, end = [line for line in done.stdout.splitlines() if line]
    assert end == "data: [DONE]"
    last = json.loads(events[-1].removeprefix("data: "))
    assert last["choices"][0]["finish_reason"] in ("stop", "length")
    assert last["timings"]["predicted_n"] <= 8


def test_more_requests_than_rows_are_answered(client: openai.OpenAI, small_gpt2: Path) -> None:
    def ask(number: int) -> str:
        answer = client.completions.create(
            model=str(small_gpt2), prompt="The wind", max_tokens=16, seed=number % 4
        )
        return answer.choices[0].text

    with ThreadPoolExecutor(3 * AT_ONCE) as threads:
        texts = list(threads.map(ask, range(3 * AT_ONCE)))
    assert texts == texts[:4] * (len(texts) // 4)
