"""Tests of `python -m xla_backend`: once as users run it, else in this process."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.checkpoints import gpt2
from xla_backend import GenerationOptions
from xla_backend.__main__ import _options, _parser, main
from xla_backend.checkpoints.models import PACKAGED_MODEL

ROOT = Path(__file__).resolve().parent.parent.parent

QUIET_BY_THE_TESTS = ("TF_CPP_MIN_LOG_LEVEL", "TRANSFORMERS_VERBOSITY")
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs the command line in this process."""

    def called(*arguments: str) -> subprocess.CompletedProcess[str]:
        stdout = os.dup(1)  # from which the command line keeps away what libraries print
        try:
            status = main(arguments)
        except SystemExit as ended:
            status = ended.code
        os.dup2(stdout, 1)
        os.close(stdout)
        return subprocess.CompletedProcess(arguments, status, *capfd.readouterr())

    return called


def json_lines(output: str) -> list[dict]:
    """Every line of stdout, each of which must be one JSON object."""
    objects = [json.loads(line) for line in output.splitlines()]
    assert all(isinstance(value, dict) for value in objects)
    return objects


def test_json_answers_every_prompt_that_can_be_answered(small_gpt2: Path) -> None:
    # Without the variables that keep this test session quiet.
    environment = {name: v for name, v in os.environ.items() if name not in QUIET_BY_THE_TESTS}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "xla_backend", "generate", "--json"),
            *("--model", str(small_gpt2), "--max-new-tokens", "4"),
            *("Once upon a time", "", "The owl blinked", b"half a \xff character", "word " * 3000),
        ],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 2, "some prompts were at fault"
    first, second = json_lines(done.stdout)

    assert set(first) == {
        *("model", "text", "prompt_tokens", "new_tokens", "key", "cache", "timing", "batch_size"),
        *("finish_reason", "ttft_s", "tpot_s", "cached_tokens", "options", "miss"),
    }
    assert first["model"] == str(small_gpt2)
    assert first["text"]
    assert not first["text"].startswith("Once upon")
    assert 0 < first["new_tokens"] <= 4
    assert set(first["key"]) == {"padded_length", "num_beams", "max_new_tokens"}
    assert first["key"]["padded_length"] >= first["prompt_tokens"]
    assert (first["cache"], second["cache"]) == ("miss", "hit")
    assert set(first["timing"]) == {
        *("queue_s", "tokenize_s", "trace_s", "compile_s"),
        *("prefill_s", "decode_s", "detokenize_s", "total_s"),
    }
    for answer in (first, second):
        timing = answer["timing"]
        total = timing.pop("total_s")
        assert sum(timing.values()) == pytest.approx(total, rel=1e-6)
        assert 0 < answer["ttft_s"] < total
        further = answer["new_tokens"] - 1
        assert answer["tpot_s"] * further == pytest.approx(total - answer["ttft_s"])
    assert first["ttft_s"] > first["timing"]["trace_s"] + first["timing"]["compile_s"]
    assert first["timing"]["compile_s"] > 0
    assert second["timing"]["compile_s"] == second["timing"]["trace_s"] == 0

    complaints = done.stderr.splitlines()
    assert len(complaints) == 3, "three complaints, and no noise of any library"
    assert all(line.startswith("error: ") for line in complaints)
    assert "empty" in complaints[0]
    assert "surrogate" in complaints[1]
    assert "token" in complaints[2]


@pytest.mark.release
def test_an_instruct_model_answers_messages(run: Run) -> None:
    done = run(
        *("generate", "--json", "--model", PACKAGED_MODEL, "--chat", "--temperature", "0"),
        "What is the capital of France?",
    )
    [answer] = json_lines(done.stdout)
    assert "Paris" in answer["text"]
    assert answer["finish_reason"] == "stop"


def test_a_system_prompt_is_for_messages(run: Run) -> None:
    done = run("generate", "--system", "Answer briefly.", "What is the capital of France?")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.strip().endswith("--system is for messages: add --chat.")


def test_weights_are_rounded_where_that_is_asked_for(run: Run, tmp_path: Path) -> None:
    model = str(gpt2(tmp_path / "gpt2", n_embd=64, vocab_size=4200))  # so large that it is rounded
    command = ("generate", "--model", model, "--max-new-tokens", "4", "--weights")
    done = run(*command, "int8", "--activations", "int8", "--json", "Once upon a time")
    assert (done.returncode, done.stderr) == (0, "")
    (result,) = json_lines(done.stdout)
    assert (result["rounded_bits"], result["activations"]) == (8, "int8")
    wrong = run(*command, "int7", "Once upon a time")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == (
        "error: Weights (--weights, XLA_BACKEND_WEIGHTS) must be auto, float32, bfloat16 or "
        "int8, not 'int7'.\n"
    )


def test_text_with_one_readable_line_a_prompt(run: Run, small_gpt2: Path) -> None:
    done = run(
        *("generate", "--model", str(small_gpt2), "--num-beams", "2", "--max-new-tokens", "5"),
        *("--length-penalty", "-0.5", "--early-stopping", "true", "Once upon a time", "The rain"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    summaries = [line for line in done.stdout.splitlines() if line.startswith("[")]
    assert len(summaries) == 2
    assert summaries[0].startswith("[MISS · padded 16 · beams 2 · new 16 · ")
    assert "compile" in summaries[0]
    assert summaries[1].startswith("[HIT · ")
    assert "times faster to the first token than its first call" in summaries[1]


def test_a_model_whose_weights_are_broken(run: Run, small_gpt2: Path, tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(small_gpt2, folder)
    (folder / "model.safetensors").write_bytes(b"no such thing")
    done = run("generate", "--model", str(folder), "hello")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1, "and no noise of any library"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--top-k", "nan"], "top_k must be a whole number from -1 to 1000000, not nan."),
        (["--top-k", "2.5"], "top_k must be a whole number from -1 to 1000000, not 2.5."),
        (["--temperature", "inf"], "temperature must be from 0 to 100, not inf."),
        (["--temperature", "-1"], "temperature must be from 0 to 100, not -1."),
        (["--max-new-tokens", "1000000"], "max_new_tokens must be from 1 to 8192, not 1000000."),
        (["--num-beams", "many"], "num_beams must be a whole number from 1 to 8, not 'many'."),
        (
            ["--early-stopping=maybe"],
            "early_stopping must be true, false or \"never\", not 'maybe'.",
        ),
        (["--presence-penalty", "-3"], "presence_penalty must be from -2 to 2, not -3."),
        (["--logit-bias", "198"], "logit_bias of token 198 must be a number from -100 to 100"),
        (["--stop", "x" * 101], "a stop string can have 100 characters, not 101."),
        (["--choice", "a", "--regex", "b"], "--regex and --choice each set a grammar"),
        (["--json-schema", "/no/such/file"], "the schema /no/such/file cannot be read"),
        (["--json-schema", __file__], f"the schema {__file__} cannot be read as JSON"),
        (["--model", "no-such-model"], "there is no model 'no-such-model'."),
    ],
)
def test_bad_options_are_told_before_tensorflow_is_imported(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
) -> None:
    monkeypatch.setattr("xla_backend.__main__.import_engine", pytest.fail)
    done = run("generate", *arguments, "hello")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {sentence}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["generate"], ["generate", "--top-q", "1", "hello"]])
def test_wrong_usage(run: Run, arguments: list[str]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: ")
    assert ": error: " in done.stderr.splitlines()[-1]


def test_models_lists_what_can_be_loaded(run: Run) -> None:
    objects = json_lines(run("models", "--json").stdout)
    assert "openai-community/gpt2" in [value["name"] for value in objects]
    assert {"name", "family", "source", "description"} <= set(objects[0])
    done = run("models")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == len(objects)


def test_a_form_and_options_that_can_be_repeated_are_read(tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text('{"type": "null"}', "utf-8-sig")
    for words, form in (
        (["--choice", "a", "--choice", "b"], {"choice": ["a", "b"]}),
        (["--json-schema", str(tmp_path / "schema.json")], {"json_schema": {"type": "null"}}),
        (["--json-object"], {"json_object": True}),
        (["--regex", "[ab]"], {"regex": "[ab]"}),
        ([], None),
    ):
        options = _options(_parser().parse_args(["generate", *words, "hello"]))
        assert options.to_dict()["grammar"] == form
        assert GenerationOptions.from_dict(options.to_dict()) == options

    words = ["--stop", "\n", "--logit-bias", "198=-100", "--stop", "end", "--logit-bias", "7=0.5"]
    numbers = ["--min-p", "0.1", "--frequency-penalty", "-0.5"]
    options = _options(_parser().parse_args(["generate", *words, *numbers, "hello"]))
    assert (options.stop, options.logit_bias) == (("\n", "end"), ((7, 0.5), (198, -100.0)))
    assert (options.min_p, options.frequency_penalty) == (0.1, -0.5)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], (0.2, 0.9)),
        (["--temperature", "1"], (1.0, 0.9)),
        (["--num-beams", "2", "--temperature", "0"], (0.0, 1.0)),
    ],
)
def test_sampling_of_the_model_s_makers(words: list[str], expected: tuple[float, float]) -> None:
    parsed = _parser().parse_args(["generate", *words, "a"])
    options = _options(parsed, {"temperature": 0.2, "top_p": 0.9})
    assert (options.temperature, options.top_p) == expected


def test_questions_get_probabilities(run: Run, small_gpt2: Path, tmp_path: Path) -> None:
    file = tmp_path / "questions.json"
    file.write_text('{"tone": {"type": "choice", "criteria": ["calm", "very calm"]}}')
    asked = ("decide", "A fox.", "--model", str(small_gpt2), "--questions", str(file))
    done = run(*asked, "--json", "--yes-no", "Is it a fox?")
    [answer] = json_lines(done.stdout)
    assert [*answer["answers"]] == ["tone", "Is it a fox?"]
    assert sum(answer["answers"]["tone"]["probabilities"].values()) == pytest.approx(1)
    assert answer["usage"]["output_tokens"] == 0
    said = run(*asked).stdout.splitlines()
    assert said[0].startswith("tone: ")
    assert "very calm 0." in said[0] or "very calm 1." in said[0]
    file.write_text("{")
    assert "cannot be read as JSON" in run(*asked).stderr
    assert "1 to 400 questions" in run("decide", "A fox.").stderr
