"""The result of a run, as HTML: the text, the verdict, the figures, the phases and the shape.

Knows how a `GenerationResult` reads for a visitor who has never heard of tracing. Must not know
components or events.
"""

from datetime import UTC, datetime

import htpy as h

from playground.context.runs import Shown
from playground.tabs.generate.in_words import about, latency, quote, read_again
from playground.ui import quantities, report_parts
from playground.ui.markup import answer, caret, quoted, remarks, rendered
from playground.ui.option_controls import LABELS, relevant
from playground.ui.outcomes import MEANING, badge, ended_by
from playground.ui.report_parts import PHASE_HINTS, PHASE_NAMES, trace_link
from playground.ui.wording import CONTINUING, Wording, model_name
from xla_backend import CacheKey, GenerationResult, Prediction, Prompt
from xla_backend.interface.decisions import Decisions
from xla_backend.interface.prompt import last_text, start_of_answer, system_text
from xla_backend.process.trace import TracedRequest


@rendered
def story(
    prompt: Prompt, text: str, writing: bool = False, wording: Wording = CONTINUING
) -> h.Node:
    """Prompt and continuation, or input and answer, in a box that stays scrolled to its end.

    An answer to messages is Markdown once it is finished.
    """
    given: h.Node = h.span(".story-prompt")[last_text(prompt)]
    text = start_of_answer(prompt) + text
    new: h.Node = h.span(".story-new")[text], caret(writing)
    if not isinstance(prompt, str) and not writing:
        new = h.div(".story-new.markdown", data_text=text)[answer(text)]
    if wording.is_apart:
        # What stands in `bdi` does not decide which way the text around it runs.
        given = h.div(".story-part", dir="auto")[h.h2[h.bdi[wording.input_label]], given]
        new = h.div(".story-part.story-answer", dir="auto")[
            h.h2[h.bdi[wording.output.capitalize()]], new
        ]
    return report_parts.text_box("Generated text", [given, new], writing)


@rendered
def origin(shown: Shown) -> h.Node:
    """Whose text it is and what ended it: the model, the options that had an effect, the time."""
    if isinstance(result := shown.result, Decisions):
        ended, options = quantities.count(len(result.decisions), "question"), {}
    else:
        ended, options = ended_by(result.finish, result.new_tokens), relevant(result.options)
    parts = [f"{LABELS[name]} {value}" for name, value in options.items()]
    if "max_new_tokens" in options:
        parts[[*options].index("max_new_tokens")] = report_parts.limit(result)
    if system := system_text(shown.prompt):
        parts.append(f"System prompt {quoted(system)}")
    parts.append(f"{datetime.fromtimestamp(shown.ended_s, UTC):%H:%M:%S} UTC")
    return h.p(".origin-earlier")["From the earlier run"], h.ul(".origin")[
        h.li(translate="no")[model_name(result.model)],
        h.li(".origin-ended")[ended[0].upper() + ended[1:]],
        [h.li[part] for part in parts],
    ]


@rendered
def interrupted() -> h.Node:
    """What stands below a text that an error or a reload has cut."""
    return h.p(".interrupted")["Interrupted: this is what was written until then."]


@rendered
def empty_story() -> h.Node:
    """The box before the first run."""
    sentence = h.span(".story-prompt")["The text appears here, word by word."]
    return h.div(".story", role="region", aria_label="Generated text")[
        h.div(".story-text")[sentence]
    ]


@rendered
def waiting_report(
    prediction: Prediction | None, ahead: int, wording: Wording = CONTINUING, clicked_s: float = 0.0
) -> h.Node:
    """The report while the request waits, compiles or runs: a clock, and the prediction."""
    slots = None
    if prediction and not (key := prediction.key).is_pooled:
        padding = max(0, key.padded_length - prediction.prompt_tokens)
        parts = _in_order(
            wording,
            ("padding", padding, "padding"),
            ("prompt", prediction.prompt_tokens, wording.input),
        )
        parts.append(("room", key.max_new_tokens, "room for new tokens"))
        slots = report_parts.slots(_shape_caption(key, wording), parts)
    return report_parts.waiting(prediction, ahead, clicked_s, slots)


@rendered
def report(shown: Shown, wording: Wording = CONTINUING) -> h.Node:
    """Verdict, figures, phases and shape of a finished run."""
    hints = {**PHASE_HINTS, "prefill": wording.prefill}
    result = shown.result
    timing = result.timing
    figures = report_parts.work_and_waiting(timing)
    ttft_s, ttft_queue_s = result.ttft_s, result.ttft_queue_s
    ttft_waits = ttft_s is not None and report_parts.has_waited(ttft_queue_s, ttft_s)
    if isinstance(result, Decisions):
        figures += [
            ("Tokens read", f"{result.prompt_tokens - result.cached_tokens:,}"),
            ("Read side by side", str(result.rows_at_once)),
        ]
    else:
        figures += [
            ("TTFT", quantities.seconds_or_dash(ttft_s)),
            ("TPOT", quantities.seconds_or_dash(result.tpot_s)),
            ("Decode tokens/s", quantities.rate(result.tokens_per_second)),
        ]
    if result.tokens_per_pass is not None:
        figures.append(("Tokens per pass (drafts accepted)", f"{result.tokens_per_pass:.1f}"))
    return report_parts.frame(
        badge(result.cache),
        MEANING[result.cache],
        report_parts.figures(figures),
        report_parts.against_first_call(result),
        report_parts.phases(result, PHASE_NAMES, hints),
        h.p(".files")[
            trace_link([TracedRequest.of(result, shown.spans)]),
            quote(latency(result), about(result, shown.ended_s)),
        ],
        _result_slots(result, wording),
        report_parts.waited(
            timing, ttft_s if ttft_waits else None, ttft_queue_s, shown.awaited_background
        ),
        _remarks(shown),
    )


def _in_order(
    wording: Wording, padding: tuple[str, int, str], given: tuple[str, int, str]
) -> list[tuple[str, int, str]]:
    return [padding, given] if wording.pads_left else [given, padding]


def _result_slots(result: GenerationResult, wording: Wording) -> h.Element:
    key = result.key
    if key.is_pooled:
        return _pool_slots(result, wording)
    parts = [
        *_in_order(
            wording,
            ("padding", max(0, key.padded_length - result.prompt_tokens), "padding"),
            ("prompt", result.prompt_tokens, wording.input),
        ),
        ("new", result.new_tokens, "new"),
        ("room", max(0, key.max_new_tokens - result.new_tokens), "unused"),
    ]
    caption = _shape_caption(key, wording)
    if key != result.requested_key:
        caption += f" The request alone would have needed {result.requested_key}."
    return report_parts.slots(caption, parts)


def _pool_slots(result: GenerationResult, wording: Wording) -> h.Element:
    """What the text took of the model's context, where nothing is padded."""
    used = result.prompt_tokens + result.new_tokens
    parts = [
        ("prompt", result.prompt_tokens, wording.input),
        ("new", result.new_tokens, "new"),
        ("room", max(0, result.key.padded_length - used), "unused"),
    ]
    most = result.key.padded_length
    return report_parts.slots(f"One compiled shape for all lengths up to {most} tokens.", parts)


def _shape_caption(key: CacheKey, wording: Wording) -> str:
    beams = quantities.count(key.num_beams, "beam")
    return (
        f"The compiled shape: {key.padded_length} {wording.input} slots, {beams}, "
        f"{key.max_new_tokens} new slots."
    )


def _remarks(shown: Shown) -> h.Node:
    """Footnotes: what ran beside it, and what the total leaves out."""
    result = shown.result
    beyond = report_parts.not_in_total(shown.other_s)
    shared_with = ""
    if result.batch_size > 1:
        others = quantities.count(result.batch_size - 1, "other request")
        shared_with = f" It ran side by side with {others}, which share the processor."
    rounded = report_parts.rounded(result)
    why = result.miss.sentence("would have been") if result.miss and result.miss.nearest else ""
    again = f" {read_again(result.prefix_miss)}"
    text = f"{why}{again}{shared_with}{rounded}{beyond}".strip()
    return text and remarks(text)
