"""The list of models: in which order, and under which names."""

from dataclasses import replace
from pathlib import Path

import gradio as gr

from playground.ui.components import model_description, model_dropdown
from tests import checkpoints
from xla_backend import ModelInfo
from xla_backend.checkpoints.models import Registry, folder_info


def choices(models: list[ModelInfo]) -> list[tuple[str, str]]:
    with gr.Blocks():
        return model_dropdown(models, "model").choices


def test_models_stand_beside_others_of_their_architecture_if_there_are_any(tmp_path: Path) -> None:
    t5 = folder_info(str(checkpoints.t5(tmp_path / "my-model")))
    models = [
        ModelInfo("gpt2-stories", "decoder-only", "bundled", "", model_type="gpt2"),
        ModelInfo("opt-stories", "decoder-only", "bundled", "", model_type="opt"),
        ModelInfo("openai-community/gpt2", "decoder-only", "hub", "", model_type="gpt2"),
        t5,
        ModelInfo("someone/thing", "decoder-only", "hub", ""),
    ]
    assert choices(models) == [
        ("GPT-2 · gpt2-stories", "gpt2-stories"),
        ("GPT-2 · openai-community/gpt2 (Hub)", "openai-community/gpt2"),
        ("OPT · opt-stories", "opt-stories"),
        ("T5 · my-model", t5.name),
        ("Other · someone/thing (Hub)", "someone/thing"),
    ]

    models = [model for model in Registry().list() if model.model_type == "gpt2"]
    assert choices(models)[:2] == [
        ("gpt2-stories", "gpt2-stories"),
        ("openai-community/gpt2 (Hub)", "openai-community/gpt2"),
    ]


def test_a_model_says_what_it_takes_and_how_it_is_sampled() -> None:
    llama = next(model for model in Registry().list() if "Llama" in model.name)
    reported = (
        "Llama 3.2, 1.2B: answers questions, 8 languages. {} · context 8,192 of the model's "
        "131,072 tokens · license llama3.2 · instruct"
    )
    away, here = (replace(llama, on_disk=there, stored_bytes=None) for there in (False, True))
    assert model_description(away) == reported.format("Downloaded when first used: 2.5 GB")
    stored = replace(here, stored_bytes=2_471_000_000)
    assert model_description(stored) == reported.format("2.5 GB on disk")
    loaded = replace(stored, parameters=1_235_814_432, formats="bfloat16", weights_bytes=2 * 10**9)
    assert model_description(loaded) == reported.format(
        "1.2B parameters · bfloat16, 2.0 GB in memory"
    )
    rounded = replace(loaded, rounded_bits=8, activations="int8")
    assert "rounded to 8 bits, 2.0 GB in memory · activations int8 ·" in model_description(rounded)
    sampled = replace(here, sampling={"temperature": 0.2, "top_p": 0.9})
    assert model_description(sampled).endswith(" · its makers recommend temperature 0.2, top p 0.9")
    base = ModelInfo("gpt2-stories", "decoder-only", "bundled", "Stories.", 256)
    assert model_description(base) == "Stories. Context 256 tokens · base: continues texts"
