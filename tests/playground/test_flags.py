"""The flags of `app.py`: the command line, the variables, and what documents say of both."""

import re
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pytest

from app import added_models
from playground.context.limits import PUBLIC_LIMITS, Limits
from playground.flags import FLAGS, LIMIT_FLAGS, Flag, flags_from
from tests.playground.served import ROOT


@pytest.fixture(autouse=True)
def variables(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets what a test's parameter `environment` says, and nothing that stands here otherwise."""
    for flag in FLAGS:
        monkeypatch.delenv(flag.variable, raising=False)
    for name in (
        "XLA_BACKEND_WEIGHTS",
        "XLA_BACKEND_ACTIVATIONS",
        "SYSTEM",
        "SPACE_ID",
        "GRADIO_SERVER_NAME",
        "GRADIO_SERVER_PORT",
        "SPACE_HOST",
    ):
        monkeypatch.delenv(name, raising=False)
    spec = getattr(request.node, "callspec", None)
    for name, value in spec.params.get("environment", {}).items() if spec else ():
        monkeypatch.setenv(name, value)


def documented(page: str) -> dict[str, list[str]]:
    """The rows that begin with a flag: its name, and the texts of the other cells."""
    rows = re.findall(r"^\| `(--[a-z-]+)(.*)\|$", (ROOT / page).read_text("utf-8"), re.MULTILINE)
    return {name: [cell.strip() for cell in rest.split("|")[1:]] for name, rest in rows}


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.name)
def test_every_flag_names_its_variable_in_the_help_and_in_the_documents(flag: Flag) -> None:
    assert flag.variable in flag.help
    cells = {**documented("docs/SECURITY.md"), **documented("docs/options.md")}[flag.name]
    assert flag.variable in cells[0]


def test_the_documents_name_no_flag_that_is_not_there() -> None:
    names = {flag.name for flag in FLAGS}
    assert set(documented("docs/options.md")) <= names
    limits = documented("docs/SECURITY.md")
    assert list(limits) == [flag.name for flag in LIMIT_FLAGS]
    for (_, usual, public), bounds in zip(
        limits.values(), zip(astuple(Limits()), astuple(PUBLIC_LIMITS), strict=True), strict=True
    ):
        assert (float(usual), float(public)) == bounds


SPACES = {"SYSTEM": "spaces"}


@pytest.mark.parametrize(("environment", "address"), [({}, "127.0.0.1"), (SPACES, "0.0.0.0")])
def test_the_help_says_that_on_spaces_it_listens_to_everybody(
    environment: dict[str, str], address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        flags_from(["--help"])
    assert f"PLAYGROUND_HOST; default: {address}" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        ("", {}, {"host": "127.0.0.1", "port": 7860, "admin": True, "limits": Limits()}),
        # Gradio's own variables count where ours are not set.
        (
            "",
            {"GRADIO_SERVER_NAME": "::1", "GRADIO_SERVER_PORT": "80"},
            {"host": "::1", "port": 80},
        ),
        ("", {"GRADIO_SERVER_PORT": "80", "PLAYGROUND_PORT": "81"}, {"port": 81}),
        (
            "",
            SPACES | {"PLAYGROUND_HOST": "", "GRADIO_SERVER_NAME": ""},
            {"host": "0.0.0.0", "port": 7860},
        ),
        # Strangers may clear nothing unless they are let, and have narrower limits.
        ("", SPACES, {"admin": False, "limits": PUBLIC_LIMITS}),
        ("", {"SPACE_ID": "somebody/playground"}, {"admin": False}),
        ("", SPACES | {"PLAYGROUND_ADMIN": "1", "PLAYGROUND_PASSWORD": "x"}, {"admin": True}),
        ("", {"PLAYGROUND_ADMIN": "0"}, {"admin": False}),
        ("--share", {}, {"admin": False, "limits": PUBLIC_LIMITS}),
        ("--share --admin --password x", {}, {"admin": True}),
        # Where others reach the address, strangers are those without the password.
        ("--host 0.0.0.0", {}, {"admin": False, "limits": Limits()}),
        ("--host ::", {}, {"admin": False, "host": "::"}),
        ("--host 0.0.0.0 --password x", {}, {"admin": True}),
        ("--host localhost", {}, {"admin": True}),
        ("--host 127.1.2.3", {}, {"admin": True}),
        ("--host [::1]", {}, {"admin": True, "host": "::1"}),
        ("--allowed-hosts a.example", {}, {"hosts": ("127.0.0.1", "a.example")}),
        (
            "",
            SPACES | {"SPACE_HOST": "me-play.hf.space"},
            {"hosts": ("0.0.0.0", "me-play.hf.space")},
        ),
        ("", {"PLAYGROUND_ADMIN": "on", "PLAYGROUND_METRICS": "Enabled"}, {"metrics": True}),
        ("", {"PLAYGROUND_ADMIN": "off", "PLAYGROUND_METRICS": "disabled"}, {"admin": False}),
        ("--no-admin", {"PLAYGROUND_ADMIN": "1"}, {"admin": False}),
        ("--max-audio-seconds 7", {}, {"limits": replace(Limits(), audio_s=7)}),
        ("", {"PLAYGROUND_MAX_WAITING": "3"}, {"limits": replace(Limits(), waiting=3)}),
        ("--max-new-tokens 9 --share", {}, {"limits": replace(PUBLIC_LIMITS, new_tokens=9)}),
    ],
)
def test_flags_follow_the_command_line_the_variables_and_the_place(
    arguments: str, environment: dict[str, str], expected: dict[str, Any]
) -> None:
    flags = flags_from(arguments.split())
    assert {name: getattr(flags, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("arguments", "environment", "may_add"),
    [
        ([], {}, True),
        (["--no-store"], {}, True),
        (["--no-admin"], {}, False),
        (["--share"], {}, False),
        (["--share", "--admin", "--password", "x"], {}, False),
        (["--admin"], {"SYSTEM": "spaces", "PLAYGROUND_PASSWORD": "x"}, False),
        (["--models", "gpt2-stories"], {}, False),
    ],
)
def test_models_are_added_on_a_page_of_one_s_own_only(
    arguments: list[str],
    environment: dict[str, str],
    may_add: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("XLA_BACKEND_STORE", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    added = added_models(flags_from(arguments))
    assert (added is not None) is may_add
    if added is not None:
        folder = tmp_path / "cache" / "xla_backend" if arguments else tmp_path
        assert added.path == folder / "added_models.json"


def test_a_comma_in_a_path_separates_nothing(tmp_path: Path) -> None:
    for name in ("a,b", "a, b, c"):
        (tmp_path / name).mkdir()
    one, other = str(tmp_path / "a,b"), str(tmp_path / "a, b, c")
    models = f"gpt2-stories, {one},{other} ,t5-stories,"
    assert flags_from(["--models", models]).models == ("gpt2-stories", one, other, "t5-stories")
    assert len(flags_from(["--models", ",".join(["gpt2-stories"] * 99)]).models) == 99


def test_a_variable_that_is_set_to_nothing_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty PLAYGROUND_STORE put compiled functions into the current folder."""
    usual = flags_from([])
    for flag in FLAGS:
        monkeypatch.setenv(flag.variable, "")
    assert flags_from([]) == usual
    assert usual.store is None


@pytest.mark.parametrize(
    ("arguments", "environment", "sentence"),
    [
        (["--port", "http"], {}, "argument --port: invalid int value: 'http'"),
        ([], {"PLAYGROUND_PORT": "http"}, "argument --port: invalid int value: 'http'"),
        (["--max-waiting", "0"], {}, "--max-waiting: '0' is not a whole number of at least 1"),
        (["--memory-limit", "lots"], {}, "'lots'"),
        ([], {"PLAYGROUND_KV_MEMORY": "some"}, "'some'"),
        (["--weights", "int7"], {}, "must be auto, float32, bfloat16 or int8, not 'int7'"),
        ([], {"PLAYGROUND_WEIGHTS": "int7"}, "not 'int7'"),
        ([], {"XLA_BACKEND_WEIGHTS": "int6"}, "not 'int6'"),
        (["--activations", "int4"], {}, "must be exact or int8, not 'int4'"),
        ([], {"XLA_BACKEND_ACTIVATIONS": "int4"}, "not 'int4'"),
        (["--mcp", "--password", "x"], {}, "--mcp cannot have a --password"),
        (["--admin", "--host", "0.0.0.0"], {}, "--admin on --host 0.0.0.0 would let everybody"),
        ([], {"PLAYGROUND_ADMIN": "1", "SYSTEM": "spaces"}, "--admin on a public page would let"),
        (["--admin", "--share"], {}, "set PLAYGROUND_PASSWORD, or leave --admin out"),
        ([], {"PLAYGROUND_ADMIN": "perhaps"}, "PLAYGROUND_ADMIN: 'perhaps' is neither on nor off"),
        ([], {"PLAYGROUND_METRICS": "2"}, "PLAYGROUND_METRICS: '2' is neither on nor off"),
        (["--metrics=perhaps"], {}, "--metrics"),
    ],
)
def test_what_cannot_be_is_told_in_a_sentence(
    arguments: list[str],
    environment: dict[str, str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        flags_from(arguments)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err
