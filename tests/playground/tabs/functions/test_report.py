"""What the Functions tab writes: verdicts, bars, the table of shapes, and code that runs."""

import pytest

from playground.tabs.functions import report
from playground.tabs.functions.code import code
from tests.playground.reader import words
from tests.playground.samples import NO_PHASES, comparison
from xla_backend import CacheOutcome, EngineStatus, FunctionRequest, StoredKey, Way
from xla_backend.interface.function_comparison import EXAMPLE_FUNCTIONS, CallPhases

MISS, HIT = CacheOutcome.MISS, CacheOutcome.HIT


@pytest.mark.parametrize(
    ("xla_s", "number", "rest"),
    [
        (
            0.0002,
            "5.0× faster",
            "first call as long as 500 eager calls. Paid back after 625 calls.",
        ),
        (0.002, "2.0× slower", "first call as long as 500 eager calls. It does not pay here."),
        (0.00102, "No faster", "first call as long as 500 eager calls. It does not pay here."),
        (0.00098, "No faster", "first call as long as 500 eager calls. It does not pay here."),
    ],
)
def test_the_finding_says_what_was_measured(xla_s: float, number: str, rest: str) -> None:
    found = report.finding(comparison(xla_s), Way.XLA)
    assert found[0] == number
    assert found[1] == f"than eager with jit_compile=True, after a {rest}"


def test_the_report_shows_all_three_ways_with_their_phases() -> None:
    html = report.report(comparison())
    shown = words(html)
    assert "MISS Two dense layers: batch of 5 · float32[5, 10]" in shown
    assert "Eager nothing is made First call 2.0 ms run 2.0 ms Later calls 1.0 ms" in shown
    assert "tf.function MISS First call 50 ms trace 20 ms · run 30 ms Later calls 500 µs" in shown
    assert "First call 500 ms trace 100 ms · compile 390 ms · run 10 ms" in shown
    assert "Later calls, fastest 200 µs" in shown
    assert "First calls share one scale, up to 500 ms; later calls another, up to 1.0 ms" in shown
    assert "the median of 200 calls in each way" in shown
    assert 'class="phase-compile" style="width:78.00%"' in html
    assert html.count("fastest") == 2, "one card, once by its frame and once in words"

    shown = words(report.report(comparison(cache=HIT)))
    assert shown.startswith("HIT")
    assert shown.count("First call, earlier") == 2

    assert "Same output in all three ways. Largest difference: 3.0e-08" in words(
        report.report(comparison())
    )
    html = report.report(comparison(difference=0.01))
    assert "Same output" not in html
    assert "The outputs differ by up to 1.0e-02" in html

    plain = words(report.report(comparison()))
    assert "Padding" not in plain
    assert "Not in these times" not in plain
    request = FunctionRequest("dense", 5, pad=True)
    shown = words(report.report(comparison(request=request, queue_s=1.5)))
    assert "batch of 5, padded to 8 · float32[8, 10]" in shown
    assert "Padding and cutting are part of a call; eager runs the batch as it is." in shown
    assert "Not in these times: 1.50 s of waiting" in shown


def test_the_prediction_and_the_table_follow_what_is_kept() -> None:
    kept = [StoredKey("dense", 8, (5, 8), NO_PHASES, NO_PHASES)]
    padded = FunctionRequest("dense", 6, pad=True)
    assert report.outcome(padded, kept) is HIT
    assert report.outcome(FunctionRequest("dense", 6), kept) is MISS
    assert report.outcome(FunctionRequest("convolution", 8), kept) is MISS
    assert "batch of 6, padded to 8 · float32[8, 10]" in words(report.prediction(padded, kept))

    assert "No function is in memory yet" in report.shapes_table([])
    shape = StoredKey("dense", 8, (5, 7), CallPhases(0.02, 0, 0.03), CallPhases(0.1, 0.3, 0.1))
    shown = words(report.shapes_table([shape]))
    assert "Two dense layers float32[8, 10] 5, 7 50 ms trace 20 ms 500 ms" in shown
    assert "trace 100 ms · compile 300 ms" in shown


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ("starting", "Waiting for the engine to start."),
        ("compiling", "Waiting for another run to finish."),
        ("ready", "Tracing and compiling this shape"),
    ],
)
def test_waiting_says_for_what(state: str, sentence: str) -> None:
    html = report.waiting_report(EngineStatus(state), MISS)  # type: ignore[arg-type]
    assert sentence in html
    assert "busy" in html


@pytest.mark.parametrize("name", EXAMPLE_FUNCTIONS)
@pytest.mark.parametrize("pad", [False, True])
def test_the_code_runs_and_builds_what_the_engine_measures(name: str, pad: bool) -> None:
    from xla_backend.compilation.example_functions import _Example

    program = code(FunctionRequest(name, 3, pad))
    values: dict[str, object] = {}
    exec(program, values)
    own, measured = values["model"], _Example.build(name).model

    def layers(model: object) -> list[tuple]:
        return [
            (
                type(x).__name__,
                x.output.shape,
                getattr(getattr(x, "activation", None), "__name__", ""),
            )
            for x in model.layers  # type: ignore[attr-defined]
        ]

    assert layers(own) == layers(measured)
    call = values["call"]
    assert call.cache is MISS  # type: ignore[attr-defined]
    assert str(call.signature) == FunctionRequest(name, 3, pad).signature  # type: ignore[attr-defined]
    assert ("tf.pad" in program) == pad
