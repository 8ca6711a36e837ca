"""Token for token: every architecture with rotary positions against PyTorch's own `generate`, and
how likely PyTorch says that answers to questions are.

What PyTorch writes stands in rotary_parity.json; `rotary_parity` says how it came there.
"""

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import gguf_files
from tests.decoder_forms import AS_GGUF, FORMS, LONG_FORM, SHORT_FORM
from tests.xla_backend.model.rotary_parity import (
    DECIDED,
    EXPECTED,
    LARGEST_DIFFERENCE,
    NEW_TOKENS,
    PROMPT_TOKENS,
    QUESTIONS,
    prompt,
    write_ending,
)
from xla_backend import Backend, BackendProcess, BucketRules, GenerationOptions, GenerationResult
from xla_backend.checkpoints.architectures.positions import CONTEXT_VARIABLE
from xla_backend.checkpoints.tokenization import Tokenizer

FORM_EXPECTED = json.loads(EXPECTED.read_text())["forms"]


RULES = BucketRules(padded_lengths=tuple(PROMPT_TOKENS), max_new_tokens=(NEW_TOKENS,))


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    with contextlib.closing(Backend(rules=RULES)) as made:
        yield made


@pytest.fixture
def process(_context: None) -> Iterator[BackendProcess]:
    """One for each form: functions of 27 forms have more memory mappings than Linux allows a
    process by default (`vm.max_map_count`), and LLVM crashes."""
    with contextlib.closing(BackendProcess(rules=RULES, default_model=None, warm_up=None)) as made:
        yield made


@pytest.fixture(autouse=True)
def _context(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.getfixturevalue("form") == LONG_FORM:
        monkeypatch.setenv(CONTEXT_VARIABLE, "128")


LIKE_OTHERS = {
    *("Llama 3", "Llama YaRN", "Qwen2", "Qwen3", "SmolLM3", "Granite", "Phi-3", "OLMo 2", "OLMo 3"),
    *("Phi-3 beyond its first context", "Qwen3 experts", "Granite experts", "Granite 4"),
    *("Granite 4 experts", "Granite shared experts", "Qwen2 experts", "Falcon-H1 norms"),
    *("LFM2", "LFM2 experts", "Qwen3.5 experts"),
}
"""Forms without a kind of layer that padded functions and rows of the pool each have code of their
own for but other forms lack; a release sees padded functions of these, too."""


@pytest.mark.parametrize("form", FORMS)
def test_pytorch_writes_the_same_tokens(backend: Backend, tmp_path: Path, form: str) -> None:
    """As rows of the pool at all lengths; of some, of a padded prompt, of two by beams."""
    beams = (1, 4) if form in ("Gemma 3", "Qwen3.5") else () if form in LIKE_OTHERS else (1,)
    _compare(backend, tmp_path, form, lambda length, asked: length == 40 and asked in beams)


@pytest.mark.parametrize("form", AS_GGUF)
def test_a_gguf_file_gives_the_same_tokens(backend: Backend, tmp_path: Path, form: str) -> None:
    """As rows of the pool."""
    _compare(backend, tmp_path, form, lambda length, beams: False, AS_GGUF[form])


@pytest.mark.release
@pytest.mark.parametrize("form", FORMS)
def test_at_every_length_and_by_every_search(
    process: BackendProcess, tmp_path: Path, form: str
) -> None:
    _compare(process, tmp_path, form, lambda length, beams: True)


def _compare(
    backend: Backend | BackendProcess,
    tmp_path: Path,
    form: str,
    is_asked: Callable[[int, int], bool],
    architecture: str = "",
) -> None:
    expected = FORM_EXPECTED[form]
    folder = write_ending(form, tmp_path / "model")
    encode = Tokenizer.load(folder).encode
    ends: tuple[int, ...] = ()
    if architecture:  # such a file cannot name two ordinary tokens as ends
        folder = gguf_files.convert(tmp_path / "model.gguf", folder, architecture)
        ends = tuple(expected["eos_token_id"])
    differences, written = [], []
    for case, salt in itertools.product(expected["cases"], ("", "pool")):
        length, num_beams = case["padded_length"], case["options"]["num_beams"]
        if not (num_beams == 1 if salt else is_asked(length, num_beams)):
            continue
        result = backend.generate(
            str(folder),
            prompt(length, encode),
            GenerationOptions(
                max_new_tokens=NEW_TOKENS,
                stop_token_ids=ends,
                exact_key=not salt,
                **case["options"],
            ),
            cache_salt=salt,
        )
        assert result.key.is_pooled == bool(salt)
        assert salt or result.key.padded_length == length
        assert [token.id for token in result.tokens] == case["ids"], (case["options"], salt)
        differences.append(_difference(result, case))
        written.append(tuple(case["ids"]))
    assert max(differences) < LARGEST_DIFFERENCE
    assert len({*written}) > 1, "searches would not matter"
    if form == SHORT_FORM:
        return
    decided = backend.decide(str(folder), DECIDED, QUESTIONS).decisions
    for decision, logprobs in zip(decided, expected["decisions"], strict=True):
        assert decision.logprobs == pytest.approx(logprobs, abs=1e-3)


def _difference(result: GenerationResult, case: dict[str, Any]) -> float:
    """By how much a reported log-probability is at most off PyTorch's."""
    ours = [
        [token.logprob, *(likely.logprob for likely in token.top_logprobs)]
        for token in result.tokens
    ]
    known = np.array(case["logprobs"])  # of fewer of the most likely tokens
    return float(np.max(np.abs(np.array(ours)[:, : known.shape[1]] - known)))
