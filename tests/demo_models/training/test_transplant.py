"""OPT made out of GPT-2 computes what GPT-2 computes, given the same activation."""

import numpy as np
import tensorflow as tf

from demo_models.tokenization import VOCABULARY_SIZE
from demo_models.training.checkpoint import load_weights, pytorch_weights
from demo_models.training.train import build_model
from demo_models.training.transplant import opt_from_gpt2


def test_same_logits_with_the_same_activation():
    gpt2, opt = build_model("gpt2-stories"), build_model("opt-stories")
    for block in gpt2.transformer.h:
        block.mlp.act = tf.nn.relu
    # As if OPT's vocabulary were GPT-2's, in another order.
    gpt2_ids = {str(i): i for i in range(VOCABULARY_SIZE)}
    opt_ids = {str(i): VOCABULARY_SIZE - 1 - i for i in range(VOCABULARY_SIZE)}
    load_weights(opt, opt_from_gpt2(pytorch_weights(gpt2), gpt2_ids, opt_ids))
    ids = np.random.default_rng(1).integers(0, VOCABULARY_SIZE, (2, 70))
    wanted = gpt2(tf.constant(ids)).logits[..., ::-1]
    found = opt(tf.constant(VOCABULARY_SIZE - 1 - ids)).logits
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_a_new_token_starts_as_the_average():
    gpt2 = pytorch_weights(build_model("gpt2-stories"))
    ids = {str(i): i for i in range(VOCABULARY_SIZE)}
    opt = opt_from_gpt2(gpt2, ids, {"<pad>": 0, "5": 1})
    embedding = opt["model.decoder.embed_tokens.weight"]
    np.testing.assert_allclose(embedding[0], gpt2["transformer.wte.weight"].mean(axis=0))
    np.testing.assert_array_equal(embedding[1], gpt2["transformer.wte.weight"][5])
