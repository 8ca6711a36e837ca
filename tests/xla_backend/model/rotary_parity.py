"""What PyTorch writes with small random checkpoints of the rotary decoders, kept as JSON.

Knows the prompts and options, and how PyTorch's Transformers runs them. As a program it runs them
again, which needs PyTorch, and compares with the file or writes it:

    make parity [ARGS=--write]
"""

import argparse
import itertools
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests import checkpoints
from tests.decoder_forms import FORMS, SHORT_FORM
from xla_backend.interface.decisions import Question

EXPECTED = Path(__file__).with_suffix(".json")
NEW_TOKENS = 12
PROMPT_TOKENS = {8: 5, 16: 16, 40: 33}
"""Padded length: tokens of the prompt that is asked with. One prompt needs no padding."""
SEARCHES: tuple[dict[str, Any], ...] = (
    {"num_beams": 1},
    {"num_beams": 2},
    {"num_beams": 4},
    {"num_beams": 1, "repetition_penalty": 1.3},
    {"num_beams": 4, "repetition_penalty": 0.8, "length_penalty": 2.0},
)
DECIDED = checkpoints.TEXT[:150]
QUESTIONS = Question.all_of(
    {
        "fox": {"type": "yes_no", "instructions": "Is there a fox?"},
        "owl": {"type": "yes_no", "instructions": "Is the owl young?"},
        "where": {"type": "choice", "criteria": ["the river", "the hill", "a red kite", "r"]},
        "happy": {"type": "score", "instructions": "Happy?", "criteria": ["no", "so so", "yes"]},
    }
)
"""About that text; answers are of one token and of several."""
LARGEST_DIFFERENCE = 1e-4
"""Of log-probabilities: sums in another order move logits within ±40 by some 1e-5."""


def write(form: str, folder: Path, **generation: Any) -> Path:
    """Writes the checkpoint of a form, with values of its generation config."""
    checkpoints.rotary(folder, **FORMS[form])
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | generation))
    return folder


def write_ending(form: str, folder: Path) -> Path:
    """The same, where some texts end by themselves, as it was when PyTorch was asked."""
    expected = json.loads(EXPECTED.read_text())["forms"][form]
    return write(form, folder, eos_token_id=expected["eos_token_id"])


def prompt(padded_length: int, encode: Any) -> str:
    """The shortest beginning of the story with as many tokens as `PROMPT_TOKENS` says.

    Args:
        padded_length: one of `PROMPT_TOKENS`.
        encode: text to ids.
    """
    text = checkpoints.TEXT
    beginnings = (text[:end] for end in itertools.count(1))
    return next(x for x in beginnings if len(encode(x)) == PROMPT_TOKENS[padded_length])


def ask(form: str) -> dict[str, Any]:
    """What PyTorch writes: for each padded length and search, ids and log-probabilities."""
    import torch
    from transformers import (
        AutoModelForCausalLM,
        AutoModelForImageTextToText,
        PreTrainedTokenizerFast,
    )

    sees = "image_model" in FORMS[form]
    with tempfile.TemporaryDirectory() as root:
        folder = write(form, Path(root))
        encode = PreTrainedTokenizerFast.from_pretrained(folder).encode
        model, info = (
            AutoModelForImageTextToText if sees else AutoModelForCausalLM
        ).from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
        )
    others = {*info["missing_keys"], *info["unexpected_keys"]}
    assert not [name for name in others if not re.search("vision|visual|multi_modal", name)], others
    given = {length: encode(prompt(length, encode)) for length in PROMPT_TOKENS}

    def generate(ids: list[int], ends: list[int], **options: Any) -> list[int]:
        tensor = torch.tensor([ids])
        written = model.generate(
            tensor,
            attention_mask=torch.ones_like(tensor),
            do_sample=False,
            max_new_tokens=NEW_TOKENS,
            eos_token_id=ends,
            pad_token_id=0,
            **options,
        )[0].tolist()[len(ids) :]
        stops = [place for place, token in enumerate(written) if token in ends]
        return written[: stops[0] + 1] if stops else written

    def logprobs(ids: list[int], written: list[int]) -> list[list[float]]:
        """Of each new token, and of the most likely in its place, from the text at once."""
        with torch.no_grad():
            logits = model(torch.tensor([ids + written[:-1]])).logits[0, len(ids) - 1 :]
        all_logprobs = torch.log_softmax(logits, dim=-1)
        of_written = all_logprobs[torch.arange(len(written)), torch.tensor(written)]
        best = torch.topk(all_logprobs, 5).values
        return torch.cat([of_written[:, None], best], dim=1).numpy().round(6).tolist()

    def decisions(asked: Question) -> list[float]:
        """Of each answer to a question, the log-probability of all its tokens."""
        before = encode(f"{asked.prompt_for(DECIDED)}\nAnswer:")
        found = []
        for answer in asked.answers:
            ids = encode(f"{asked.prompt_for(DECIDED)}\nAnswer: {answer}")
            assert ids[: len(before)] == before
            found.append(round(sum(each[0] for each in logprobs(before, ids[len(before) :])), 6))
        return found

    # Texts of the first and the last prompt end at a token that they like, that of the other not.
    texts = [generate(ids, [0]) for ids in given.values()]
    fitting = (
        [*pair]
        for pair in itertools.product(texts[0][9:2:-1], texts[2][9:2:-1])
        if not {*pair} & {*texts[0][:3], *texts[1], *texts[2][:3]}
    )
    ends = next(fitting, None)
    assert ends, f"{form}: no two tokens end some of {texts} and not others"
    cases = []
    for (length, ids), options in itertools.product(given.items(), SEARCHES):
        written = generate(ids, ends, **options)
        cases.append(
            {
                "padded_length": length,
                "options": options,
                "ids": written,
                "logprobs": logprobs(ids, written),
            }
        )
    found: dict[str, Any] = {"eos_token_id": ends, "cases": cases}
    if form != SHORT_FORM:
        found["decisions"] = [*map(decisions, QUESTIONS)]
    return found


def main() -> None:
    """Compares PyTorch's answers with the file, or writes it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write the file anew")
    parser.add_argument("--forms", nargs="*", default=list(FORMS), help="these alone")
    parser.add_argument("--packages", type=Path, required=True, help="the folder that has torch")
    arguments = parser.parse_args()
    sys.path.append(str(arguments.packages))  # last: Transformers is this environment's
    import torch
    import transformers

    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    found = {"versions": versions, "forms": {form: ask(form) for form in arguments.forms}}
    expected = json.loads(EXPECTED.read_text())
    if arguments.write:
        found["forms"] = expected["forms"] | found["forms"]
        EXPECTED.write_text(json.dumps(found) + "\n")
        return
    for form in arguments.forms:
        for case, kept in zip(
            found["forms"][form]["cases"], expected["forms"][form]["cases"], strict=True
        ):
            assert case["ids"] == kept["ids"], (form, case["options"])
        pairs = zip(
            *(x["forms"][form].get("decisions", []) for x in (found, expected)), strict=True
        )
        assert all(np.allclose(*pair, atol=LARGEST_DIFFERENCE) for pair in pairs), form
        print(f"{form}: the same tokens as in {EXPECTED.name}")


if __name__ == "__main__":
    main()
