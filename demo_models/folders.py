"""The folders of the models that ship: where they are, how large they may be, their tokenizers.

Knows: the layout of the Hugging Face Hub.
Must not know: how a model was trained, nor its weights, for which there is `training.checkpoint`.
"""

from __future__ import annotations

from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerFast

MODELS_FOLDER = Path(__file__).parent
MAX_BYTES = 10_000_000  # of a model.safetensors


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """The tokenizer of a folder."""
    return AutoTokenizer.from_pretrained(folder)
