"""`Architecture`: the description of one `model_type`, which everything else reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from xla_backend.checkpoints.architectures.gguf import GGUFLayout

Family = Literal["decoder-only", "encoder-decoder", "speech"]
Shapes = Iterator[tuple[str, tuple[int, ...]]]
Piece = tuple[str, Callable[[Any], Any]]
"""A name of `Architecture.shapes`, and what takes that out of a checkpoint's tensor."""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """What differs between architectures before any number is computed.

    Attributes:
        model_type: Hugging Face's name, as in config.json.
        family: how it is used.
        sizes: settings that config.json must set to a positive whole number.
        context_setting: the setting with the context length; None if there is no bound.
        heads_divide_width: whether a head has the model's width over the number of heads.
        required: settings that change the computation and are not implemented, each with the only
            supported value: another one would give wrong text without an error.
        image_models: the `model_type` of models of images and text whose text model this is.
        quantizations: of `quantization_config`, the methods whose weights can be read.
        prefix: of tensor names in the class with a head; some files leave it out.
        aliases: tensors that a file may have in place of another.
        complete: sets what the configuration's class loses of config.json's values.
        tensor_shapes: name and shape of all tensors of a checkpoint.
        gguf: how llama.cpp's files have it; None if they are not read.
    """

    model_type: str
    name: str
    family: Family = "decoder-only"
    sizes: tuple[str, ...]
    context_setting: str | None = "max_position_embeddings"
    heads_divide_width: bool = True
    required: Mapping[str, Any] = field(default_factory=dict)
    image_models: tuple[str, ...] = ()
    quantizations: tuple[str, ...] = ()
    prefix: str = "model."
    aliases: Mapping[str, str] = field(default_factory=dict)
    complete: Callable[[Any, Mapping[str, Any]], None] | None = None
    tensor_shapes: Callable[[Any], Shapes] | None = None
    gguf: GGUFLayout | None = None

    def shapes(self, config: Any) -> Shapes:
        """Name and shape of all tensors of a checkpoint with this configuration."""
        assert self.tensor_shapes is not None, "each architecture lists its tensors"
        return self.tensor_shapes(config)

    def pieces(self, config: Any) -> Callable[[str], Iterable[Piece]]:
        """What each tensor of a checkpoint holds, by its name: itself."""
        return lambda name: [(name, lambda whole: whole)]


def affine(name: str, *shape: int, bias: int | None = None) -> Shapes:
    """`name`.weight and, if it has a bias, `name`.bias."""
    yield f"{name}.weight", shape
    if bias is not None:
        yield f"{name}.bias", (bias,)
