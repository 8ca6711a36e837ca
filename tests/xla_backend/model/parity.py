"""One small model twice: through `Backend`, and through Transformers' own eager `model.generate`,
which runs in the process of `tests.oracle`.

Knows the forms of the model families that are compared, how a random checkpoint of each is made to
write texts that wander and end, and how both sides are asked. Must not know which options a test
asks with.

Nothing here has a tolerance: both sides choose from the same float32 logits up to rounding (about
1e-5), and the weights of these checkpoints let the chosen token lead by far more. Were a near-tie
ever to flip a token on another processor, `Pair.assert_same_text` says by how little the oracle
itself preferred its own text.
"""

import abc
import dataclasses
import functools
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import tensorflow as tf
from transformers import WhisperFeatureExtractor

from tests import checkpoints
from tests.oracle import Oracle, load_oracle
from xla_backend import Backend, BucketRules, GenerationOptions, GenerationResult
from xla_backend.checkpoints.tokenization import Tokenizer
from xla_backend.model.output import TOP_TOKENS

NEW_TOKENS = 12
PROMPT_TOKENS = {8: 5, 16: 16, 40: 33}
"""Padded length: tokens of the prompt that is asked with. One prompt needs no padding."""

RULES = BucketRules(padded_lengths=tuple(PROMPT_TOKENS), max_new_tokens=(NEW_TOKENS,))
RATE = 16_000  # Hz
WINDOW_S = 2.0
"""Seconds that the speech models of `checkpoints` hear, whatever the recording's length."""


@dataclasses.dataclass(frozen=True)
class Pair(abc.ABC):
    """One model twice.

    Attributes:
        folder: the checkpoint that both read.
        oracle: the `TF...` model of Transformers; reads the generation config at each call.
        inputs: what tests ask with: prompts, one a padded length, or recordings, (n,) float32.
        is_pooled: whether the backend is asked for a row of its pool.
    """

    unit: ClassVar[str]
    """What the key's padded length counts."""

    backend: Backend
    folder: Path
    oracle: Oracle
    inputs: tuple[Any, ...] = ()
    is_pooled: bool = False

    @abc.abstractmethod
    def ours(self, given: Any, **options: Any) -> GenerationResult:
        """The backend's answer, on a function of exactly the padded length that fits, or a row."""

    @abc.abstractmethod
    def read(self, given: Any) -> dict[str, np.ndarray]:
        """What the oracle is given to read, without any padding, by argument."""

    @abc.abstractmethod
    def start(self, given: Any) -> list[int]:
        """The tokens that the oracle's text begins with before it writes."""

    def logits(self, given: Any, text: list[int]) -> np.ndarray:
        """The oracle's logits after each token of a text with its start: (n, vocabulary)."""
        return self.oracle.logits({**self.read(given), "decoder_input_ids": np.int32([text])})[0]

    def theirs(self, given: Any, *, max_new_tokens: int = NEW_TOKENS, **options: Any) -> list[int]:
        """The oracle's new tokens, up to the first that ends a text."""
        written = self.oracle.generate(
            self.read(given), do_sample=False, max_new_tokens=max_new_tokens, **options
        )
        ids, start = written[0].tolist(), self.start(given)
        assert ids[: len(start)] == start
        ids = ids[len(start) :]
        ends = self.ends(options)
        stops = [place for place, token in enumerate(ids) if token in ends]
        return ids[: stops[0] + 1] if stops else ids

    def assert_same_text(self, given: Any, **options: Any) -> GenerationResult:
        """Both write the same tokens; returns the backend's answer."""
        result, expected = self.ours(given, **options), self.theirs(given, **options)
        ids = [token.id for token in result.tokens]
        if ids != expected:
            ours, theirs = (self.logprobs(given, text).sum() for text in (ids, expected))
            pytest.fail(
                f"{options} after {given!r}:\n{ids} instead of\n{expected};\nthe oracle gives "
                f"them log-probabilities of {ours:.5f} and {theirs:.5f}"
            )
        ends = ids[-1] in self.ends(options)
        assert result.finish == ("eos" if ends else "length")
        assert ends or len(ids) == options.get("max_new_tokens", NEW_TOKENS)
        return result

    def distributions(self, given: Any, ids: list[int]) -> np.ndarray:
        """The oracle's log-probabilities of all tokens in the place of each new one,
        (n, vocabulary), all at once and without a cache."""
        start = self.start(given)
        logits = self.logits(given, start + ids[:-1])[len(start) - 1 :]
        return tf.nn.log_softmax(logits).numpy()

    def logprobs(self, given: Any, ids: list[int]) -> np.ndarray:
        """The oracle's log-probability of each new token, (n,)."""
        return np.take_along_axis(self.distributions(given, ids), np.array(ids)[:, None], 1)[:, 0]

    def logprob_difference(self, given: Any, result: GenerationResult) -> float:
        """By how much a log-probability that the backend reports is at most off the oracle's.

        Those of the top tokens in each place count too, and whether they are the top tokens: the
        best, second best and so on of the oracle's, where near-ties may come in another order.
        """
        theirs = self.distributions(given, [token.id for token in result.tokens])
        best = -np.sort(-theirs, axis=1)
        differences = []
        for place, token in enumerate(result.tokens):
            assert len({likely.id for likely in token.top_logprobs}) == TOP_TOKENS
            differences.append(token.logprob - theirs[place, token.id])
            for rank, likely in enumerate(token.top_logprobs):
                differences.append(likely.logprob - theirs[place, likely.id])
                differences.append(likely.logprob - best[place, rank])
        return float(np.max(np.abs(differences)))

    @property
    def settings(self) -> dict[str, Any]:
        return json.loads((self.folder / "generation_config.json").read_text())

    @property
    def eos_token_ids(self) -> list[int]:
        """The tokens that end a text."""
        return np.atleast_1d(self.settings["eos_token_id"]).tolist()

    def ends(self, options: dict[str, Any]) -> list[int]:
        """The tokens that end a text with these options."""
        own = [] if options.get("ignore_eos") else self.eos_token_ids
        return [*own, *options.get("stop_token_ids", ())]

    def configure(self, **values: Any) -> None:
        """Writes values into the checkpoint's generation config; the backend must not have read it
        yet."""
        path = self.folder / "generation_config.json"
        path.write_text(json.dumps(self.settings | values))


class TextPair(Pair):
    """A model that reads a prompt."""

    unit = "tokens"

    def ours(self, given: str, **options: Any) -> GenerationResult:
        """See `Pair.ours`."""
        return self.backend.generate(
            str(self.folder),
            given,
            GenerationOptions(
                **{"max_new_tokens": NEW_TOKENS, "exact_key": not self.is_pooled, **options}
            ),
            cache_salt="pool" if self.is_pooled else "",
        )

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The checkpoint's."""
        return Tokenizer.load(self.folder)

    def passage(self, tokens: int, number: int = 0) -> str:
        """A passage of a story with so many tokens, each number from the beginning of another word.

        A passage that would end with a space or in the middle of a token is not counted.
        """
        words = checkpoints.TEXT.split()
        fitting = (self._beginning(" ".join(words[first:]), tokens) for first in range(len(words)))
        return next(itertools.islice(filter(None, fitting), number, None))

    def _beginning(self, text: str, tokens: int) -> str | None:
        for end in range(1, len(text) + 1):
            found = len(self.tokenizer.encode(text[:end]))
            if found >= tokens:
                is_whole = found == tokens and not text[end - 1].isspace()
                return text[:end] if is_whole else None
        return None


class DecoderOnlyPair(TextPair):
    """GPT-2 or OPT: the text goes on where the prompt ends."""

    def read(self, given: str) -> dict[str, np.ndarray]:
        """See `Pair.read`."""
        ids = np.int32([self.tokenizer.encode(given)])
        return {"input_ids": ids, "attention_mask": np.ones_like(ids)}

    def start(self, given: str) -> list[int]:
        """See `Pair.start`."""
        return self.tokenizer.encode(given)

    def theirs(self, given: str, **options: Any) -> list[int]:
        """See `Pair.theirs`."""
        return super().theirs(given, pad_token_id=0, **options)

    def logits(self, given: str, text: list[int]) -> np.ndarray:
        """See `Pair.logits`."""
        return self.oracle.logits({"input_ids": np.int32([text])})[0]


class EncoderDecoderPair(TextPair):
    """T5: the prompt is the encoder's."""

    def read(self, given: str) -> dict[str, np.ndarray]:
        """See `Pair.read`."""
        return {"input_ids": np.int32([self.tokenizer.encode(given)])}

    def start(self, given: str) -> list[int]:
        """See `Pair.start`."""
        return [self.settings["decoder_start_token_id"]]


@dataclasses.dataclass(frozen=True)
class SpeechPair(Pair):
    """Whisper.

    Attributes:
        language: what both are told is spoken; None for a model that knows only one.
    """

    unit = "frames"

    language: str | None = None

    @functools.cached_property
    def extractor(self) -> WhisperFeatureExtractor:
        """The checkpoint's."""
        return WhisperFeatureExtractor.from_pretrained(self.folder)

    def ours(self, given: np.ndarray, **options: Any) -> GenerationResult:
        """See `Pair.ours`."""
        return self.backend.transcribe(
            str(self.folder),
            (RATE, given),
            GenerationOptions(**{"max_new_tokens": NEW_TOKENS, **options}),
            language=self.language,
        )

    def read(self, given: np.ndarray) -> dict[str, np.ndarray]:
        """See `Pair.read`; the extractor fills the window with silence."""
        return dict(self.extractor(given, sampling_rate=RATE, return_tensors="np"))

    def start(self, given: np.ndarray) -> list[int]:
        """See `Pair.start`: start, language and task where there is a choice, no timestamps."""
        settings = self.settings
        choice = (
            [settings["lang_to_id"][f"<|{self.language}|>"], settings["task_to_id"]["transcribe"]]
            if self.language
            else []
        )
        return [settings["decoder_start_token_id"], *choice, settings["no_timestamps_token_id"]]

    def theirs(
        self, given: np.ndarray, *, max_new_tokens: int = NEW_TOKENS, **options: Any
    ) -> list[int]:
        """See `Pair.theirs`; Transformers counts what it is forced to write as new tokens."""
        if self.language:
            options |= {"language": self.language, "task": "transcribe"}
        forced = len(self.start(given)) - 1
        return super().theirs(given, max_new_tokens=max_new_tokens + forced, **options)


@dataclasses.dataclass(frozen=True)
class Form:
    """One form of a family: which checkpoint, and which pair compares it.

    Attributes:
        write: one of `checkpoints`' functions. config: what it is called with.
        passages: of a text model, for each of `PROMPT_TOKENS` which passage of the story it is.
        language: of a speech model, where it has to be told one.
    """

    write: Callable[..., Path]
    kind: type[Pair]
    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    passages: tuple[int, ...] = (0, 0, 0)
    language: str | None = None


# Seeds and passages are chosen: with others some texts repeat themselves.
FORMS = {
    "GPT-2": Form(checkpoints.gpt2, DecoderOnlyPair),
    "OPT": Form(checkpoints.opt, DecoderOnlyPair, passages=(2, 0, 2)),
    # As facebook/opt-350m: norms behind, embeddings narrower than the layers.
    "OPT post-norm": Form(
        checkpoints.opt,
        DecoderOnlyPair,
        {"do_layer_norm_before": False, "word_embed_proj_dim": 32},
    ),
    "T5": Form(checkpoints.t5, EncoderDecoderPair, {"seed": 2}, passages=(6, 5, 2)),
    # Heads as wide as in the small T5 v1.1, wider than the model's width over their number; and
    # few buckets, so that the logarithmic ones are met after a dozen tokens.
    "T5 v1.1": Form(
        checkpoints.t5,
        EncoderDecoderPair,
        {
            "seed": 2,
            "feed_forward_proj": "gated-gelu",
            "tie_word_embeddings": False,
            "d_kv": 16,
            "relative_attention_num_buckets": 8,
            "relative_attention_max_distance": 20,
            "num_decoder_layers": 3,
        },
        passages=(0, 2, 5),
    ),
    "Whisper multilingual": Form(
        checkpoints.whisper,
        SpeechPair,
        {"multilingual": True, "seed": 9, "decoder_layers": 3, "decoder_attention_heads": 6},
        language="en",
    ),
    "Whisper English-only": Form(
        checkpoints.whisper,
        SpeechPair,
        {"multilingual": False, "seed": 5, "decoder_layers": 3, "decoder_attention_heads": 6},
    ),
}


def make_pair(form: Form, folder: Path, backend: Backend) -> Pair:
    """Both sides of a new checkpoint, some of whose texts end early and some do not.

    A random model would never write the token that ends a text: here texts end at tokens that the
    model likes to write. A speech model must do without others that it likes.
    """
    form.write(folder, **form.config)
    oracle = load_oracle(folder)
    if form.kind is SpeechPair:
        pair = SpeechPair(backend, folder, oracle, recordings(), language=form.language)
        first, _, third = (pair.theirs(samples) for samples in pair.inputs)
        pair.configure(suppress_tokens=[first[1]], begin_suppress_tokens=[first[0], third[0]])
    else:
        pair = form.kind(backend, folder, oracle)
        prompts = map(pair.passage, PROMPT_TOKENS.values(), form.passages)
        pair = dataclasses.replace(pair, inputs=tuple(prompts))
    pair.configure(eos_token_id=ends_of([pair.theirs(given) for given in pair.inputs]))
    return pair


def ends_of(texts: list[list[int]]) -> list[int]:
    """Two tokens: the first and the last text would end at them, the middle one would not."""
    first, middle, last = texts
    for ends in itertools.product(first[9:2:-1], last[9:2:-1]):
        if not set(ends) & {*first[:3], *middle, *last[:3]}:
            return list(ends)
    raise AssertionError(f"no two tokens end some of {texts} and not others")


def recordings() -> tuple[np.ndarray, ...]:
    """A rising tone, a pulse train that falls silent, and noise in waves that fills the window."""

    def times(seconds: float) -> np.ndarray:
        return np.arange(round(seconds * RATE)) / RATE

    noise = np.random.default_rng(0).standard_normal(round(WINDOW_S * RATE))
    tone, pulses, waves = times(0.7), times(1.4), times(WINDOW_S)
    return (
        np.float32(0.3 * np.sin(2 * np.pi * tone * (200 + 200 * tone))),
        np.float32(0.2 * np.sign(np.sin(2 * np.pi * 110 * pulses)) * (pulses < 1)),
        np.float32(0.1 * noise * np.sin(2 * np.pi * 3 * waves) ** 2),
    )
