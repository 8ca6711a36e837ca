"""What PyTorch writes with small random checkpoints of the rotary decoders, kept as JSON.

Knows the forms that are compared, the prompts and options, and how PyTorch's Transformers is asked.
Must not know the engine under test. As a program it asks anew, which needs PyTorch, and compares
with the file or writes it:

    make parity [ARGS=--write]
"""

import argparse
import itertools
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests import checkpoints
from xla_backend.interface.decisions import Question

EXPECTED = Path(__file__).with_suffix(".json")
NEW_TOKENS = 12
PROMPT_TOKENS = {8: 5, 16: 16, 40: 33}
"""Padded length: tokens of the prompt that is asked with. One prompt needs no padding."""
SEARCHES: tuple[dict[str, Any], ...] = (
    {"num_beams": 1},
    {"num_beams": 2},
    {"num_beams": 4},
    {"num_beams": 1, "repetition_penalty": 1.3},
    {"num_beams": 4, "repetition_penalty": 0.8, "length_penalty": 2.0},
)
DECIDED = checkpoints.TEXT[:150]
QUESTIONS = Question.all_of(
    {
        "fox": {"type": "yes_no", "instructions": "Is there a fox?"},
        "owl": {"type": "yes_no", "instructions": "Is the owl young?"},
        "where": {"type": "choice", "criteria": ["the river", "the hill", "a red kite", "r"]},
        "happy": {"type": "score", "instructions": "Happy?", "criteria": ["no", "so so", "yes"]},
    }
)
"""About that text; answers are of one token and of several."""
LARGEST_DIFFERENCE = 1e-4
"""Of log-probabilities: sums in another order move logits within ±40 by some 1e-5."""

LONG_FORM = "Phi-3 beyond its first context"
"""Which is served only where a longer context is asked for."""
SHORT_FORM = "Phi-3"
"""Whose context is too short for the questions."""
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,  # the longest prompt goes far beyond
}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
}
_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "short_factor": [1.0, 1.1, 1.3, 1.6, 2.0, 2.5],
    "long_factor": [1.2, 1.7, 2.6, 4.0, 6.0, 9.0],
    "partial_rotary_factor": 0.75,
}
_LOCAL = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
_FALCON_H1 = {
    "embedding_multiplier": 3.0,
    "lm_head_multiplier": 0.7,
    "attention_in_multiplier": 1.2,
    "attention_out_multiplier": 0.8,
    "key_multiplier": 0.6,
    "ssm_in_multiplier": 0.9,
    "ssm_out_multiplier": 1.3,
    "ssm_multipliers": [0.8, 1.1, 0.7, 1.4, 0.6],
    "mlp_multipliers": [1.3, 0.7],
}
FORMS: dict[str, dict[str, Any]] = {
    "Llama": {"model_type": "llama", "mlp_bias": True, "attention_bias": True},
    "Llama 3": {
        "model_type": "llama",
        "dtype": "bfloat16",
        "rope_parameters": _LLAMA3,
        "tie_word_embeddings": True,
        "num_attention_heads": 6,
    },
    "Llama YaRN": {"model_type": "llama", "rope_parameters": _YARN},
    # All layers slide; the window is shorter than two of the prompts.
    "Mistral": {"model_type": "mistral", "sliding_window": 7, "num_key_value_heads": 1},
    "Qwen2": {"model_type": "qwen2", "dtype": "float16", "tie_word_embeddings": True},
    "Qwen3": {"model_type": "qwen3", "shards": 3, "head_dim": 16},
    "Gemma 2": {
        "model_type": "gemma2",
        "sliding_window": 6,
        "query_pre_attn_scalar": 20,
        "attn_logit_softcapping": 4.0,
        "final_logit_softcapping": 9.0,
        "seed": 2,  # with others the texts repeat one token
    },
    "Gemma 3": {
        "model_type": "gemma3_text",
        "image_model": "gemma3",
        "sliding_window": 6,
        "num_hidden_layers": 3,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "rope_parameters": _LOCAL,
        "query_pre_attn_scalar": 12,
        "num_key_value_heads": 1,
    },
    # The last three layers attend to keys of the first three, of either kind and size.
    "Gemma 4": {
        "model_type": "gemma4_text",
        "sliding_window": 6,
        "num_hidden_layers": 6,
        "layer_types": ["sliding_attention", "full_attention"] * 3,
        "num_kv_shared_layers": 3,
        "use_double_wide_mlp": True,
        "global_head_dim": 16,
        "final_logit_softcapping": 9.0,
        "num_key_value_heads": 1,
    },
    "SmolLM3": {"model_type": "smollm3", "num_hidden_layers": 4, "no_rope_layer_interval": 2},
    "Granite": {
        "model_type": "granite",
        "attention_multiplier": 0.2,
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.7,
        "logits_scaling": 1.7,
    },
    "Ministral 3": {
        "model_type": "ministral3",
        "image_model": "mistral3",
        "rope_parameters": _YARN
        | {"llama_4_scaling_beta": 0.4, "mscale": 1.0, "mscale_all_dim": 0.5},
    },
    SHORT_FORM: {
        "model_type": "phi3",
        "hidden_size": 64,
        "head_dim": 16,
        "sliding_window": 20,
        "rope_parameters": _LONGROPE,
        "original_max_position_embeddings": 64,
    },
    LONG_FORM: {
        "model_type": "phi3",
        "hidden_size": 64,
        "head_dim": 16,
        "tie_word_embeddings": True,
        "rope_parameters": _LONGROPE,
        "original_max_position_embeddings": 4,  # shorter than every prompt
    },
    "OLMo 2": {"model_type": "olmo2", "num_key_value_heads": 4},
    "OLMo 3": {
        "model_type": "olmo3",
        "num_hidden_layers": 4,
        "sliding_window": 6,
        "rope_parameters": {
            "full_attention": _YARN,
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    },
    # Some experts get no token; the layer in the middle has none.
    "Qwen3 experts": {
        "model_type": "qwen3_moe",
        "num_hidden_layers": 3,
        "mlp_only_layers": [1],
        "moe_intermediate_size": 24,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "norm_topk_prob": True,
    },
    "OLMoE": {
        "model_type": "olmoe",
        "intermediate_size": 24,
        "num_local_experts": 12,
        "num_experts_per_tok": 3,
    },
    "Granite experts": {
        "model_type": "granitemoe",
        "intermediate_size": 24,
        "num_local_experts": 6,
        "num_experts_per_tok": 2,
        "attention_multiplier": 0.2,
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.7,
        "logits_scaling": 1.7,
        "dtype": "bfloat16",
    },
    "Granite 4": {
        "model_type": "granitemoehybrid",
        "num_experts_per_tok": 0,
        "attention_multiplier": 0.2,
        "tie_word_embeddings": True,
    },
    "Granite 4 Mamba": {
        "model_type": "granitemoehybrid",
        "num_experts_per_tok": 0,
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "layer_types": ["mamba", "attention", "mamba", "mamba"],
        "position_embedding_type": "nope",
        "mamba_n_heads": 8,
        "mamba_d_head": 16,
        "mamba_n_groups": 2,
        "mamba_d_state": 12,
        "mamba_proj_bias": True,
        "attention_multiplier": 0.2,
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.7,
        "logits_scaling": 1.7,
    },
    "Granite 4 experts": {
        "model_type": "granitemoehybrid",
        "hidden_size": 64,
        "intermediate_size": 24,
        "num_hidden_layers": 3,
        "layer_types": ["mamba", "attention", "mamba"],
        "position_embedding_type": "nope",
        "mamba_n_heads": 8,
        "mamba_d_head": 16,
        "mamba_d_state": 12,
        "num_local_experts": 6,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 32,
        "attention_multiplier": 0.2,
        "residual_multiplier": 0.7,
    },
    "Granite shared experts": {
        "model_type": "granitemoeshared",
        "intermediate_size": 24,
        "attention_multiplier": 0.2,
    },
    "Qwen2 experts": {"model_type": "qwen2_moe"},
    # As all published ones up to 7B: without norms of what states yield.
    "Falcon-H1": {"model_type": "falcon_h1", **_FALCON_H1},
    "Falcon-H1 norms": {
        "model_type": "falcon_h1",
        "num_hidden_layers": 3,
        "mamba_rms_norm": True,
        "mamba_norm_before_gate": False,  # as in 34B
        **_FALCON_H1,
    },
    "LFM2": {
        "model_type": "lfm2",
        "num_hidden_layers": 4,
        "layer_types": ["conv", "full_attention", "conv", "conv"],
        "conv_L_cache": 4,
        "conv_bias": True,
    },
    "LFM2 experts": {
        "model_type": "lfm2_moe",
        "num_hidden_layers": 3,
        "layer_types": ["conv", "full_attention", "conv"],
        "num_dense_layers": 1,
        "routed_scaling_factor": 1.3,
    },
    "LFM3": {
        "model_type": "lfm3",
        "num_hidden_layers": 4,
        "layer_types": ["conv", "sliding_attention", "full_attention", "conv"],
        "sliding_window": 6,
        "conv_L_cache": 7,
    },
    "Qwen3.5": {
        "model_type": "qwen3_5_text",
        "image_model": "qwen3_5",
        "seed": 1,  # with others a text ends at once
        "num_hidden_layers": 4,
        "layer_types": [*["linear_attention"] * 2, "full_attention", "linear_attention"],
    },
    "Qwen3.5 experts": {
        "model_type": "qwen3_5_moe_text",
        "image_model": "qwen3_5_moe",
        "seed": 1,
        "num_hidden_layers": 3,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    },
    "GPT-OSS": {
        "model_type": "gpt_oss",
        "num_hidden_layers": 3,
        "sliding_window": 6,
        "intermediate_size": 24,
        "swiglu_limit": 1.5,
        "rope_parameters": _YARN | {"truncate": False},
    },
}


def write(form: str, folder: Path, **generation: Any) -> Path:
    """Writes the checkpoint of a form, with values of its generation config."""
    checkpoints.rotary(folder, **FORMS[form])
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | generation))
    return folder


def write_ending(form: str, folder: Path) -> Path:
    """The same, where some texts end by themselves, as it was when PyTorch was asked."""
    expected = json.loads(EXPECTED.read_text())["forms"][form]
    return write(form, folder, eos_token_id=expected["eos_token_id"])


def prompt(padded_length: int, encode: Any) -> str:
    """The shortest beginning of the story with as many tokens as `PROMPT_TOKENS` says.

    Args:
        padded_length: one of `PROMPT_TOKENS`.
        encode: text to ids.
    """
    text = checkpoints.TEXT
    beginnings = (text[:end] for end in itertools.count(1))
    return next(x for x in beginnings if len(encode(x)) == PROMPT_TOKENS[padded_length])


def ask(form: str) -> dict[str, Any]:
    """What PyTorch writes: for each padded length and search, ids and log-probabilities."""
    import torch
    from transformers import (
        AutoModelForCausalLM,
        AutoModelForImageTextToText,
        PreTrainedTokenizerFast,
    )

    sees = "image_model" in FORMS[form]
    with tempfile.TemporaryDirectory() as root:
        folder = write(form, Path(root))
        encode = PreTrainedTokenizerFast.from_pretrained(folder).encode
        model, info = (
            AutoModelForImageTextToText if sees else AutoModelForCausalLM
        ).from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
        )
    others = {*info["missing_keys"], *info["unexpected_keys"]}
    assert not [name for name in others if not re.search("vision|visual|multi_modal", name)], others
    given = {length: encode(prompt(length, encode)) for length in PROMPT_TOKENS}

    def generate(ids: list[int], ends: list[int], **options: Any) -> list[int]:
        tensor = torch.tensor([ids])
        written = model.generate(
            tensor,
            attention_mask=torch.ones_like(tensor),
            do_sample=False,
            max_new_tokens=NEW_TOKENS,
            eos_token_id=ends,
            pad_token_id=0,
            **options,
        )[0].tolist()[len(ids) :]
        stops = [place for place, token in enumerate(written) if token in ends]
        return written[: stops[0] + 1] if stops else written

    def logprobs(ids: list[int], written: list[int]) -> list[list[float]]:
        """Of each new token, and of the most likely in its place, from the text at once."""
        with torch.no_grad():
            logits = model(torch.tensor([ids + written[:-1]])).logits[0, len(ids) - 1 :]
        all_logprobs = torch.log_softmax(logits, dim=-1)
        of_written = all_logprobs[torch.arange(len(written)), torch.tensor(written)]
        best = torch.topk(all_logprobs, 5).values
        return torch.cat([of_written[:, None], best], dim=1).numpy().round(6).tolist()

    def decisions(asked: Question) -> list[float]:
        """Of each answer to a question, the log-probability of all its tokens."""
        before = encode(f"{asked.asked(DECIDED)}\nAnswer:")
        found = []
        for answer in asked.answers:
            ids = encode(f"{asked.asked(DECIDED)}\nAnswer: {answer}")
            assert ids[: len(before)] == before
            found.append(round(sum(each[0] for each in logprobs(before, ids[len(before) :])), 6))
        return found

    # Texts of the first and the last prompt end at a token that they like, that of the other not.
    texts = [generate(ids, [0]) for ids in given.values()]
    fitting = (
        [*pair]
        for pair in itertools.product(texts[0][9:2:-1], texts[2][9:2:-1])
        if not {*pair} & {*texts[0][:3], *texts[1], *texts[2][:3]}
    )
    ends = next(fitting, None)
    assert ends, f"{form}: no two tokens end some of {texts} and not others"
    cases = []
    for (length, ids), options in itertools.product(given.items(), SEARCHES):
        written = generate(ids, ends, **options)
        cases.append(
            {
                "padded_length": length,
                "options": options,
                "ids": written,
                "logprobs": logprobs(ids, written),
            }
        )
    found: dict[str, Any] = {"eos_token_id": ends, "cases": cases}
    if form != SHORT_FORM:
        found["decisions"] = [*map(decisions, QUESTIONS)]
    return found


def main() -> None:
    """Compares PyTorch's answers with the file, or writes it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write the file anew")
    parser.add_argument("--forms", nargs="*", default=list(FORMS), help="these alone")
    parser.add_argument("--packages", type=Path, required=True, help="the folder that has torch")
    arguments = parser.parse_args()
    sys.path.append(str(arguments.packages))  # last: Transformers is this environment's
    import torch
    import transformers

    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    found = {"versions": versions, "forms": {form: ask(form) for form in arguments.forms}}
    expected = json.loads(EXPECTED.read_text())
    if arguments.write:
        found["forms"] = expected["forms"] | found["forms"]
        EXPECTED.write_text(json.dumps(found) + "\n")
        return
    for form in arguments.forms:
        for case, kept in zip(
            found["forms"][form]["cases"], expected["forms"][form]["cases"], strict=True
        ):
            assert case["ids"] == kept["ids"], (form, case["options"])
        pairs = zip(
            *(x["forms"][form].get("decisions", []) for x in (found, expected)), strict=True
        )
        assert all(np.allclose(*pair, atol=LARGEST_DIFFERENCE) for pair in pairs), form
        print(f"{form}: the same tokens as in {EXPECTED.name}")


if __name__ == "__main__":
    main()
