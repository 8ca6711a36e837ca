"""What several tabs build alike: the list of models, a notice, and how quiet events are set up.

Knows Gradio and words. Must not know the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from playground.markup import escape
from xla_backend import ModelInfo

# Events that only change what is on the page: never queued behind the engine, never in the API.
QUIET: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}


def model_dropdown(models: Sequence[ModelInfo], elem_id: str) -> gr.Dropdown:
    """The models to choose from, the first one chosen."""
    return gr.Dropdown(
        [(_model_label(model), model.name) for model in models],
        value=models[0].name if models else None,
        label="Model",
        elem_id=elem_id,
        elem_classes="model-choice",
    )


def notice(message: str, kind: str = "problem") -> str:
    """A sentence beside the button that it is about, in HTML; the other kind is "calm"."""
    role = "alert" if kind == "problem" else "status"
    return f'<div class="notice {kind}" role="{role}">{escape(message)}</div>'


def _model_label(model: ModelInfo) -> str:
    if model.source == "folder":
        return f"{Path(model.name).name} (folder)"
    return model.name + (" (downloaded when first used)" if model.source == "hub" else "")
