"""The model families: what differs between architectures, behind one seam (`model.Model`).

Knows which configuration belongs to which family. Must not know decoding, caches or time.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from transformers import PretrainedConfig

from xla_backend.families.decoder_only import DecoderOnly
from xla_backend.families.encoder_decoder import EncoderDecoder
from xla_backend.families.model import Model
from xla_backend.families.speech import Speech

_BUILDERS = {"gpt2": DecoderOnly, "opt": DecoderOnly, "t5": EncoderDecoder, "whisper": Speech}


def build(config: PretrainedConfig, arrays: Mapping[str, np.ndarray], **sizes: int) -> Model:
    """The model that a configuration describes, over a checkpoint's arrays.

    Args:
        config: of a supported architecture (see `models.Registry`).
        arrays: the weights under their PyTorch-format names.
        **sizes: what a family needs beyond its configuration: `prompt_length` for speech.

    Raises:
        ModelUnavailable: a weight is missing.
    """
    return _BUILDERS[config.model_type].from_checkpoint(config, arrays, **sizes)
