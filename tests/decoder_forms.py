"""Small forms of every decoder: settings, names of tensors, and what is compared with PyTorch.

Data alone, written by hand: the code under test is not its own judge. `checkpoints.rotary` writes
the files.
"""

from typing import Any

DELTAS = ("qwen3_5_text", "qwen3_5_moe_text")
"""Whose layers have a state by the gated delta rule."""
WITH_EXPERTS = (
    *("qwen2_moe", "qwen3_moe", "olmoe", "granitemoe", "granitemoeshared", "granitemoehybrid"),
    *("lfm2_moe", "gpt_oss", "qwen3_5_moe_text"),
)
BIASED = ("qwen2", "qwen2_moe")
"""Whose queries, keys and values always have biases."""
NORMED_HEADS = ("qwen3", "gemma3_text", "qwen3_moe", "lfm2", "lfm2_moe", "lfm3", *DELTAS)
"""Which normalise each head of queries and keys."""
NORMED_AS_ONE = ("olmo2", "olmo3", "olmoe")
"""Which normalise all heads as one."""
OFFSET_NORMS = ("gemma", "gemma2", "gemma3_text", *DELTAS)
"""Which multiply by 1 + weight."""
GGUF_OFFSET_NORMS = ("gemma", "gemma2", "gemma3", "qwen35", "qwen35moe")
"""Whose GGUF files have that 1 added, by llama.cpp's names."""
POST_NORMS = ("gemma2", "gemma3_text", "gemma4_text", "lfm3")
"""Which also normalise outputs."""
ONLY_POST_NORMS = ("olmo2", "olmo3")

_DELTA_DEFAULTS = {
    "layer_types": ["linear_attention", "full_attention"],
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
_QWEN_EXPERTS = {
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 32,
}
DEFAULTS: dict[str, dict[str, Any]] = {
    **{
        name: {"num_local_experts": 6, "num_experts_per_tok": 2}
        for name in ("qwen3_moe", "olmoe", "granitemoe", "gpt_oss")
    },
    "granitemoeshared": {
        "num_local_experts": 6,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 32,
    },
    "qwen2_moe": _QWEN_EXPERTS,
    "falcon_h1": {"mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_n_groups": 2, "mamba_d_state": 12},
    "granitemoehybrid": {
        "layer_types": ["attention", "attention"],
        "position_embedding_type": "rope",
        "num_local_experts": 0,
        "shared_intermediate_size": 80,
        "mamba_n_heads": 4,
    },
    "lfm2": {
        "layer_types": ["conv", "full_attention"],
        "block_auto_adjust_ff_dim": False,
        "tie_word_embeddings": False,
    },
    "lfm2_moe": {
        "layer_types": ["conv", "full_attention"],
        "num_dense_layers": 1,
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
    },
    "lfm3": {"layer_types": ["conv", "full_attention"]},
    "qwen3_5_text": _DELTA_DEFAULTS,
    "qwen3_5_moe_text": _DELTA_DEFAULTS | _QWEN_EXPERTS,
    "gemma4_text": {
        "vocab_size_per_layer_input": 400,
        "hidden_size_per_layer_input": 8,
        "global_head_dim": 12,
        "layer_types": ["full_attention", "full_attention"],
    },
}
"""Settings of small models of an architecture, unless a test sets them."""

_LFM_NAMES = {
    "norm": "embedding_norm",
    "input_layernorm": "operator_norm",
    "mlp": "feed_forward",
    "gate_proj": "w1",
    "up_proj": "w3",
    "down_proj": "w2",
}
_LFM2_NAMES = _LFM_NAMES | {
    "post_attention_layernorm": "ffn_norm",
    "q_norm": "q_layernorm",
    "k_norm": "k_layernorm",
    "self_attn.o_proj": "self_attn.out_proj",
}
_FALCON_NAMES = {
    "norm": "final_layernorm",
    "mlp": "feed_forward",
    "post_attention_layernorm": "pre_ff_layernorm",
}
_LFM3_NAMES = _LFM_NAMES | {
    "post_attention_layernorm": "post_operator_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffn_norm",
}
NAMES = {
    "falcon_h1": _FALCON_NAMES,
    "lfm2": _LFM2_NAMES,
    "lfm2_moe": _LFM2_NAMES,
    "lfm3": _LFM3_NAMES,
}
"""What their checkpoints call otherwise than Llama's."""

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
    "Gemma": {"model_type": "gemma", "head_dim": 16, "num_key_value_heads": 1},
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

AS_GGUF = {
    "Gemma": "gemma",
    "Falcon-H1": "falcon-h1",
    "Falcon-H1 norms": "falcon-h1",
    "Granite 4": "granite",  # without Mamba layers
    "Granite 4 Mamba": "granitehybrid",
    "Granite 4 experts": "granitehybrid",
    "Granite shared experts": "granitemoe",
    "Qwen2 experts": "qwen2moe",
}
"""Forms that are also compared as a GGUF file, with llama.cpp's name of the architecture."""
