"""The measures, and the bars for their ratios.

Knows the calls of each measure and the ratios that count. Must not know how calls are run
(`runner`) nor how numbers are shown (`report`).

Calls for 2 and for N new tokens give two statistics. *Time per token*: their difference over N - 2,
so it does not include the prompt. *First token*: the call for 2, less one token's time. (Compiled
`model.generate` cannot generate a single token.) A ratio is computed per round; the median counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from benchmarks import contenders as c
from xla_backend.checkpoints.models import PACKAGED_MODEL

FEW, MANY = 2, 64
SHORT_PROMPT, LONG_PROMPT = 16, 448
PUBLISHED = "124m"
BUNDLED = ("gpt2-stories", "opt-stories")
MODERN = (PACKAGED_MODEL, "Qwen2.5-0.5B")


@dataclass(frozen=True)
class Call:
    """One call that is timed in every round.

    Attributes:
        contender: a name in `contenders.CONTENDERS`.
        model: a name that `runner.checkpoint` knows.
        setting: distinguishes calls of one contender: "sampling", "greedy"; may be empty.
        x: in a measure of growth, the value on the x axis.
    """

    contender: str
    model: str
    new_tokens: int
    prompt_tokens: int = SHORT_PROMPT
    num_beams: int = 1
    setting: str = ""
    sampling: bool = False
    stream: bool = False
    x: int | None = None


@dataclass(frozen=True)
class Measure:
    """Calls that are timed in turn, in one run.

    Attributes:
        same_tokens: whether all float32 contenders must write the same tokens.
        is_quick: whether it is in the quick set; `full_only` calls never are.
        growth: in a measure of growth, the label of the x axis.
    """

    name: str
    title: str
    model: str
    calls: tuple[Call, ...] = ()
    full_only: tuple[Call, ...] = ()
    same_tokens: bool = False
    is_quick: bool = True
    growth: str = ""


@dataclass(frozen=True)
class Bar:
    """A bound on a ratio.

    Attributes:
        measure, model: source of its numbers.
        of, over: the ratio's parts: a contender's name, or the setting of the engine's calls.
        bar, aim: what the ratio must reach, and what it should.
        statistic: of the calls.
    """

    measure: str
    sentence: str
    of: str
    over: str
    bar: float
    aim: float
    statistic: Literal["token", "first token", "whole call"] = "token"
    model: str = PUBLISHED

    @property
    def at_least(self) -> bool:
        """Whether larger ratios are better ("times faster")."""
        return self.aim > self.bar


def _pair(
    contenders: tuple[str, ...], model: str, prompt_tokens: int = SHORT_PROMPT, num_beams: int = 1
) -> tuple[Call, ...]:
    return tuple(
        Call(name, model, new_tokens, prompt_tokens, num_beams)
        for name in contenders
        for new_tokens in (FEW, MANY)
    )


_RIVALS = (c.ENGINE, c.CTRANSLATE2, c.COMPILED_GENERATE, c.PYTORCH)
_MORE = (c.CTRANSLATE2_INT8, c.ONNX_RUNTIME, c.PYTORCH_COMPILED)


_MODERN_RIVALS = {
    model: (
        *(c.LIMIT, c.ENGINE, c.PYTORCH, c.CTRANSLATE2, c.CTRANSLATE2_INT8, c.KERAS_HUB),
        c.NARROW["int8"],
        *(
            (*c.LLAMA_CPP.values(), c.NARROW["Q4_1"], c.NARROW["Q8_0"])
            if model == PACKAGED_MODEL
            else ()
        ),
    )
    for model in MODERN
}


def _engine(model: str, setting: str, **values) -> Call:
    return Call(c.ENGINE, model, setting=setting, **values)


_TOKENS = {n: {"new_tokens": n} for n in (16, 32, 64, 128, 256, 512)}
_PROMPTS = {n: {"new_tokens": 1, "prompt_tokens": n} for n in (8, 16, 32, 64, 128, 256, 512)}
_BEAMS = {n: {"num_beams": n} for n in (1, 2, 3, 4, 6, 8)}
_LAYERS = {n: {"model": f"{n}-layers"} for n in (2, 4, 8, 16, 32, 48)}
_VOCABULARIES = {n: {"model": f"{n}-thousand-tokens"} for n in (16, 32, 64, 128, 256)}
_WEIGHTS = {
    millions: {"model": model}
    for model, millions in {
        PACKAGED_MODEL: 135,
        "Qwen2.5-0.5B": 494,
        "Qwen3-0.6B": 596,
        "Llama-3.2-1B": 1236,
    }.items()
}


def _growth(
    name: str,
    title: str,
    axis: str,
    model: str,
    values: dict[int, dict[str, Any]],
    *kinds: str,
) -> Measure:
    """How the time grows with one thing, for float32 and other kinds of weights.

    Args:
        name, title, axis, model: of the measure.
        values: by the value on the x axis: what its calls have of their own.
        kinds: of weights besides float32; all by default. Where the models are large, they would
            not fit in memory side by side.
    """
    calls = tuple(
        Call(contender, x=x, **{"model": model, "new_tokens": 32} | of_call)
        for contender in (c.ENGINE, *(c.NARROW[kind] for kind in kinds or ("bfloat16", "int8")))
        for x, of_call in values.items()
    )
    return Measure(f"growth-{name}", title, model, calls, is_quick=False, growth=axis)


MEASURES = (
    Measure(
        "greedy",
        "Greedy search, short prompt",
        PUBLISHED,
        _pair((c.LIMIT, *_RIVALS), PUBLISHED),
        _pair((*_MORE, c.KERAS_HUB), PUBLISHED),
        same_tokens=True,
    ),
    *(
        Measure(
            name,
            f"Narrow weights, {title}",
            PUBLISHED,
            _pair(
                (c.ENGINE, c.NARROW["bfloat16"], c.NARROW["int8"]), PUBLISHED, num_beams=num_beams
            ),
        )
        for name, title, num_beams in (
            ("narrow", "greedy search", 1),
            ("narrow-beams", "4 beams", 4),
        )
    ),
    Measure(
        "beams-2",
        "2 beams",
        PUBLISHED,
        _pair((c.ENGINE, c.CTRANSLATE2, c.PYTORCH), PUBLISHED, num_beams=2),
        is_quick=False,
    ),
    Measure(
        "beams",
        "4 beams",
        PUBLISHED,
        _pair(_RIVALS, PUBLISHED, num_beams=4),
        _pair((c.CTRANSLATE2_INT8, c.ONNX_RUNTIME), PUBLISHED, num_beams=4),
    ),
    Measure(
        "context",
        "After a prompt of 448 tokens",
        PUBLISHED,
        _pair((c.LIMIT, *_RIVALS), PUBLISHED, LONG_PROMPT),
        _pair(_MORE, PUBLISHED, LONG_PROMPT),
        same_tokens=True,
    ),
    *(
        Measure(
            "greedy",
            f"Greedy search, {model}",
            model,
            _pair((c.LIMIT, c.ENGINE, c.CTRANSLATE2), model),
            _pair((c.PYTORCH,), model),
            same_tokens=model != "whisper-tiny",
        )
        for model in ("opt-125m", "t5-small", "whisper-tiny")
    ),
    *(
        Measure(
            name,
            f"{model}, {prompt}",
            model,
            _pair(_MODERN_RIVALS[model], model, prompt_tokens),
            same_tokens=name == "greedy",
            is_quick=model == PACKAGED_MODEL,
        )
        for model in MODERN
        for name, prompt, prompt_tokens in (
            ("greedy", "short prompt", SHORT_PROMPT),
            ("context", "after a prompt of 400 tokens", 400),
        )
    ),
    *(
        Measure(
            "bundled",
            f"The bundled {model}",
            model,
            tuple(Call(name, model, MANY) for name in (c.ENGINE, c.EAGER_GENERATE, c.CTRANSLATE2)),
            tuple(Call(name, model, MANY) for name in (c.COMPILED_GENERATE, c.PYTORCH)),
            same_tokens=True,
            is_quick=model == BUNDLED[0],
        )
        for model in BUNDLED
    ),
    *(
        Measure(
            "sampling",
            f"Sampling against greedy search, {model}",
            model,
            (
                *(_engine(model, "greedy", new_tokens=n) for n in (FEW, MANY)),
                *(_engine(model, "sampling", new_tokens=n, sampling=True) for n in (FEW, MANY)),
            ),
        )
        for model in (PUBLISHED, BUNDLED[0])
    ),
    *(
        Measure(
            "streaming",
            f"Streaming against one whole call, {model}",
            model,
            (
                _engine(model, "whole", new_tokens=MANY),
                _engine(model, "streamed", new_tokens=MANY, stream=True),
            ),
        )
        for model in (PUBLISHED, BUNDLED[0])
    ),
    Measure("page", "The page: click to first text", BUNDLED[0]),
    Measure("memory", "Memory of the engine with 10 keys", PUBLISHED),
    _growth("tokens", "Whole call, new tokens", "new tokens", PUBLISHED, _TOKENS),
    _growth(
        "prompt", "First token, tokens of the prompt", "tokens of the prompt", PUBLISHED, _PROMPTS
    ),
    _growth("beams", "32 new tokens, beams", "beams", PUBLISHED, _BEAMS),
    _growth("layers", "32 new tokens, layers (width 384)", "layers", "layers", _LAYERS),
    _growth(
        "vocabulary",
        "32 new tokens, vocabulary (4 layers, width 384)",
        "thousands of tokens",
        "vocabularies",
        _VOCABULARIES,
    ),
    _growth("weights", "32 new tokens, weights", "millions of weights", "sizes", _WEIGHTS, "int8"),
)

BARS = (
    Bar("greedy", "greedy, a token, over the limit", c.ENGINE, c.LIMIT, 1.3, 1.05),
    Bar("greedy", "greedy, a token, against PyTorch eager", c.PYTORCH, c.ENGINE, 1.5, 2.0),
    Bar(
        *("greedy", "greedy, a token, against compiled model.generate"),
        *(c.COMPILED_GENERATE, c.ENGINE, 1.0, 1.3),
    ),
    Bar("greedy", "greedy, a token, over CTranslate2", c.ENGINE, c.CTRANSLATE2, 1.25, 1.0),
    Bar("beams", "4 beams, a token, against PyTorch eager", c.PYTORCH, c.ENGINE, 2.0, 2.5),
    Bar("beams", "4 beams, a token, over CTranslate2", c.ENGINE, c.CTRANSLATE2, 1.2, 1.0),
    Bar(
        *("context", "context of 448, a token, against compiled model.generate"),
        *(c.COMPILED_GENERATE, c.ENGINE, 1.2, 1.6),
    ),
    Bar("context", "context of 448, a token, over CTranslate2", c.ENGINE, c.CTRANSLATE2, 1.4, 1.0),
    Bar(
        *("context", "prompt of 448, first token, against compiled model.generate"),
        *(c.COMPILED_GENERATE, c.ENGINE, 1.4, 1.6, "first token"),
    ),
    Bar(
        *("context", "prompt of 448, first token, over CTranslate2"),
        *(c.ENGINE, c.CTRANSLATE2, 1.1, 1.0, "first token"),
    ),
    *(
        bar
        for model in MODERN
        for bar in (
            Bar(
                *("greedy", f"{model}, a token, over the limit", c.ENGINE, c.LIMIT, 1.4, 1.1),
                model=model,
            ),
            Bar(
                *("greedy", f"{model}, a token, against PyTorch eager"),
                *(c.PYTORCH, c.ENGINE, 1.5, 2.5, "token", model),
            ),
            Bar(
                *("greedy", f"{model}, a token, against keras-hub"),
                *(c.KERAS_HUB, c.ENGINE, 1.3, 2.0, "token", model),
            ),
        )
    ),
    Bar(
        *("context", f"{PACKAGED_MODEL}, prompt of 400, first token, over llama.cpp Q4_1"),
        *(c.ENGINE, c.LLAMA_CPP["Q4_1"], 0.45, 0.3, "first token", PACKAGED_MODEL),
    ),
    Bar(
        *("context", f"{PACKAGED_MODEL}, prompt of 400, first token, Q4_1 over llama.cpp Q4_1"),
        *(c.NARROW["Q4_1"], c.LLAMA_CPP["Q4_1"], 0.45, 0.25, "first token", PACKAGED_MODEL),
    ),
    *(
        Bar(
            *("greedy", f"{PACKAGED_MODEL}, a token, {kind} over llama.cpp {kind}"),
            *(c.NARROW[kind], c.LLAMA_CPP[kind], bar, 1.0, "token", PACKAGED_MODEL),
        )
        for kind, bar in (("Q4_1", 1.8), ("Q8_0", 1.6))
    ),
    Bar(
        *("greedy", "Qwen2.5-0.5B, a token, int8 over CTranslate2 int8"),
        *(c.NARROW["int8"], c.CTRANSLATE2_INT8, 1.1, 0.8, "token", "Qwen2.5-0.5B"),
    ),
    *(
        Bar(measure, f"{title}, {kind} over float32", c.NARROW[kind], c.ENGINE, bar, aim)
        for measure, title, kind, bar, aim in (
            ("narrow", "greedy, a token", "int8", 0.7, 0.5),
            ("narrow-beams", "4 beams, a token", "bfloat16", 0.7, 0.5),
            ("narrow-beams", "4 beams, a token", "int8", 0.6, 0.4),
        )
    ),
    *(
        Bar(
            *("bundled", f"{model}, cached call against eager model.generate"),
            *(c.EAGER_GENERATE, c.ENGINE, 100.0, 400.0, "whole call", model),
        )
        for model in BUNDLED
    ),
    *(
        Bar(
            *("sampling", f"{model}, sampling over greedy, a token"),
            *("sampling", "greedy", 1.1, 1.03, "token", model),
        )
        for model in (PUBLISHED, BUNDLED[0])
    ),
    *(
        Bar(
            *("streaming", f"{model}, streaming over one whole call"),
            *("streamed", "whole", 1.05, 1.02, "whole call", model),
        )
        for model in (PUBLISHED, BUNDLED[0])
    ),
    *(
        Bar(
            *("greedy", f"{model}, a token, over CTranslate2"),
            *(c.ENGINE, c.CTRANSLATE2, 1.4, 1.0, "token", model),
        )
        for model in ("opt-125m", "t5-small", "whisper-tiny")
    ),
)

PAGE_BAR_S, PAGE_AIM_S = 0.080, 0.030
"""Seconds from the click to the first text, less the engine's time to its first token."""
FAR_S = 0.1
"""Round-trip time to a distant server, in seconds."""
