"""Tests of `naming`: names that are the same whenever, and only when, the code is."""

from pathlib import Path

import pytest
from transformers import GenerationConfig, GPT2Config

from tests import checkpoints
from tests.program import python
from xla_backend.checkpoints.models import Registry
from xla_backend.checkpoints.weights import sample
from xla_backend.compilation import naming
from xla_backend.interface.buckets import CacheKey

KEY = CacheKey(16, 1, 32)
LOOKUP_KEY = CacheKey(16, 1, 32, prompt_lookup_num_tokens=3)
OTHER_KEYS = [CacheKey(32, 1, 32), CacheKey(16, 4, 32), CacheKey(16, 1, 64)]


def identity(
    layers: int = 1, end: int = 0, sample: bytes = b"weights", weights: str = "auto"
) -> str:
    generation_config = GenerationConfig(eos_token_id=end)
    return naming.identity(GPT2Config(n_layer=layers), generation_config, sample, weights)


def test_identity_is_that_of_architecture_special_tokens_and_weights() -> None:
    assert identity() == identity()
    others = [identity(layers=2), identity(end=1), identity(sample=b"other weights")]
    others.append(identity(weights="int8"))
    assert len({identity(), *others}) == 1 + len(others)


def test_identity_is_the_same_in_another_process(tmp_path: Path) -> None:
    folder = checkpoints.gpt2(tmp_path / "model", n_layer=1)
    files = Registry().locate(str(folder))
    here = naming.identity(files.config, files.generation_config, sample(folder), "auto")
    script = (
        "import sys\n"
        "from xla_backend.compilation import naming\n"
        "from xla_backend.checkpoints.models import Registry\n"
        "from xla_backend.checkpoints.weights import sample\n"
        "files = Registry().locate(sys.argv[1])\n"
        "own = sample(files.folder)\n"
        "print(naming.identity(files.config, files.generation_config, own, 'auto'))\n"
        "print('tensorflow' in sys.modules)\n"
    )
    assert python(script, folder).split() == [here, "False"]


def test_no_two_names_are_alike() -> None:
    keys = [KEY, *OTHER_KEYS, LOOKUP_KEY]
    names = [
        naming.trace_entry(function)
        for model in ("m1", "m2")
        for function in (
            naming.prefill_function(model),
            naming.decode_function(model, KEY),
            naming.decode_function(model, CacheKey(16, 4, 32)),
            naming.decode_function(model, LOOKUP_KEY),
        )
    ]
    names += [naming.decode_code_entry(model, key) for model in ("m1", "m2") for key in keys]
    names += [naming.prefill_code_entry(model, n) for model in ("m1", "m2") for n in (16, 32)]
    assert len(set(names)) == len(names) == 8 + 10 + 4


ENTRIES = {
    "prefill trace": naming.trace_entry(naming.prefill_function("m")),
    "decode trace": naming.trace_entry(naming.decode_function("m", KEY)),
    "prefill": naming.prefill_code_entry("m", 16),
    "decode": naming.decode_code_entry("m", KEY),
}


@pytest.mark.parametrize(
    ("in_memory", "needed"),
    [
        pytest.param([], ENTRIES.keys(), id="nothing in memory"),
        pytest.param(
            [CacheKey(32, 4, 32)],
            {"decode trace", "prefill", "decode"},
            id="another key of the model",
        ),
        pytest.param([CacheKey(32, 1, 32)], {"prefill", "decode"}, id="the same beams"),
        pytest.param([CacheKey(16, 4, 32)], {"decode trace", "decode"}, id="the same padding"),
        pytest.param([CacheKey(16, 1, 64)], {"decode"}, id="the same beams and padding"),
        pytest.param([LOOKUP_KEY], {"decode trace", "decode"}, id="the same but for its drafts"),
    ],
)
def test_a_key_is_stored_when_all_that_memory_lacks_is(
    in_memory: list[CacheKey], needed: set[str]
) -> None:
    assert naming.missing("m", KEY, in_memory, lambda name: name in ENTRIES.values()) == []
    for kind, entry in ENTRIES.items():
        lacks = naming.missing("m", KEY, in_memory, lambda name, entry=entry: name != entry)
        assert lacks == [kind] * (kind in needed), kind
