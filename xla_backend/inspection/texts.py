"""`write`: a key's functions as XLA's texts; `passes`: what each pass changes in one layer.

Both trace and compile again.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import tensorflow as tf

from xla_backend.checkpoints.models import Registry
from xla_backend.compilation.compiler import Compiler
from xla_backend.inspection.inspector import STAGES
from xla_backend.inspection.layer_ways import shortened
from xla_backend.inspection.passes import Pass, read
from xla_backend.interface.buckets import CacheKey
from xla_backend.interface.errors import InvalidRequest
from xla_backend.model.functions import FunctionBuilder
from xla_backend.model.loaded_model import LoadedModel

# The origins of operations. Netron reads StableHLO, but not all forms of these.
_LOCATIONS = re.compile(rb'^#loc.*\n| loc\((?:#loc\d*|fused\[[^\]]*\]|"[^"]*")\)', re.MULTILINE)


def write(folder: Path, model: str, registry: Registry, key: CacheKey) -> None:
    """Writes the files into a folder: `prefill.hlo.txt` and so on."""
    loaded = LoadedModel(registry.locate(model), Compiler(None))
    for name, (function, arguments) in loaded.functions.examples(key).items():
        text_of = _texts_of(function, arguments)
        for stage, ending in STAGES.items():
            text = text_of(stage)
            data = text if isinstance(text, bytes) else text.encode()
            if stage == "stablehlo":
                data = _LOCATIONS.sub(b"", data)
            (folder / f"{name}.{ending}").write_bytes(data)


def passes(folder: Path, model: str, registry: Registry, key: CacheKey) -> list[Pass]:
    """Compiles decode with the first layer alone; XLA dumps into the folder: `passes.dumping`."""
    loaded = LoadedModel(registry.locate(model), Compiler(None))
    decoder = loaded.functions.decoder
    layers = getattr(decoder.model, "layers", ())[:1]
    if not layers:
        raise InvalidRequest(
            f"One layer of {model} cannot be compiled alone: choose a model without an encoder."
        )
    short = dataclasses.replace(decoder, model=shortened(decoder.model, layers))
    builder = FunctionBuilder(short, None, loaded.identity, Compiler(None))
    _texts_of(*builder.examples(key)["decode"])("optimized_hlo")
    return read(folder)


def _texts_of(function: Callable[..., Any], arguments: list[Any]) -> Callable[[str], str | bytes]:
    flat = tf.nest.flatten(arguments)

    def call(*given: tf.Tensor) -> list[tf.Tensor]:
        return tf.nest.flatten(function(*tf.nest.pack_sequence_as(arguments, list(given))))

    compiled = tf.function(call, jit_compile=True, autograph=False)
    ir_of = compiled.experimental_get_compiler_ir(*flat)
    return lambda stage: cast("str | bytes", ir_of(stage=stage))
