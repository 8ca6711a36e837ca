"""Models as tables: the list with what each takes, and the one that might be added; progress.

Knows how `ModelInfo` and runs of the past read. Must not know the engine or components.
"""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

import htpy as h

from playground.tabs.models.adding import AddingProgress
from playground.ui.components import notice
from playground.ui.markup import rendered, with_note
from playground.ui.quantities import file_size, seconds
from playground.ui.report_parts import downloading
from playground.ui.tables import sheet
from playground.ui.wording import model_name
from xla_backend import CacheKey, ModelInfo
from xla_backend.checkpoints.architectures.table import display_name
from xla_backend.inspection.measurement import MachineLimits
from xla_backend.interface.results import KeyHistory, Past

_HEADINGS = ("Model", "Architecture", "Download", "License", "Context", "Weights", "Last run here")
_DASH = "–"
_PROOF = Path(__file__).with_name("proof.json")
"""Rows of `benchmarks numbers`, which `make proof` writes."""


@rendered
def models_sheet(
    models: Sequence[ModelInfo], past: Past, limits: MachineLimits | None = None
) -> h.Node:
    """All models as an HTML table; `limits` of this machine if they were measured."""
    rows = []
    for model in models:
        history = past.get(model.name, {})
        rows.append(_values(model) | _weights(model, history, limits) | _last_run(history))
    return sheet(_HEADINGS, [row.values() for row in rows])


@rendered
def candidate_sheet(model: ModelInfo) -> h.Node:
    """What was found about a model, before it is downloaded, as an HTML table."""
    values = _values(model)
    if model.source == "hub" and not model.model_type:
        values["Architecture"] = "in the file, which must be downloaded first"
    return sheet(values, [values.values()])


@rendered
def progress_line(progress: AddingProgress | None) -> h.Node:
    """How far the last addition has come; empty before the first."""
    if progress is None:
        return None
    name = model_name(progress.name)
    if progress.state == "failed":
        return notice(progress.problem)
    if progress.state == "cancelled":
        return notice(f"Cancelled: {name} was not added.", "calm")
    if progress.state == "added":
        return notice(f"Added: {name} is in the lists of models.", "calm")
    done = f"{file_size(progress.done)} of {file_size(progress.total)}"
    share = progress.done / progress.total if progress.total else 0.0
    return downloading(f"{name}: {done}", share)


def _values(model: ModelInfo) -> dict[str, h.Node]:
    size = file_size(model.download_bytes) if model.download_bytes else ""
    if model.on_disk or model.source != "hub":
        size = "on this computer"
    return {
        "Model": model_name(model.name),
        "Architecture": display_name(model.model_type),
        "Download": size or _DASH,
        "License": model.license or _DASH,
        "Context": f"{model.context_length:,} tokens" if model.context_length else _DASH,
    }


def _weights(
    model: ModelInfo, history: dict[CacheKey, KeyHistory], limits: MachineLimits | None
) -> dict[str, h.Node]:
    """What the weights of a loaded model take in memory, and how near a token is to reading them.

    A token reads every weight once, so no token can take less than that.
    """
    if model.weights_bytes is None:
        return {"Weights": _DASH}
    notes = [f"rounded to {model.rounded_bits} bits"] if model.rounded_bits else []
    notes += filter(None, [_measured(model)])
    of_one = [each for key, each in history.items() if key.num_beams == 1]
    rows = [row for each in of_one for row in each.rows if row.new_tokens > 1]
    if rows and limits is not None:
        token_s = statistics.median(row.decode_s / (row.new_tokens - 1) for row in rows)
        read_s = model.weights_bytes / limits.read_bytes_s
        notes.append(f"a token takes {token_s / read_s:.1f} times as long as reading them")
    formats = []
    for name, sizes in model.matrices.items():
        of_each = ", ".join(f"{form} {file_size(size)}" for form, size in sizes.items())
        formats.append(h.li[f"{name.replace('+', ' + ')}: {of_each}"])  # so that it can be broken
    return {
        "Weights": [
            with_note(file_size(model.weights_bytes), *notes),
            formats and h.details[h.summary["Format by matrix"], h.ul[formats]],
        ]
    }


def _measured(model: ModelInfo) -> str:
    """What `make proof` found of its format; empty where it did not measure that."""
    form = model.formats.partition(",")[0]
    program = f"this engine, {form}" + (" with int8" if model.activations == "int8" else "")
    for row in [] if model.weights != "auto" else json.loads(_PROOF.read_text(encoding="utf-8")):
        if (row["model"], row["program"]) == (model.name, program):
            return (
                f"{form} beside PyTorch in float32: divergence {row['divergence, mean']} nats, the "
                f"same most likely token in {row['same token']}, {row['greedy, equal']} greedy "
                "texts equal (docs/proof.md)"
            )
    return ""


def _last_run(past: dict[CacheKey, KeyHistory]) -> dict[str, h.Node]:
    """The last call of the shape that was used most; nothing is made up where none ran."""
    ran = [(key, each) for key, each in past.items() if each.run_s is not None]
    if not ran:
        return {"Last run here": _DASH}
    key, history = max(ran, key=lambda each: each[1].times)
    assert history.run_s is not None
    shape = f"{key.padded_length} + {key.max_new_tokens} slots"
    if key.is_pooled:
        shape = "one shape for all lengths"
    return {"Last run here": with_note(seconds(history.run_s), shape)}
