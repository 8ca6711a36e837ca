"""A saved folder gives the model back, for each of the three architectures."""

import pytest
from safetensors.numpy import load_file

from demo_models.training.checkpoint import pytorch_weights, save_weights
from demo_models.training.train import RECIPES, build_model, reload_difference


@pytest.mark.parametrize("name", RECIPES)
def test_a_saved_model_has_the_same_logits(name, tmp_path):
    model = build_model(name)
    save_weights(model, tmp_path)
    assert reload_difference(model, tmp_path) < 1e-5
    assert load_file(tmp_path / "model.safetensors").keys() == pytorch_weights(model).keys()


def test_layouts_are_those_of_pytorch():
    gpt2 = pytorch_weights(build_model("gpt2-stories"))
    assert gpt2["transformer.h.0.attn.c_attn.weight"].shape == (160, 480)
    assert gpt2["transformer.h.0.attn.c_attn.bias"].shape == (480,)
    assert gpt2["transformer.ln_f.weight"].shape == (160,)
    t5 = pytorch_weights(build_model("t5-stories"))
    assert t5["encoder.block.0.layer.1.DenseReluDense.wi.weight"].shape == (512, 128)
    bias = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    assert t5[bias].shape == (32, 4)
    opt = pytorch_weights(build_model("opt-stories"))
    assert opt["model.decoder.layers.0.fc1.weight"].shape == (640, 160)
    assert opt["model.decoder.embed_positions.weight"].shape == (514, 160)
