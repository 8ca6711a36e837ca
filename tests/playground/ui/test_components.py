"""The list of models: in which order, and under which names."""

from __future__ import annotations

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


def test_models_stand_beside_others_of_their_architecture(tmp_path: Path) -> None:
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
        ("T5 · my-model (folder)", t5.name),
        ("Other · someone/thing (Hub)", "someone/thing"),
    ]


def test_one_architecture_needs_no_name() -> None:
    models = [model for model in Registry().list() if model.model_type == "gpt2"]
    assert choices(models)[:2] == [
        ("gpt2-stories", "gpt2-stories"),
        ("openai-community/gpt2 (Hub)", "openai-community/gpt2"),
    ]


def test_models_of_the_hub_say_what_they_take_and_whether_they_are_here() -> None:
    llama = next(model for model in Registry().list() if "Llama" in model.name)
    reported = (
        "Llama 3.2, 1.2B: answers questions, 8 languages. {} License: llama3.2. "
        "Context: 8,192 tokens."
    )
    away, here = replace(llama, on_disk=False), replace(llama, on_disk=True)
    assert model_description(away) == reported.format("Downloaded when first used: 2.5 GB.")
    assert model_description(here) == reported.format("On this computer.")
    unknown = ModelInfo("someone/thing", "decoder-only", "hub", "From the Hugging Face Hub.")
    assert model_description(unknown) == "From the Hugging Face Hub. Downloaded when first used."
    bundled = ModelInfo("gpt2-stories", "decoder-only", "bundled", "Stories.", 256)
    assert model_description(bundled) == "Stories."
