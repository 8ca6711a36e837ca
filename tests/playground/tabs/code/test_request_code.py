"""The code that the page shows: it says what was asked, whatever that was, and it runs."""

import ast
import dataclasses
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gradio_client import Client

from playground.tabs.code.request_code import (
    FORMS,
    CodeRequest,
    curl_code,
    library_code,
    openai_code,
    transformers_code,
)
from tests.playground.api_page import ApiPage
from tests.playground.samples import INJECTIONS
from tests.playground.served import ROOT
from xla_backend import Backend, GenerationOptions, Message, ModelInfo, Prompt, question
from xla_backend.baselines import overlay
from xla_backend.checkpoints.models import folder_info

STORIES = ModelInfo("gpt2-stories", "decoder-only", "bundled", "Stories.", 256)
ANSWERS = ModelInfo("t5-stories", "encoder-decoder", "bundled", "Answers.")
HUB = ModelInfo("somebody/a-model", "decoder-only", "hub", "Text.")
NASTY = (
    *INJECTIONS,
    'it\'s "quoted"',
    "'",
    '"',
    '"""',
    "'''",
    "\\",
    "ends with a backslash\\",
    "two\nlines\r\nand\ttabs",
    "$HOME ${PATH} $(id) `id` !!",
    "%s {0} {prompt} %%",
    "naïve שלום 🦊 \u202eabc\u2028def",
    "a\0b",
    "-d @/etc/passwd",
    "# no comment",
    "",
)


def a_request(prompt: Prompt, model: ModelInfo = STORIES, **changes: Any) -> CodeRequest:
    values: dict[str, Any] = {
        "options": GenerationOptions(),
        "padded_length": 16,
        "address": "http://127.0.0.1:7860/",
        **changes,
    }
    return CodeRequest(model, prompt, **values)


def nasty_prompts() -> list[str]:
    """The known ones, and a hundred mixtures of what quotes, escapes and expands."""
    chunks = ["'", '"', "\\", "$", "`", "\n", "\r", "\t", "{", "}", "%", "!", "é", "🦊", " ", "x"]
    chunks += ["\u2028", "\x1b", "\ud800", '"""', "\\n", "EOF"]
    draw = random.Random(0)
    return [*NASTY, *("".join(draw.choices(chunks, k=draw.randint(1, 12))) for _ in range(100))]


def literals(code: str) -> list[object]:
    return [node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant)]


@pytest.mark.parametrize("write", [transformers_code, library_code, openai_code])
@pytest.mark.parametrize("model", [STORIES, ANSWERS, HUB], ids=lambda model: model.name)
def test_python_has_each_prompt(write: Callable[[CodeRequest], str], model: ModelInfo) -> None:
    shape = ast.dump(ast.parse(write(a_request("PROMPT", model))))
    for prompt in nasty_prompts():
        code = write(a_request(prompt, model))
        assert prompt in literals(code)
        assert ast.dump(ast.parse(code)) == shape.replace("'PROMPT'", repr(prompt))
        assert all(char.isprintable() for line in code.split("\n") for char in line), prompt


def test_curl_sends_every_prompt_as_it_is(tmp_path: Path) -> None:
    # Instead of curl, a function that writes down what it is given.
    written = tmp_path / "arguments"
    stub = f'curl() {{ printf "%s\\0" "$@" >> {written}; printf "" ; }}\n'
    prompts = nasty_prompts()
    script = stub + "\n".join(curl_code(a_request(prompt)) for prompt in prompts)
    subprocess.run(["bash", "-c", script], check=True, capture_output=True, cwd=tmp_path)
    given = written.read_bytes().decode().split("\0")
    bodies = [json.loads(given[i + 1]) for i, argument in enumerate(given) if argument == "-d"]
    greedy = {"model": "gpt2-stories", "max_tokens": 32, "temperature": 0.0}
    assert bodies == [{"prompt": prompt, **greedy} for prompt in prompts]


@pytest.mark.parametrize("system", ["", "Be 'brief'."])
def test_messages_are_asked_as_each_form_asks_them(system: str) -> None:
    request = a_request(question("Where?", system))
    asked = f"question({repr('Where?').replace(chr(39), chr(34))}"
    assert asked in library_code(request)
    assert "GenerationOptions, question" in library_code(request)
    for write in (library_code, openai_code, transformers_code):
        assert "Where?" in literals(write(request))
        assert (system in literals(write(request))) == bool(system)
    for code in (curl_code(request), openai_code(request)):
        assert ('"role": "system"' in code) == bool(system)
    assert "/v1/chat/completions" in curl_code(request)
    assert "client.chat.completions.create(" in openai_code(request)
    assert "apply_chat_template" in transformers_code(request)


def test_messages_of_a_conversation_and_lists_are_written_as_each_language_does() -> None:
    said = ("user", "Hi {x}"), ("assistant", 'Hello "you"'), ("user", "Where?"), ("assistant", "In")
    request = a_request(tuple(Message(role, text) for role, text in said))
    for write in (library_code, openai_code, transformers_code):
        assert {text for _, text in said} <= set(literals(write(request)))
    assert "continue_final_message=True" in transformers_code(request)

    options = GenerationOptions(stop=['"', "\n"], logit_bias={3: -1.0}, presence_penalty=0.5)
    asked = a_request("Once", options=options)
    library = library_code(asked)
    assert 'presence_penalty=0.5, logit_bias={"3": -1.0}, stop=[\'"\', "\\n"])' in library
    ast.parse(library)
    ast.parse(openai_code(asked))
    assert '"stop": ["\\"", "\\n"]' in curl_code(asked)
    assert "# Without presence_penalty, logit_bias, stop: TensorFlow's" in transformers_code(asked)
    assert "# Without" not in transformers_code(a_request("Once"))


def test_only_what_differs_from_the_defaults_is_named() -> None:
    plain = a_request("Once")
    assert "max_new_tokens" not in library_code(plain)
    assert "seed" not in curl_code(plain) + openai_code(plain)
    options = GenerationOptions(max_new_tokens=7, early_stopping="never", seed=3, exact_key=True)
    changed = a_request("Once", options=options)
    named = 'GenerationOptions(max_new_tokens=7, seed=3, early_stopping="never", exact_key=True)'
    assert named in library_code(changed)
    assert '"max_tokens": 7, "temperature": 0.0, "early_stopping": "never"' in curl_code(changed)
    assert '    extra_body={"early_stopping": "never", "exact_key": True},\n' in openai_code(
        changed
    )
    for write in (FORMS[name] for name in FORMS if name != "Transformers"):
        assert "exact_key" in write(changed)
        assert "exact_key" not in write(plain)
    assert '    mode="padded",\n' in library_code(plain)
    drafts = a_request("Once", options=GenerationOptions(prompt_lookup_num_tokens=3))
    assert "mode" not in library_code(drafts)

    assert 'Backend(Registry(["somebody/a-model"]))' in library_code(a_request("Once", HUB))
    assert "Backend()" in library_code(a_request("Once"))


def test_transformers_code_is_the_guide_s_with_its_versions_where_it_runs() -> None:
    code = transformers_code(a_request("Once", padded_length=64))
    assert "tf.function(model.generate, jit_compile=True)" in code
    assert "pad_to_multiple_of=64" in code
    assert 'padding_side="left"' in code
    assert "seed" not in code
    drawn = transformers_code(a_request("Once", options=GenerationOptions(temperature=0.7, seed=5)))
    assert "seed=[5, 0]" in drawn
    assert "another text than on the page" in drawn
    answers = transformers_code(a_request("summarize: x", ANSWERS))
    assert "TFAutoModelForSeq2SeqLM" in answers
    assert 'padding_side="right"' in answers
    assert "from_pretrained(checkpoint, use_safetensors=False)" in transformers_code(
        a_request("Once", HUB)
    )

    llama = dataclasses.replace(HUB, model_type="llama")
    code = transformers_code(a_request("Once", llama))
    assert all(line.startswith("#") for line in code.splitlines())
    assert "a llama model: see the code for this library" in code

    pinned = dict(
        re.findall(
            r"^([\w-]+)==([\w.]+)",
            (ROOT / "requirements.txt").read_text() + overlay.REQUIREMENTS.read_text(),
            re.MULTILINE,
        )
    )
    wanted = [f"{name}=={pinned[name]}" for name in ("tensorflow", "tf-keras", "transformers")]
    first_line, _, _ = transformers_code(a_request("Once")).partition("\n")
    assert first_line == f"# pip install {' '.join(wanted)}"


PROMPT = 'It\'s "here": $HOME `id` \\ naïve 🦊\nand so'


def test_the_code_for_programs_runs_and_writes_what_the_page_writes(site: ApiPage) -> None:
    asked = a_request(PROMPT, STORIES, address=site.url + "/")
    expected = Client(site.url, verbose=False).predict(prompt=PROMPT, api_name="/generate")
    answer = json.loads(run("bash", "-c", curl_code(asked)))
    assert answer["choices"][0]["text"] == expected["text"]
    assert run_python(openai_code(asked)).startswith(expected["text"] + "\n")


@pytest.mark.release
def test_library_and_guide_write_the_same(backend: Backend, small_gpt2: Path) -> None:
    options = GenerationOptions(max_new_tokens=4)
    asked = a_request("Once upon a time", folder_info(str(small_gpt2)), options=options)
    text = backend.generate(str(small_gpt2), "Once upon a time", options).text
    assert run_python(library_code(asked)).startswith(text + "\n")
    # The overlay is what its first line installs.
    seen = overlay.environment([])
    assert run(sys.executable, "-c", transformers_code(asked), **seen) == text + "\n"


def run_python(code: str) -> str:
    return run(sys.executable, "-c", code)


def run(*command: str, **variables: str) -> str:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "XLA_BACKEND_STORE": "off", **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
