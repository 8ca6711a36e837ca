"""GGUF checkpoints against files that llama.cpp's own package wrote, and against SmolLM2's."""

import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from tests import checkpoints, gguf_files
from tests.gguf_files import ARCHITECTURES, HEAD_SIZE, HEADS, KV_HEADS, LAYERS
from xla_backend.checkpoints.architectures.table import BY_GGUF, describe
from xla_backend.checkpoints.formats import gguf_model
from xla_backend.checkpoints.models import PACKAGED_MODEL, Registry, folder_info
from xla_backend.checkpoints.weights import (
    read_config,
    read_config_values,
    read_stored,
    read_weights,
    weight_files,
)
from xla_backend.interface.errors import ModelUnavailable
from xla_backend.kernels.matmul.blocks import Blocks


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The model of requirements-models.txt."""
    return gguf_files.smollm2()


# Config


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_config_values_are_those_of_a_hub_folder(architecture: str, tmp_path: Path) -> None:
    from transformers import AutoConfig

    values = read_config_values(gguf_files.write(tmp_path / "model.gguf", architecture))
    config = AutoConfig.for_model(**values)
    expected: dict[str, Any] = {
        "model_type": BY_GGUF[architecture].model_type,
        "hidden_size": gguf_files.WIDTH,
        "intermediate_size": gguf_files.INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_SIZE,
        "vocab_size": gguf_files.VOCABULARY,
        "max_position_embeddings": 128,
        "rms_norm_eps": pytest.approx(1e-5),
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0},
    }
    if architecture == "gemma4":
        del expected["head_dim"]
        expected |= {
            "sliding_window": 16,
            "layer_types": ["sliding_attention", "full_attention", "full_attention"],
            "num_kv_shared_layers": 1,
            "use_double_wide_mlp": True,
            "hidden_size_per_layer_input": 32,
            "vocab_size_per_layer_input": gguf_files.VOCABULARY,
            "final_logit_softcapping": 30.0,
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 500_000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
            },
        }
        assert [config.per_layer_config[x].head_dim for x in range(LAYERS)] == [HEAD_SIZE] * 3
    elif architecture.startswith("gemma"):
        expected |= {"sliding_window": 16, "query_pre_attn_scalar": HEAD_SIZE}
    if architecture == "gemma2":
        kinds = ["sliding_attention", "full_attention", "sliding_attention"]
        expected |= {
            "layer_types": kinds,
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
        }
    if architecture == "gemma3":
        expected |= {
            "layer_types": ["sliding_attention"] * 3,
            "final_logit_softcapping": None,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500_000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
            },
        }
    if architecture in gguf_files.CONVOLUTIONS:
        expected |= {"norm_eps": expected.pop("rms_norm_eps"), "conv_L_cache": 3}
        expected["layer_types"] = ["conv", "full_attention", "conv"]
    if architecture == "lfm2moe":
        expected |= {"num_experts": gguf_files.EXPERTS, "num_dense_layers": 1}
    elif architecture in gguf_files.EXPERTS_FROM:
        expected |= {"num_local_experts": gguf_files.EXPERTS, "num_experts_per_tok": 2}
    if architecture == "gpt-oss":
        expected |= {"sliding_window": 16, "attention_bias": True}
        expected["layer_types"] = ["sliding_attention", "full_attention", "sliding_attention"]
        yarn = {"rope_type": "yarn", "factor": 32.0, "truncate": False}
        expected["rope_parameters"] = values["rope_parameters"] | yarn
    if architecture == "phi3":
        expected["rope_parameters"] |= {"partial_rotary_factor": 1.0}
    if architecture == "qwen35moe":
        expected |= {"num_experts": expected.pop("num_local_experts")}
    if architecture.startswith("qwen35"):
        expected["rope_parameters"] |= {"partial_rotary_factor": 0.25}
        expected["layer_types"] = ["linear_attention", "full_attention", "linear_attention"]
        sizes = {"num_key_heads": 2, "num_value_heads": 4, "key_head_dim": 8, "value_head_dim": 16}
        expected |= {f"linear_{name}": size for name, size in sizes.items()}
    if architecture == "granite":
        expected |= {
            "embedding_multiplier": 12.0,
            "residual_multiplier": 0.25,
            "attention_multiplier": 0.015625,
            "logits_scaling": 8.0,
        }
    assert {name: getattr(config, name) for name in expected} == expected


def test_gemma_4s_frequency_factors_say_which_pairs_are_rotated(tmp_path: Path) -> None:
    for place, slow in enumerate((1e30, 8.0)):
        path = tmp_path / f"{place}.gguf"
        with gguf_files.writing(path, "gemma4", has_tensors=True) as writer:
            writer.add_tensor("rope_freqs.weight", np.array([1.0] * 4 + [slow] * 12, np.float32))
    rope = read_config_values(tmp_path / "0.gguf")["rope_parameters"]["full_attention"]
    assert (rope["rope_type"], rope["partial_rotary_factor"]) == ("proportional", 0.25)
    with pytest.raises(ModelUnavailable, match="scales its positions"):
        read_config_values(path)


def test_llama_3s_frequency_factors_become_its_parameters(tmp_path: Path) -> None:
    from transformers import LlamaConfig

    rope = {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    LlamaConfig(rope_parameters=rope)  # Transformers' own check of the names
    # Llama 3.1's release: short waves stay, long ones are stretched, those between in part.
    frequencies = 500_000.0 ** -(np.arange(0, HEAD_SIZE, 2) / HEAD_SIZE)
    factors = []
    for wavelength in 2 * np.pi / frequencies:
        if wavelength < 8192 / 4:
            factors.append(1.0)
        elif wavelength > 8192 / 1:
            factors.append(32.0)
        else:
            smooth = (8192 / wavelength - 1) / (4 - 1)
            factors.append(1 / ((1 - smooth) / 32.0 + smooth))
    assert len({*factors}) > 2
    for change, found in ((1.0, rope), (1.5, None)):
        path = tmp_path / f"{change}.gguf"
        with gguf_files.writing(path, "llama", has_tensors=True) as writer:
            stored = np.array(factors, np.float32)
            stored[4] *= change
            writer.add_tensor("rope_freqs.weight", stored)
        if found is None:
            with pytest.raises(ModelUnavailable, match="scales its positions"):
                read_config_values(path)
        else:
            assert read_config_values(path)["rope_parameters"] == rope
            assert "rope_freqs.weight" not in dict(gguf_model.read_tensors(path))


@pytest.mark.parametrize(
    ("keys", "factor"),
    [
        ({"scale_linear": 8.0}, 8.0),
        ({"scaling.factor": 4.0}, 4.0),
        ({"scaling.factor": 4.0, "scale_linear": 8.0}, 4.0),
        ({"scaling.type": "none", "scaling.factor": 4.0}, None),
        ({"scaling.type": "linear"}, None),
        ({"scaling.factor": 1.0}, None),
    ],
)
def test_linear_factors_by_any_name(keys: dict[str, Any], factor: float | None, path: Path) -> None:
    with gguf_files.writing(path, "llama", has_tensors=True) as writer:
        for key, value in keys.items():
            add = writer.add_string if isinstance(value, str) else writer.add_float32
            add(f"llama.rope.{key}", value)
    assert read_config_values(path)["rope_parameters"].get("factor") == factor


@pytest.mark.parametrize(
    ("architecture", "factor", "own"),
    [
        ("llama", 1.0, {}),
        ("llama", 2.0, {}),
        ("mistral3", 1.0, {"mscale": 1.0, "mscale_all_dim": 0.5, "llama_4_scaling_beta": 0.1}),
    ],
)
def test_yarn_is_that_of_a_folder(
    architecture: str, factor: float, own: dict[str, float], path: Path
) -> None:
    with gguf_files.writing(path, architecture, has_tensors=True) as writer:
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(16)
        writer.add_rope_scaling_attn_factors(factor)
        if own:
            writer.add_rope_scaling_yarn_log_mul(own["mscale_all_dim"])
            writer.add_attn_temperature_scale(own["llama_4_scaling_beta"])
    config = read_config(path)
    found = describe(config).layers[0].mixer.positions
    config.rope_parameters = {
        "rope_type": "yarn",
        "rope_theta": config.rope_parameters["rope_theta"],
        "factor": 4.0,
        "original_max_position_embeddings": 16,
        **own,
    }
    expected = describe(config).layers[0].mixer.positions
    assert found.inverse_frequencies == expected.inverse_frequencies
    assert found.amplitude == pytest.approx(expected.amplitude * factor)
    assert found.query_growth == pytest.approx(expected.query_growth)


def test_longrope_and_partly_turned_heads_are_those_of_a_folder(tmp_path: Path) -> None:
    """As llama.cpp's converter has Phi-4-mini: factors without a type, half of each head turned."""
    path, short, long = tmp_path / "model.gguf", np.linspace(1, 2, 8), np.linspace(2, 9, 8)
    with gguf_files.writing(path, "phi3", has_tensors=True) as writer:
        writer.add_rope_scaling_orig_ctx_len(32)
        writer.add_rope_scaling_attn_factors(1.2)
        writer.add_rope_dimension_count(16)
        writer.add_head_count(2)  # the converter's heads are width / heads wide
        writer.add_sliding_window(40)
        writer.add_tensor("rope_factors_short.weight", short.astype(np.float32))
        writer.add_tensor("rope_factors_long.weight", long.astype(np.float32))
    form = describe(read_config(path))
    [mixer] = {layer.mixer for layer in form.layers}
    assert (mixer.window, mixer.positions.amplitude) == (40, pytest.approx(1.2))
    base = 500_000.0 ** -(np.arange(0, 16, 2) / 16)
    np.testing.assert_allclose(mixer.positions.inverse_frequencies, base / short, rtol=1e-6)
    assert form.context_length == folder_info(str(path)).context_length == 32


@pytest.mark.parametrize(("pattern", "kinds"), [(None, "sss"), (2, "sfs"), ([0, 1, 0], "fsf")])
def test_olmo_3_has_windows(pattern: int | list[int] | None, kinds: str, path: Path) -> None:
    with gguf_files.writing(path, "olmo2", has_tensors=True) as writer:
        writer.add_sliding_window(16)
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(16)
        if pattern is not None:
            as_flags = pattern if isinstance(pattern, int) else [bool(flag) for flag in pattern]
            writer.add_sliding_window_pattern(as_flags)
    config = read_config(path)
    mixers = [layer.mixer for layer in describe(config).layers]
    assert config.model_type == "olmo3"
    assert [mixer.window for mixer in mixers] == [16 if kind == "s" else None for kind in kinds]
    # Only layers that attend to everything have scaled positions.
    assert [mixer.positions.amplitude > 1 for mixer in mixers] == [kind == "f" for kind in kinds]


def test_a_text_ends_at_the_ends_that_the_file_names(path: Path) -> None:
    with gguf_files.writing(path, "gemma2", has_tensors=True) as writer:
        writer.add_eos_token_id(0)
        writer.add_eot_token_id(107)
        writer.add_bos_token_id(2)
        # What a template ends a turn with is an end even where no id says so; a word is none.
        writer.add_token_list(["<eos>", "<end_of_turn>", "<bos>", "<|im_end|>"])
        writer.add_token_types([3, 3, 3, 1])
    values = read_config_values(path)
    assert (values["eos_token_id"], values["bos_token_id"]) == ([0, 107], 2)
    assert Registry().locate(str(path)).generation_config.eos_token_id == [0, 107, 1]
    assert values["pad_token_id"] is None


def test_a_file_in_channels_ends_at_a_call(path: Path) -> None:
    with gguf_files.writing(path, "gpt-oss", has_tensors=True) as writer:
        writer.add_eos_token_id(0)
        writer.add_token_list(list(checkpoints.CHANNEL_TOKENS))
        writer.add_token_types([3] * len(checkpoints.CHANNEL_TOKENS))
    ends = Registry().locate(str(path)).generation_config.eos_token_id
    assert [checkpoints.CHANNEL_TOKENS[end] for end in ends] == ["<|return|>", "<|call|>"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE), "longrope and has no"),
        (lambda w: w.add_rope_dimension_count(HEAD_SIZE // 2), "rope.dimension_count"),
        (lambda w: w.add_uint16("split.count", 3), "the first of 3 pieces .* must lie beside it"),
        (lambda w: w.add_uint16("split.no", 1), "is piece 2 of a model, which its name does not"),
        (lambda w: w.add_type("adapter"), "is a LoRA adapter"),
        (lambda w: w.add_type("mmproj"), "not a model: .* 'mmproj'"),
        (lambda w: w.add_tensor("odd", np.ones(8, np.float32)), "has the tensor 'odd'"),
        (lambda w: w.add_tensor("blk.0.ffn_gate_shexp.weight", np.ones(8, np.float32)), "experts"),
    ],
)
def test_what_would_be_computed_wrongly_is_refused(change: Any, message: str, path: Path) -> None:
    with gguf_files.writing(path, "llama", has_tensors=True) as writer:
        change(writer)
    with pytest.raises(ModelUnavailable, match=message):
        read_config_values(path)
        dict(gguf_model.read_tensors(path))


@pytest.mark.parametrize("kind", ["F32", "BF16", "Q8_0", "Q4_0"])
def test_experts_keep_their_format(kind: str, tmp_path: Path) -> None:
    path, number = tmp_path / "model.gguf", gguf.GGMLQuantizationType[kind]
    writer, expected = gguf_files.begin(path, "qwen3moe"), gguf_files.weights("qwen3moe")
    gguf_files.add_tensors(writer, "qwen3moe", expected, number)
    gguf_files.finish(writer)
    read = read_stored(path)
    name = "model.layers.2.mlp.experts.3.up_proj.weight"
    found = read[name]
    assert (found.name if isinstance(found, Blocks) else str(found.dtype)) == {
        "F32": "float32",
        "BF16": "bfloat16",
    }.get(kind, kind)
    wide = gguf.dequantize(gguf.quantize(expected[name], number), number)
    own = found.dequantized() if isinstance(found, Blocks) else found.astype(np.float32)
    np.testing.assert_allclose(own, wide, rtol=1e-6)
    np.testing.assert_allclose(read_weights(path)[name], wide, rtol=1e-6)


def test_another_architecture_is_named(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "rwkv7")
    writer.add_tensor("token_embd.weight", np.ones((2, 2), np.float32))
    gguf_files.finish(writer)
    with pytest.raises(ModelUnavailable, match=r"not supported: 'rwkv7'.*Supported.*llama"):
        read_config_values(path)


# Weights


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_weights_are_those_before_the_conversion(architecture: str, tmp_path: Path) -> None:
    """Tensor by tensor, and as the engine reads a file or its folder."""
    tied = architecture != "llama"
    path = gguf_files.write(tmp_path / "any-name.gguf", architecture, tied=tied)
    assert weight_files(tmp_path) == weight_files(path) == [path]
    assert read_config_values(tmp_path) == read_config_values(path)
    assert read_config_values(path)["tie_word_embeddings"] == tied
    assert folder_info(str(path)).context_length == 128
    expected = gguf_files.weights(architecture, tied=tied)
    found = read_weights(tmp_path)
    if architecture == "phi3":  # what one matrix has there, are several here
        for name in [name for name in expected if "qkv_proj" in name or "gate_up" in name]:
            parts = "qkv" if "qkv_proj" in name else ("gate", "up")
            own = [re.sub("qkv|gate_up", part, name) for part in parts]
            found[name] = np.concatenate([found.pop(part) for part in own])
    if architecture.startswith("qwen35"):  # of each head first the query, then its gates
        at = "model.layers.1.self_attn."
        both = [found.pop(f"{at}{x}_proj.weight").reshape(HEADS, HEAD_SIZE, -1) for x in "qg"]
        found[f"{at}q_proj.weight"] = np.hstack(both).reshape(-1, both[0].shape[-1])
    for each in (found, dict(gguf_model.read_tensors(path))):
        assert each.keys() == expected.keys()
        for name, tensor in expected.items():
            assert each[name].dtype == np.float32
            # Gemma's norms lose the last bits of what is near to minus one.
            np.testing.assert_allclose(each[name], tensor, rtol=0, atol=2.5e-7, err_msg=name)


def test_what_the_converter_reorders_is_not_what_it_was() -> None:
    """The tests above would see it if nothing were put back."""
    q = gguf_files.weights("llama")["model.layers.0.self_attn.q_proj.weight"]
    assert not np.allclose(gguf_files.permuted(q, HEADS), q)


def test_a_folder_with_a_config_is_read_by_it_and_of_several_files_one_is_to_be_named(
    tmp_path: Path,
) -> None:
    for name in ("b.gguf", "a.gguf"):
        gguf_files.write(tmp_path / name, "llama")
    with pytest.raises(ModelUnavailable, match=r"2 GGUF files; give the path of one.*a\.gguf"):
        read_config_values(tmp_path)
    assert read_config_values(tmp_path / "b.gguf")["model_type"] == "llama"

    gguf_files.write(tmp_path / "model.gguf", "llama")
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    assert read_config_values(tmp_path) == {"model_type": "gpt2"}


# The model in the box


def test_smollm2s_config(smollm2: Path) -> None:
    values = read_config_values(smollm2)
    expected = {
        "model_type": "llama",
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "vocab_size": 49152,
        "max_position_embeddings": 8192,
        "rms_norm_eps": pytest.approx(1e-5),
        "rope_parameters": {"rope_type": "default", "rope_theta": 100_000.0},
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
    }
    assert values == expected


def test_smollm2s_weights(smollm2: Path) -> None:
    found = dict(gguf_model.read_tensors(smollm2))
    reader = gguf.GGUFReader(smollm2)
    stored = {tensor.name: tensor for tensor in reader.tensors}
    assert "lm_head.weight" not in found
    assert len(found) == len(stored) == 272
    assert found["model.embed_tokens.weight"].shape == (49152, 576)
    for name, its_name in (
        ("model.embed_tokens.weight", "token_embd.weight"),
        ("model.layers.7.input_layernorm.weight", "blk.7.attn_norm.weight"),
        ("model.layers.29.mlp.down_proj.weight", "blk.29.ffn_down.weight"),
    ):
        tensor = stored[its_name]
        np.testing.assert_array_equal(found[name], gguf.dequantize(tensor.data, tensor.tensor_type))
    k = stored["blk.3.attn_k.weight"]
    np.testing.assert_array_equal(
        gguf_files.permuted(found["model.layers.3.self_attn.k_proj.weight"], 3),
        gguf.dequantize(k.data, k.tensor_type),
    )


def test_the_model_in_the_box_is_listed_and_found(smollm2: Path) -> None:
    listed = {info.name: info for info in Registry().list()}
    assert listed[PACKAGED_MODEL].source == "bundled"
    files = Registry(hub_models=()).locate(PACKAGED_MODEL)
    assert (files.folder, files.generation_config.eos_token_id) == (smollm2, [2, 0])


def test_a_file_is_known_by_its_first_bytes(path: Path, tmp_path: Path) -> None:
    gguf_files.write(path, "llama")
    expected = read_stored(path)
    blob = path.rename(tmp_path / "sha256-3f6d8a1c")  # as other programs keep them
    for place in (blob, tmp_path):
        assert read_stored(place).keys() == expected.keys()
    (other := tmp_path / "notes").write_text("GGU")
    with pytest.raises(ModelUnavailable, match="is a file; give the folder"):
        Registry().locate(str(other))


def test_a_model_in_pieces_is_read_from_any_of_them(tmp_path: Path) -> None:
    whole, folder = gguf_files.write(tmp_path / "whole.gguf", "llama"), tmp_path / "pieces"
    folder.mkdir()
    writer = gguf_files.begin(folder / "model.gguf", "llama", split_max_tensors=8)
    gguf_files.add_tensors(writer, "llama", gguf_files.weights("llama"))
    gguf_files.finish(writer)
    first, *others = sorted(folder.iterdir())
    assert len(others) > 1
    expected = read_stored(whole)
    for suffix in (".gguf", ""):
        first, *others = (path.rename(path.with_suffix(suffix)) for path in (first, *others))
        for place in (folder, first, others[-1]):
            found = read_stored(place)
            assert found.keys() == expected.keys()
            for name, tensor in found.items():
                np.testing.assert_array_equal(tensor, expected[name])
        assert weight_files(folder) == [first, *others]
    others[0].unlink()
    with pytest.raises(ModelUnavailable, match=f"{others[0].name} of its folder must lie beside"):
        read_stored(first)
