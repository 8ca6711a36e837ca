"""Names of compiled functions in TensorFlow, in XLA's cache and in the store.

The page's process, without TensorFlow, looks the same names up in the store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Literal

from xla_backend.interface.buckets import CHUNK_SIZES, CacheKey

if TYPE_CHECKING:
    from transformers import GenerationConfig, PretrainedConfig

Part = Literal["prefill trace", "decode trace", "prefill", "decode"]
"""What the functions of a key are made of: two graphs, and the machine code of each."""


def identity(
    config: PretrainedConfig, generation_config: GenerationConfig, sample: bytes, kinds: str
) -> str:
    """A hash of the architecture, the special tokens and the weights: 20 hexadecimal digits.

    Args:
        config, generation_config: of the model.
        sample: from `weights.sample`: hashing half a gigabyte would take longer than restoring a
            function from disk.
        kinds: the formats of weights and activations; see `checkpoints.kinds.all_of`.
    """
    digest = hashlib.blake2b(digest_size=10)
    digest.update(config.to_json_string(use_diff=False).encode())
    digest.update(generation_config.to_json_string(use_diff=False).encode())
    digest.update(sample)
    digest.update(kinds.encode())
    return digest.hexdigest()


def prefill_function(model_identity: str) -> str:
    """Name of the function that runs a prompt of any padded length."""
    return f"xla_backend_prefill_{model_identity}"


def decode_function(model_identity: str, key: CacheKey, rows: int = 1) -> str:
    """Name of the function that adds tokens, for any padded length and number of tokens."""
    sizes = f"pool{rows}" if key.is_pooled else f"{key.num_beams}"
    if key.prompt_lookup_num_tokens:
        sizes += f"_lookup{key.prompt_lookup_num_tokens}"
    return f"xla_backend_decode_{sizes}_{model_identity}"


def read_function(model_identity: str) -> str:
    """Name of the function that reads a chunk of a prompt, of any size and after any length."""
    return f"xla_backend_read_{model_identity}"


def trace_entry(function: str) -> str:
    """Name of the store's entry with a function's definition."""
    return f"{function}.trace"


def prefill_code_entry(model_identity: str, padded_length: int) -> str:
    """Name of the store's entry with prefill's machine code for a padded length."""
    return f"{prefill_function(model_identity)}.{padded_length}"


def read_code_entry(model_identity: str, context_length: int, chunk: int) -> str:
    """Name of the store's entry with the machine code for chunks of a size."""
    return f"{read_function(model_identity)}.{context_length}x{chunk}"


def prompt_code_entries(model_identity: str, key: CacheKey) -> list[str]:
    """Names of the store's entries with the machine code that runs a key's prompts."""
    if not key.is_pooled:
        return [prefill_code_entry(model_identity, key.padded_length)]
    return [read_code_entry(model_identity, key.padded_length, size) for size in CHUNK_SIZES]


def decode_code_entry(model_identity: str, key: CacheKey, rows: int = 1) -> str:
    """Name of the store's entry with decode's machine code for a cache key."""
    function = decode_function(model_identity, key, rows)
    return f"{function}.{key.padded_length}x{key.max_new_tokens}"


def missing(
    model_identity: str,
    key: CacheKey,
    in_memory: Collection[CacheKey],
    holds: Callable[[str], bool],
) -> Collection[Part]:
    """What must be traced or compiled for a cache key; empty if all can be restored.

    Args:
        model_identity: from `identity`.
        in_memory: the model's compiled keys, which may share functions with this one.
        holds: whether the store has an entry of this name.
    """
    decode = decode_function(model_identity, key)
    needed: list[tuple[Part, str]] = [("decode", decode_code_entry(model_identity, key))]
    alike = [other for other in in_memory if other.is_pooled == key.is_pooled]
    if not alike:
        of_prompt = read_function if key.is_pooled else prefill_function
        needed.append(("prefill trace", trace_entry(of_prompt(model_identity))))
    if all(decode_function(model_identity, other) != decode for other in in_memory):
        needed.append(("decode trace", trace_entry(decode)))
    if all(other.padded_length != key.padded_length for other in alike):
        needed += [("prefill", entry) for entry in prompt_code_entries(model_identity, key)]
    return list(dict.fromkeys(part for part, entry in needed if not holds(entry)))
