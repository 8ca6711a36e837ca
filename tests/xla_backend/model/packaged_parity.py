"""The packaged model beside PyTorch, over the same weights: chat prompts, greedy, token for token.

Knows the questions, and how PyTorch's class takes a GGUF file's weights. Part of `make parity`,
because it needs PyTorch.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

NEW_TOKENS = 64
QUESTIONS = (
    "What is the capital of France?",
    "What is the capital of Italy?",
    "Explain what a compiler does to a child.",
    "Name three colours.",
    "Write a haiku about rain.",
    "What is 2 + 2?",
    "Translate good morning into French.",
    "Rewrite politely: give me the book.",
    "Who wrote Hamlet?",
    "List five animals.",
    "What is water made of?",
    "How do I boil an egg?",
    "Give me a name for a café.",
    "Is the earth flat?",
    "What day comes after Monday?",
    "Tell me a joke.",
    "Write SQL that counts the users.",
    "Summarise: The fox ran down the hill to look for her friend.",
    "What colour is the sky?",
    "Give me a name for a naïve 🦊.",
)


def main() -> None:
    """Asks both; fails if a token differs, and says by how little PyTorch preferred its own."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--packages", type=Path, required=True, help="the folder that has torch")
    sys.path.append(str(parser.parse_args().packages))  # last: Transformers is this environment's
    # Transformers looks for PyTorch when it is first imported, which the engine does too.
    import torch
    from transformers import LlamaForCausalLM

    from xla_backend import Backend, GenerationOptions, question
    from xla_backend.checkpoints.models import PACKAGED_MODEL, Registry
    from xla_backend.checkpoints.tokenization import Tokenizer
    from xla_backend.checkpoints.weights import read_weights

    files = Registry().locate(PACKAGED_MODEL)
    tensors = {x: torch.tensor(np.array(y)) for x, y in read_weights(files.folder).items()}
    model = LlamaForCausalLM(files.config).eval()
    assert model.load_state_dict(tensors, strict=False).missing_keys == ["lm_head.weight"]
    model.tie_weights()
    tokenizer, backend = Tokenizer.load(files.folder), Backend()
    equal = 0
    for text in QUESTIONS:
        prompt = question(text)
        ids = tokenizer.encode(prompt)
        options = GenerationOptions(max_new_tokens=NEW_TOKENS)
        ours = [
            token.id
            for token in backend.generate(PACKAGED_MODEL, prompt, options, mode="padded").tokens
        ]
        given = torch.tensor([ids])
        theirs = model.generate(
            given,
            attention_mask=torch.ones_like(given),
            do_sample=False,
            max_new_tokens=NEW_TOKENS,
            eos_token_id=files.generation_config.eos_token_id,
            pad_token_id=0,
        )[0].tolist()[len(ids) :]
        if ours == theirs:
            equal += 1
            continue
        place = next(
            i for i, pair in enumerate(zip(ours, theirs, strict=False)) if len({*pair}) > 1
        )
        with torch.no_grad():
            logits = model(torch.tensor([ids + theirs[:place]])).logits[0, -1]
        print(f"{text}: token {place}, logits {logits[ours[place]]} and {logits[theirs[place]]}")
    print(f"{equal} of {len(QUESTIONS)} answers have the same tokens as PyTorch's")
    sys.exit(equal < len(QUESTIONS))


if __name__ == "__main__":
    main()
