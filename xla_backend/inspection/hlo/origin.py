"""Where a kernel comes from: the layer, the part of the model, the line of Python."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from xla_backend.inspection.hlo import protos

EMBEDDING, ATTENTION, FEED_FORWARD, NORM = "embedding", "attention", "feed-forward", "norm"
HEAD, CACHE, CHOICE, OTHER = "head", "KV cache", "token choice", "other"
CONVOLUTION = "convolution"

_LAYER = re.compile(r"\.(?:h|layers?|blocks?|block)\.(\d+)\.")
_OF_WEIGHTS = (
    (NORM, re.compile(r"(?:^|[._])(?:ln_\w+|\w*norm\w*|layer_?norm\w*)\.(?:weight|bias)$", re.I)),
    (CONVOLUTION, re.compile(r"\.conv\.")),
    (ATTENTION, re.compile(r"attn|attention|[qkvo]_proj|relative_attention_bias", re.I)),
    (FEED_FORWARD, re.compile(r"mlp|fc[12]|dense|gate_proj|up_proj|down_proj|w[io]", re.I)),
    (EMBEDDING, re.compile(r"wpe|embed_positions|positions", re.I)),
    (HEAD, re.compile(r"wte|embed_tokens|lm_head|shared|proj_out|project_out", re.I)),
)
_OF_FUNCTIONS = (
    (CACHE, {"write_kv_cache"}),
    (ATTENTION, {"attend", "attend_all", "attend_step", "attend_causally", "attend_cross"}),
    (NORM, {"_mean"}),
    (HEAD, {"_logits"}),
    (EMBEDDING, {"_embed", "embed"}),
    (FEED_FORWARD, {"gelu_exact", "gelu_tanh"}),
)
_CHOOSING = ("sampling.py", "beam_search.py", "output.py")
_PACKAGE = "/xla_backend/"


class Frame(NamedTuple):
    """A line of Python: `file` within the package, as "model/families/blocks.py"."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}"


def layer_of(weight: str) -> int | None:
    """The number of a weight's layer; None if it belongs to none."""
    found = _LAYER.search(weight)
    return int(found[1]) if found else None


def is_shared(weight: str) -> bool:
    """Whether a weight belongs to no layer; values after it belong to none, either (the head)."""
    return layer_of(weight) is None


def part_of_weight(name: str) -> str:
    """The part of the model that a weight belongs to."""
    return next((part for part, pattern in _OF_WEIGHTS if pattern.search(name)), OTHER)


def part_of(weights: Sequence[str], reads: Sequence[int], frames: Sequence[Frame]) -> str:
    """The part of the model that a kernel belongs to.

    Args:
        weights: that it reads. reads: the bytes of each.
        frames: from `Sources.of`.
    """
    names = {frame.function for frame in frames}
    innermost = frames[-1].file if frames else ""
    if innermost.endswith(_CHOOSING) or names & {"_select_token", "select_beams"}:
        return CHOICE
    if weights:
        part = part_of_weight(weights[max(range(len(weights)), key=reads.__getitem__)])
        # A tied head is the embedding: the line says which of the two it is.
        return EMBEDDING if part == HEAD and names & {"_embed", "embed"} else part
    if frames and frames[-1].function == "__call__" and "_logits" not in names:
        return NORM  # a norm, without the line that reads its weights
    if innermost.endswith("decoding.py") and frames[-1].function == "prefill":
        return CACHE  # keys and values are passed on
    found = (part for part, functions in _OF_FUNCTIONS if names & functions)
    return next(found, CHOICE if innermost.endswith("decoding.py") else OTHER)


class Sources:
    """The lines of this package in which operations were made, by the operations' names."""

    def __init__(self, compressed: Iterable[bytes]) -> None:
        _, info_message = protos.graphs()
        self._frames: dict[str, tuple[Frame, ...]] = {}
        for each in compressed:
            info = info_message.FromString(zlib.decompress(each))
            frames = {
                id: Frame(
                    info.files[frame.file_index].rpartition(_PACKAGE)[2], frame.line, frame.func
                )
                for id, frame in info.frames_by_id.items()
                if f"{_PACKAGE}model/" in info.files[frame.file_index]
            }
            traces = {
                id: tuple(frames[one] for one in trace.frame_id if one in frames)
                for id, trace in info.traces_by_id.items()
            }
            for name, id in info.name_to_trace_id.items():
                if id in traces:
                    self._frames.setdefault(name, traces[id])

    def of(self, operation: str) -> tuple[Frame, ...]:
        """The lines that led to an operation, the innermost last; empty if unknown."""
        return self._frames.get(operation, ())
