"""How a transcription reads: transcript, truth, verdict, figures, windows."""

import re
from html.parser import HTMLParser

import pytest

from playground.tabs.speech.report import (
    Transcribed,
    empty_speech_report,
    empty_transcript,
    finished_transcript,
    speech_report,
    times_real_time,
    transcript,
    waiting_speech_report,
    window_table,
)
from tests.playground.samples import INJECTIONS, transcription, window
from xla_backend import CacheOutcome, Timing


class Reader(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.said: list[str] = []
        self.tags: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.said.append(data)


def text(html: str) -> str:
    return re.sub(r"\s+", " ", " ".join(Reader(html).said)).strip()


def slow() -> Timing:
    return Timing(
        tokenize_s=0.1, trace_s=3.0, compile_s=4.8, prefill_s=0.1, decode_s=0.1, total_s=8.1
    )


def test_the_speed_counts_all_work_and_no_waiting() -> None:
    assert times_real_time(transcription()) == pytest.approx(2.4 / 0.2)
    waited = Timing(queue_s=5.0, prefill_s=0.2, total_s=5.2)
    assert times_real_time(transcription(timing=waited)) == pytest.approx(2.4 / 0.2)
    assert "12× faster than real time" in text(
        speech_report(Transcribed(transcription(timing=waited)))
    )

    result = transcription(cache=CacheOutcome.MISS, timing=slow())
    report = text(speech_report(Transcribed(result)))
    assert "MISS" in report
    assert "3.4× slower than real time, this once" in report
    assert "7.80 s of this went into tracing and compiling, once" in report

    report = text(speech_report(Transcribed(transcription())))
    assert "HIT Already compiled" in report
    # Making the function took 3 s, the first token of a window 0.1 s.
    assert "31× faster to the first token than the first window of this shape" in report
    assert "Run time a window 150 ms" in report
    assert "Sound 2.40 s" in report
    assert "Read sound 40 ms" in report

    result = transcription(windows=(window(), window(start_s=2.4, end_s=4.0)))
    assert "Run time a window 150 ms" in text(speech_report(Transcribed(result)))


def test_the_words_that_differ_are_marked_and_a_right_transcript_is_called_right() -> None:
    heard = Transcribed(
        transcription(text="set a timer for thirty minutes"), "set a timer for thirteen"
    )
    html = finished_transcript(heard)
    assert "<ins>thirty minutes</ins>" in html
    assert "<del>thirteen</del>" in html
    assert "2 word errors in 5 words (40%)" in text(html)

    html = finished_transcript(Transcribed(transcription(text="Turn it off."), "turn it off"))
    assert "all 3 words right" in text(html)
    assert not {"ins", "del"} & set(Reader(html).tags)
    assert "heard no words" in finished_transcript(Transcribed(transcription(text="")))


@pytest.mark.parametrize(("said", "finish"), [(None, "eos"), ("turn it off now", "stopped")])
def test_without_the_truth_or_the_whole_nothing_is_judged(said: str | None, finish: str) -> None:
    html = finished_transcript(Transcribed(transcription(text="turn it", finish=finish), said))
    assert text(html) == "turn it"


def test_the_table_has_a_row_for_each_window_of_several() -> None:
    windows = [
        window(cache=CacheOutcome.MISS, timing=slow()),
        window(start_s=2.4, end_s=62.25, text="", timing=Timing(queue_s=3, total_s=3.05)),
        window(start_s=62.25, end_s=64.0, text="", cache=None, timing=Timing(total_s=0.002)),
    ]
    rows = [text(row) for row in window_table(windows).split("<tr>")[2:]]
    assert rows == [
        "1 0:00.0 – 0:02.4 turn it off MISS 8.10 s",
        "2 0:02.4 – 1:02.2 no words HIT 50 ms",
        "3 1:02.2 – 1:04.0 silence, not run – 2.0 ms",
    ]

    assert "<table" not in window_table([])
    assert "<table" not in window_table([window()])


def test_the_remarks_say_what_a_careful_reader_asks() -> None:
    result = transcription(
        finish="stopped", load_s=1.5, language="en", windows=(window(), window(cache=None, text=""))
    )
    report = text(speech_report(Transcribed(result, other_s=7.0)))
    assert "You stopped it" in report
    assert "1 window without any sound was not run" in report
    assert "Language: en" in report
    assert "200 frames of sound, 1 beam, 64 new slots" in report
    assert "Load model 1.50 s" in report
    assert "Not in the total: 7.00 s until the engine had started." in report


def test_before_the_first_run_no_number_is_shown() -> None:
    assert not re.search(r"\d", text(empty_speech_report()) + text(empty_transcript()))
    assert "RUNNING" in waiting_speech_report(None, 0)
    assert "Queued: 2 requests ahead" in waiting_speech_report(None, 2)


@pytest.mark.parametrize("said", INJECTIONS)
def test_words_never_become_markup(said: str) -> None:
    result = transcription(text=said, windows=(window(text=said), window(text=said)))
    for html in (
        transcript(said, writing=True),
        finished_transcript(Transcribed(result)),
        finished_transcript(Transcribed(result, "other words")),
        finished_transcript(Transcribed(transcription(text="other"), said)),
        window_table(result.windows),
    ):
        allowed = {"div", "span", "p", "strong", "ins", "del", "table", "thead", "tbody", "tr"}
        assert set(Reader(html).tags) <= allowed | {"th", "td", "small"}
        assert re.sub(r"\s", "", said) in "".join("".join(Reader(html).said).split())
