"""The model families: what differs between architectures, with one interface (`model.Model`)."""

from __future__ import annotations

from collections.abc import Callable

from transformers import PretrainedConfig

from xla_backend.checkpoints.architectures.table import DECODERS
from xla_backend.model.families.blocks import WeightReader
from xla_backend.model.families.decoder_only import from_gpt2, from_opt
from xla_backend.model.families.encoder_decoder import from_t5
from xla_backend.model.families.model import Model
from xla_backend.model.families.rotary import Rotary
from xla_backend.model.families.speech import from_whisper

_BUILDERS: dict[str, Callable[..., Model]] = {
    "gpt2": from_gpt2,
    "opt": from_opt,
    "t5": from_t5,
    "whisper": from_whisper,
    **dict.fromkeys(DECODERS, Rotary.from_checkpoint),
}


def build(config: PretrainedConfig, read: WeightReader, **sizes: int) -> Model:
    """The model that a configuration describes, with the weights of a checkpoint.

    Args:
        config: of a supported architecture (see `models.Registry`).
        read: of the weights under their PyTorch-format names.
        **sizes: what a family needs besides its configuration: `prompt_length` for speech.
    """
    return _BUILDERS[config.model_type](config, read, **sizes)
