"""Checkpoints in the forms that people publish, by the rules of Transformers or llama.cpp.

Each case changes one small folder, and says what is read of it then.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests import checkpoints
from xla_backend import question
from xla_backend.checkpoints.architectures.table import describe
from xla_backend.checkpoints.models import Registry, folder_info
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.checkpoints.weights import read_config, read_weights

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
OTHER = {"name": "tool_use", "template": "tools"}
TOKEN = {"content": "<|stop|>", "special": True}
Change = Callable[[Path], Any]


def made(folder: Path, **config: Any) -> Path:
    return checkpoints.rotary(folder, "llama", special=["<|im_end|>"], **config)


def edit(path: Path, **values: Any) -> None:
    """Sets values of a JSON object; None takes one out."""
    before = json.loads(path.read_text()) if path.exists() else {}
    after = {name: value for name, value in (before | values).items() if value is not None}
    path.write_text(json.dumps(after))


@pytest.mark.parametrize(
    ("files", "ends"),
    [
        ({"generation_config": [4, 5], "config": 6, "tokenizer_config": "<|im_end|>"}, [4, 5]),
        ({"config": 6, "tokenizer_config": "<|im_end|>"}, 6),
        ({"config": [6, 7]}, [6, 7]),
        ({"tokenizer_config": "<|im_end|>"}, 1),
        ({"tokenizer_config": {"content": "<|im_end|>"}}, 1),
        ({"special_tokens_map": {"content": "<|im_end|>"}}, 1),
        ({"special_tokens_map": "<|im_end|>", "tokenizer_config": "<|endoftext|>"}, 0),
        ({"tokenizer_config": "<|stop|>"}, 400),
        ({}, None),
    ],
    ids=str,
)
def test_ends_of_text_from_every_place(tmp_path: Path, files: dict[str, Any], ends: Any) -> None:
    folder = made(tmp_path)
    for name in ("generation_config", "config"):
        edit(folder / f"{name}.json", eos_token_id=files.get(name))
    for name in ("tokenizer_config", "special_tokens_map"):
        edit(folder / f"{name}.json", eos_token=files.get(name))
    edit(folder / "tokenizer_config.json", added_tokens_decoder={"400": TOKEN})
    assert Registry().locate(str(folder)).generation_config.eos_token_id == ends


@pytest.mark.parametrize(
    ("name", "templates"),
    [
        ("tokenizer_config", [{"name": "default", "template": TEMPLATE}, OTHER]),
        ("tokenizer_config", [OTHER, {"name": "chat", "template": TEMPLATE}]),
        ("tokenizer_config", [{"name": "tool_use", "template": TEMPLATE}]),
        ("tokenizer_config", TEMPLATE),
        ("chat_template", TEMPLATE),  # a processor's
    ],
    ids=str,
)
def test_chat_templates_by_any_name(tmp_path: Path, name: str, templates: Any) -> None:
    folder = made(tmp_path)
    edit(folder / f"{name}.json", chat_template=templates)
    tokenizer = Tokenizer.load(folder)
    assert folder_info(str(folder)).is_instruct
    assert tokenizer.decode(tokenizer.encode(question("a fox"))) == "a fox"


def with_head(times: float) -> Change:
    return lambda tensors: tensors.update({HEAD: tensors[EMBEDDING] * np.float32(times)})


@pytest.mark.parametrize(
    ("change", "head"),
    [
        (lambda tensors: None, None),
        (with_head(1), None),
        (with_head(2), 2),  # the configuration is wrong
        (lambda tensors: tensors.update({HEAD: tensors.pop(EMBEDDING)}), None),
        (lambda tensors: tensors.update({"model.layers.0.rotary_emb.inv_freq": np.ones(6)}), None),
    ],
    ids=["tied", "stored twice", "not tied", "stored as the head", "with a buffer"],
)
def test_heads_that_are_said_to_be_tied(tmp_path: Path, change: Change, head: Any) -> None:
    folder = made(tmp_path, tie_word_embeddings=True)
    tensors = dict(load_file(folder / "model.safetensors"))
    embedding = tensors[EMBEDDING].copy()
    change(tensors)  # type: ignore[arg-type]
    save_file(tensors, folder / "model.safetensors")
    found = read_weights(folder)
    np.testing.assert_array_equal(found[EMBEDDING], embedding)
    assert (HEAD in found) == bool(head)
    if head:
        np.testing.assert_array_equal(found[HEAD], head * embedding)


def test_an_index_may_name_its_own_folder(tmp_path: Path) -> None:
    folder = made(tmp_path, shards=2)
    before = read_weights(folder)
    index = folder / "model.safetensors.index.json"
    placed = json.loads(index.read_text())["weight_map"]
    edit(index, weight_map={name: f"./{file}" for name, file in placed.items()})
    assert list(read_weights(folder)) == list(before)


@pytest.mark.parametrize(
    ("image_model", "text", "names"),
    [
        ("mistral3", "mistral", {}),
        ("gemma3", "gemma3_text", {"language_model.model": "model.language_model"}),
        (
            "smolvlm",
            "llama",
            {"language_model.model": "model.text_model", "language_model.lm_head": "lm_head"},
        ),
    ],
)
def test_of_a_model_of_images_the_text_model_is_read(
    tmp_path: Path, image_model: str, text: str, names: dict[str, str]
) -> None:
    folder = checkpoints.rotary(tmp_path, text, image_model=image_model)
    tensors = load_file(folder / "model.safetensors")
    for old, new in names.items():
        tensors = {name.replace(old, new): tensor for name, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors")
    assert folder_info(str(folder)).model_type == read_config(folder).model_type == text
    found = read_weights(folder)
    assert "model.layers.1.mlp.up_proj.weight" in found
    assert (HEAD in found) == (text != "gemma3_text")
    assert not [name for name in found if "vision" in name]


def test_experts_in_mxfp4_are_read_as_blocks(tmp_path: Path) -> None:
    """Of two tensors each, in different files; neighbours share a byte, gate and up take turns."""
    sizes = {"hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 1}
    folder = checkpoints.rotary(tmp_path, "gpt_oss", **sizes)
    edit(folder / "config.json", quantization_config={"quant_method": "mxfp4"})
    expected = read_weights(folder)
    tensors = dict(load_file(folder / "model.safetensors"))
    for name in ("gate_up_proj", "down_proj"):
        stem = f"model.layers.0.mlp.experts.{name}"
        whole = np.ascontiguousarray(tensors.pop(stem).swapaxes(1, 2))
        packed = gguf.quantize(whole, gguf.GGMLQuantizationType.MXFP4)
        wide = gguf.dequantize(packed, gguf.GGMLQuantizationType.MXFP4)
        blocks = packed.reshape(*whole.shape[:2], -1, 17)
        halves = blocks[..., 1:] & 15, blocks[..., 1:] >> 4
        numbers = np.concatenate(halves, axis=-1)
        tensors[f"{stem}_scales"] = np.ascontiguousarray(blocks[..., 0])
        tensors[f"{stem}_blocks"] = numbers[..., ::2] | numbers[..., 1::2] << 4
        for expert, matrix in enumerate(wide):
            parts = {"gate": matrix[::2], "up": matrix[1::2]}
            for part, own in (parts if "gate" in name else {"down": matrix}).items():
                expected[f"model.layers.0.mlp.experts.{expert}.{part}_proj.weight"] = own
    scales = {name: tensors.pop(name) for name in [*tensors] if name.endswith("_scales")}
    files = {"model-1.safetensors": scales, "model-2.safetensors": tensors}
    (folder / "model.safetensors").unlink()
    for file, some in files.items():
        save_file(some, folder / file)
    placed = {name: file for file, some in files.items() for name in some}
    edit(folder / "model.safetensors.index.json", weight_map=placed)
    found = read_weights(folder)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name], tensor, err_msg=name)


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.mark.parametrize(
    ("config", "first", "last"),
    [
        ({"rope_theta": 5e5}, 1.0, 5e5 ** (-5 / 6)),
        ({}, 1.0, 1e4 ** (-5 / 6)),
        ({"rope_parameters": {"rope_theta": 5e5}}, 1.0, 5e5 ** (-5 / 6)),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, 0.5, 1e4 ** (-5 / 6) / 2),
        ({"rope_parameters": {"type": "linear", "factor": 2}}, 0.5, 1e4 ** (-5 / 6) / 2),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, 1.0, 1e4 ** (-5 / 6)),
        (
            {
                "rope_theta": 5e5,
                "rope_scaling": {
                    "rope_type": "llama3",
                    **LLAMA3,
                    "original_max_position_embeddings": 64,
                },
            },
            1.0,
            5e5 ** (-5 / 6) / 8,
        ),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, 1.0, 1e4 ** (-5 / 6) / 4),
    ],
    ids=str,
)
def test_rotary_positions_of_every_form(
    tmp_path: Path, config: dict[str, Any], first: float, last: float
) -> None:
    """What PyTorch makes of some of them: `test_parity_rotary`."""
    folder = made(tmp_path)
    edit(folder / "config.json", **{"rope_parameters": None, **config})
    positions = describe(read_config(folder)).layers[0].mixer.positions
    found = positions.inverse_frequencies
    assert (found[0], found[-1]) == pytest.approx((first, last))
    is_yarn = config.get("rope_scaling", {}).get("type") == "yarn"
    assert positions.amplitude == pytest.approx(1 + 0.1 * np.log(4) if is_yarn else 1)
