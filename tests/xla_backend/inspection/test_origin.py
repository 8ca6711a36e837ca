"""Where kernels come from, by the names of weights and lines."""

import pytest

from xla_backend.inspection.hlo import origin
from xla_backend.inspection.hlo.origin import Frame


@pytest.mark.parametrize(
    ("weight", "layer", "part"),
    [
        ("transformer.h.3.mlp.c_fc.weight", 3, origin.FEED_FORWARD),
        ("transformer.h.11.attn.c_attn.weight", 11, origin.ATTENTION),
        ("transformer.h.0.ln_1.bias", 0, origin.NORM),
        ("transformer.wte.weight", None, origin.HEAD),
        ("transformer.wpe.weight", None, origin.EMBEDDING),
        ("model.decoder.layers.2.fc1.weight", 2, origin.FEED_FORWARD),
        ("model.decoder.layers.2.self_attn.q_proj.weight", 2, origin.ATTENTION),
        ("model.decoder.layers.2.self_attn_layer_norm.weight", 2, origin.NORM),
        ("decoder.block.1.layer.2.DenseReluDense.wi.weight", 1, origin.FEED_FORWARD),
        ("decoder.block.1.layer.0.SelfAttention.q.weight", 1, origin.ATTENTION),
        ("model.layers.5.mlp.gate_proj.weight", 5, origin.FEED_FORWARD),
        ("model.layers.5.input_layernorm.weight", 5, origin.NORM),
        ("lm_head.weight", None, origin.HEAD),
    ],
)
def test_weights_tell_layer_and_part(weight: str, layer: int | None, part: str) -> None:
    assert (origin.layer_of(weight), origin.part_of_weight(weight)) == (layer, part)


def test_a_tied_head_is_told_from_the_embedding_by_its_line() -> None:
    step = Frame("model/families/decoder_only.py", 1, "step")
    embed = Frame("model/families/blocks.py", 2, "embed")
    logits = Frame("model/families/decoder_only.py", 3, "_logits")
    assert origin.part_of(["transformer.wte.weight"], [4], [step, embed]) == origin.EMBEDDING
    assert origin.part_of(["transformer.wte.weight"], [4], [step, logits]) == origin.HEAD

    frame = Frame("model/sampling.py", 1, "top_tokens")
    assert origin.part_of([], [], [frame]) == origin.CHOICE
