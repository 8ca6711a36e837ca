"""Whisper in CTranslate2's format is read as the Hugging Face folder that it was made of.

The writer here follows CTranslate2's own (`model_spec.py`), not the code under test.
"""

import contextlib
import json
import struct
from pathlib import Path

import numpy as np
import pytest

from tests import checkpoints
from xla_backend import Backend, ModelUnavailable
from xla_backend.checkpoints.models import PACKAGED_SPEECH_MODEL, Registry, _generation_values
from xla_backend.checkpoints.weights import read_config, read_weights

_TYPES = {"float32": 0, "int8": 1, "float16": 4}


def converted(
    folder: Path, target: Path, dtype: str = "float16", kind: str = "WhisperSpec"
) -> Path:
    """What `ct2-transformers-converter` makes of a folder."""
    target.mkdir()
    weights = read_weights(folder)
    config = json.loads((folder / "config.json").read_text())
    generation = json.loads((folder / "generation_config.json").read_text())
    found: dict[str, np.ndarray] = {}

    def linear(name: str, *parts: str) -> None:
        found[f"{name}/weight"] = np.concatenate([weights[f"{x}.weight"] for x in parts])
        zeros = np.zeros(config["d_model"], np.float32)  # of keys
        biases = [weights.get(f"{x}.bias", zeros) for x in parts]
        found[f"{name}/bias"] = np.concatenate(biases)

    def norm(name: str, of: str) -> None:
        found[f"{name}/gamma"], found[f"{name}/beta"] = (
            weights[f"{of}.weight"],
            weights[f"{of}.bias"],
        )

    for stack in ("encoder", "decoder"):
        at = f"model.{stack}"
        positions = weights[f"{at}.embed_positions.weight"]
        found[f"{stack}/position_encodings/encodings"] = positions
        norm(f"{stack}/layer_norm", f"{at}.layer_norm")
        for number in range(config[f"{stack}_layers"]):
            own, of = f"{stack}/layer_{number}", f"{at}.layers.{number}"
            norm(f"{own}/self_attention/layer_norm", f"{of}.self_attn_layer_norm")
            norm(f"{own}/ffn/layer_norm", f"{of}.final_layer_norm")
            linear(f"{own}/ffn/linear_0", f"{of}.fc1")
            linear(f"{own}/ffn/linear_1", f"{of}.fc2")
            qkv = [f"{of}.self_attn.{x}_proj" for x in "qkv"]
            linear(f"{own}/self_attention/linear_0", *qkv)
            linear(f"{own}/self_attention/linear_1", f"{of}.self_attn.out_proj")
            if stack == "decoder":
                norm(f"{own}/attention/layer_norm", f"{of}.encoder_attn_layer_norm")
                linear(f"{own}/attention/linear_0", f"{of}.encoder_attn.q_proj")
                linear(f"{own}/attention/linear_1", *(f"{of}.encoder_attn.{x}_proj" for x in "kv"))
                linear(f"{own}/attention/linear_2", f"{of}.encoder_attn.out_proj")
    for name in ("conv1", "conv2"):
        linear(f"encoder/{name}", f"model.encoder.{name}")
    found["decoder/embeddings/weight"] = weights["model.decoder.embed_tokens.weight"]

    def text(value: str) -> bytes:
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    heads = np.array(config["encoder_attention_heads"], np.int16)
    stored = {name: (tensor.astype(dtype), _TYPES[dtype]) for name, tensor in found.items()}
    stored |= {f"{stack}/num_heads": (heads, 2) for stack in ("encoder", "decoder")}
    data = struct.pack("<I", 6) + text(kind) + struct.pack("<II", 3, len(stored))
    for name, (tensor, number) in stored.items():
        data += text(name) + struct.pack("<B", tensor.ndim)
        data += struct.pack(f"<{tensor.ndim}I", *tensor.shape)
        data += struct.pack("<BI", number, tensor.nbytes) + tensor.tobytes()
    (target / "model.bin").write_bytes(data + struct.pack("<I", 0))
    suppressed = {"suppress_ids": generation["suppress_tokens"]}
    suppressed["suppress_ids_begin"] = generation["begin_suppress_tokens"]
    (target / "config.json").write_text(json.dumps(suppressed))
    (target / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    return target


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_it_is_read_as_what_it_was_made_of(tmp_path: Path, dtype: str) -> None:
    made = checkpoints.whisper(tmp_path / "made", encoder_ffn_dim=64)
    folder = converted(made, tmp_path / "converted", dtype)
    expected, found = read_weights(made), read_weights(folder)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name], tensor.astype(dtype))
    ours, theirs = read_config(folder).to_dict(), read_config(made).to_dict()
    others = {"architectures", "begin_suppress_tokens", "suppress_tokens", "dtype"}
    assert {x for x in theirs if ours[x] != theirs[x]} <= others
    generation = _generation_values(folder)
    its = json.loads((made / "generation_config.json").read_text())
    assert generation == {name: its[name] for name in generation}
    assert {"lang_to_id", "task_to_id", "no_timestamps_token_id"} <= generation.keys()


@pytest.mark.parametrize(
    ("options", "cut", "message"),
    [
        ({"dtype": "int8"}, None, "int8, which is not supported. Choose a version"),
        ({"kind": "TransformerSpec"}, None, "a 'TransformerSpec' of CTranslate2, of which only Wh"),
        ({}, -9000, "is damaged"),
        ({}, 40, "is damaged"),
    ],
    ids=str,
)
def test_what_is_not_read_is_refused_by_name(
    tmp_path: Path, options: dict[str, str], cut: int | None, message: str
) -> None:
    folder = converted(checkpoints.whisper(tmp_path / "made"), tmp_path / "converted", **options)
    (folder / "model.bin").write_bytes((folder / "model.bin").read_bytes()[:cut])
    with pytest.raises(ModelUnavailable, match=message):
        read_weights(folder)


def test_the_model_in_the_box_hears_real_voices() -> None:
    """What PyTorch hears with these weights."""
    import gradio

    assert Registry().locate(PACKAGED_SPEECH_MODEL).info.source == "bundled"
    sounds = Path(gradio.__file__).parent / "media_assets" / "audio"
    with contextlib.closing(Backend()) as backend:
        for name, said in (
            ("heath_ledger.mp3", "If you're good at something, never do it for free."),
            ("cate_blanch_2.mp3", "I trust you had an historic evening."),
        ):
            assert backend.transcribe(PACKAGED_SPEECH_MODEL, sounds / name).text == said
