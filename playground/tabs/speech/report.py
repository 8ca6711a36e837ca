"""The result of a recording, as HTML: the transcript, the truth, the verdict, figures and windows.

Knows how a `Transcription` reads for a visitor who has never heard of tracing. Must not know
components or events.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import htpy as h

from playground.ui import quantities, report_parts
from playground.ui.markup import caret, nothing, remarks, rendered
from playground.ui.outcomes import MEANING, badge
from playground.ui.tables import sheet
from playground.ui.word_differences import marked, word_pairs
from xla_backend import CacheOutcome, Prediction, TranscribedWindow, Transcription

_PHASE_NAMES = {**report_parts.PHASE_NAMES, "tokenize": "Read sound", "prefill": "Listen"}
_PHASE_HINTS = {
    **report_parts.PHASE_HINTS,
    "tokenize": "decoding the file, resampling, and the spectrogram of each window",
    "prefill": "each window runs through the encoder, which gives its first token",
}
_HEADINGS = ("Window", "Time", "Text", "Outcome", "With compile")


@dataclass(frozen=True)
class Transcribed:
    """What the result area shows."""

    result: Transcription  # what the engine answered
    expected: str | None = None  # what is said in the recording; None if unknown
    # seconds that the visitor waited for the engine's start, which `result.timing` does not include
    other_s: float = 0.0


@rendered
def transcript(text: str, writing: bool = False) -> h.Node:
    """The transcript so far, in a box that stays scrolled to its end."""
    return _box([h.span(".story-new")[text], caret(writing)], writing)


@rendered
def empty_transcript() -> h.Node:
    """The box before the first run."""
    return _box(h.span(".story-prompt")["The transcript appears here, window by window."])


@rendered
def finished_transcript(shown: Transcribed) -> h.Node:
    """The final transcript, beside what was said if that is known."""
    # Nobody knows how much of the recording a stopped run had heard.
    if shown.expected is None or shown.result.finish == "stopped":
        text = shown.result.text
        if not text:
            return _box(h.span(".story-prompt")["The model heard no words."])
        return transcript(text)
    pairs = word_pairs(shown.expected, shown.result.text)
    errors = sum(not pair.is_same for pair in pairs)
    words = sum(pair.expected is not None for pair in pairs)
    ours = marked(shown.result.text, [p.is_same for p in pairs if p.found is not None], h.ins)
    theirs = marked(shown.expected, [p.is_same for p in pairs if p.expected is not None], h.del_)
    verdict = h.span(".truth-right")[f"all {words} words right"]
    if errors:
        counted = f"{quantities.count(errors, 'word error')} in {words} words"
        verdict = h.span(".truth-errors")[f"{counted} ({errors / words:.0%})"]
    return _box(h.span(".story-new")[ours]), h.div(
        ".truth", role="group", aria_label="What was really said"
    )[
        h.p(".truth-head")[h.strong["Really said:"], " ", verdict],
        h.p(".truth-text", tabindex="0")[theirs],
    ]


def _box(content: h.Node, busy: bool = False) -> h.Element:
    return report_parts.text_box("Transcript", content, busy, "story heard")


@rendered
def empty_speech_report() -> h.Node:
    """The report before the first run: an outline of what a run will show, without numbers."""
    return report_parts.frame(
        None,
        "Press Transcribe: at most the first window has to be compiled, all others only run.",
        h.div(".explain")[
            h.p[
                "A speech model hears a ",
                h.strong["window"],
                " of fixed length. A shorter recording is padded with silence, a longer one is "
                "cut where it is quietest. So all recordings have one shape, and one compiled "
                "function serves them all.",
            ],
            report_parts.drawing(),
            h.p(".caption")["Only the very first window pays."],
        ],
    )


@rendered
def waiting_speech_report(
    prediction: Prediction | None, ahead: int, clicked_s: float = 0.0
) -> h.Node:
    """The report while the recording waits, or its windows run."""
    return report_parts.waiting(prediction, ahead, clicked_s)


@rendered
def speech_report(shown: Transcribed) -> h.Node:
    """Verdict, figures, phases and windows of a finished run."""
    result = shown.result
    windows = [window for window in result.windows if window.cache is not None]
    mean_s = sum(window.timing.run_s for window in windows) / len(windows)
    figures = [
        *report_parts.work_and_waiting(result.timing),
        ("Sound", quantities.seconds(result.audio_s)),
        ("Run time a window", quantities.seconds(mean_s)),
    ]
    return report_parts.frame(
        badge(result.cache),
        MEANING[result.cache],
        report_parts.figures(figures),
        _real_time(result),
        report_parts.against_first_call(result, ("First window", "A window now")),
        report_parts.phases(result, _PHASE_NAMES, _PHASE_HINTS),
        _remarks(shown),
        report_parts.waited(result.timing),
    )


def times_real_time(result: Transcription) -> float:
    """Seconds of sound over the seconds that the engine worked on it.

    Reading the file, tracing and compiling count as work; waiting for others does not.
    """
    return result.audio_s / result.timing.work_s


def _real_time(result: Transcription) -> h.Element:
    speed = times_real_time(result)
    if speed >= 1:
        return report_parts.faster(f"{quantities.times(speed)} faster", "than real time")
    return report_parts.faster(f"{quantities.times(1 / speed)} slower", "than real time, this once")


@rendered
def window_table(windows: Sequence[TranscribedWindow]) -> h.Node:
    """The windows of a long recording, or a placeholder."""
    if len(windows) < 2:
        return nothing(
            "The windows of a longer recording appear here, each with its text and what it took. "
            "All of them run on one compiled function."
        )
    return sheet(_HEADINGS, map(_row, count(1), windows), "sheet windows")


def _row(number: int, window: TranscribedWindow) -> tuple[h.Node, ...]:
    without_text = "silence, not run" if window.cache is None else "no words"
    return (
        str(number),
        h.span(".number")[f"{_clock(window.start_s)} – {_clock(window.end_s)}"],
        window.text or h.small[without_text],
        "–" if window.cache is None else badge(window.cache),
        # Without the queue: that belongs to the whole recording and is among its phases.
        h.span(".number")[quantities.seconds(window.timing.work_s)],
    )


def _clock(value: float) -> str:
    minutes, rest = divmod(round(value, 1), 60)
    return f"{int(minutes)}:{rest:04.1f}"


def _remarks(shown: Transcribed) -> h.Element:
    """Footnotes: how the run ended, and what the total leaves out."""
    result = shown.result
    expected = []
    if result.finish == "stopped":
        expected.append("You stopped it; the transcript so far stays.")
    if result.finish == "length":
        expected.append("A window reached its new tokens before its text had ended.")
    silent = sum(window.cache is None for window in result.windows)
    if silent:
        expected.append(f"{quantities.count(silent, 'window')} without any sound was not run.")
    if result.language is not None:
        expected.append(f"Language: {result.language}.")
    beams = quantities.count(result.key.num_beams, "beam")
    expected.append(
        f"The compiled shape: {result.key.padded_length} frames of sound, {beams}, "
        f"{result.key.max_new_tokens} new slots."
    )
    if result.cache is CacheOutcome.REUSED:
        expected.append(f"The request alone would have needed {result.requested_key}.")
    text = " ".join(expected) + report_parts.rounded(result)
    text += report_parts.not_in_total(shown.other_s)
    return remarks(text)
