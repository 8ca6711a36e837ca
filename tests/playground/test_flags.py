"""The flags of `app.py`: the command line, the variables, and what documents say of both."""

import re
from dataclasses import astuple, replace
from pathlib import Path

import pytest

from app import added_models
from playground.context.limits import PUBLIC_LIMITS, Limits
from playground.flags import FLAGS, LIMIT_FLAGS, Flag, flags_from
from tests.playground.served import ROOT


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have set some of the variables."""
    for flag in FLAGS:
        monkeypatch.delenv(flag.variable, raising=False)
    for name in (
        "XLA_BACKEND_WEIGHTS",
        "XLA_BACKEND_ACTIVATIONS",
        "SYSTEM",
        "SPACE_ID",
        "GRADIO_SERVER_NAME",
        "GRADIO_SERVER_PORT",
    ):
        monkeypatch.delenv(name, raising=False)


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


@pytest.mark.parametrize(
    ("environment", "address"), [({}, "127.0.0.1"), ({"SYSTEM": "spaces"}, "0.0.0.0")]
)
def test_on_spaces_it_listens_to_everybody(
    environment: dict[str, str],
    address: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        flags_from(["--help"])
    assert f"PLAYGROUND_HOST; default: {address}" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("environment", "where"),
    [
        ({}, ("127.0.0.1", 7860)),
        ({"GRADIO_SERVER_NAME": "::1", "GRADIO_SERVER_PORT": "80"}, ("::1", 80)),
        ({"GRADIO_SERVER_PORT": "80", "PLAYGROUND_PORT": "81"}, ("127.0.0.1", 81)),
        ({"SYSTEM": "spaces", "PLAYGROUND_HOST": "", "GRADIO_SERVER_NAME": ""}, ("0.0.0.0", 7860)),
    ],
)
def test_gradio_s_own_variables_count_where_ours_are_not_set(
    environment: dict[str, str], where: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    flags = flags_from([])
    assert (flags.host, flags.port) == where


@pytest.mark.parametrize(
    ("arguments", "environment", "admin"),
    [
        ([], {}, True),
        ([], {"SYSTEM": "spaces"}, False),
        ([], {"SPACE_ID": "somebody/playground"}, False),
        ([], {"SYSTEM": "spaces", "PLAYGROUND_ADMIN": "1"}, True),
        ([], {"PLAYGROUND_ADMIN": "0"}, False),
        (["--share"], {}, False),
        (["--share", "--admin"], {}, True),
        (["--no-admin"], {"PLAYGROUND_ADMIN": "1"}, False),
    ],
)
def test_strangers_may_forget_nothing_unless_they_are_let(
    arguments: list[str], environment: dict[str, str], admin: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert flags_from(arguments).admin is admin


@pytest.mark.parametrize(
    ("arguments", "environment", "limits"),
    [
        ([], {}, Limits()),
        (["--share"], {}, PUBLIC_LIMITS),
        ([], {"SYSTEM": "spaces"}, PUBLIC_LIMITS),
        (["--max-audio-seconds", "7"], {}, replace(Limits(), audio_s=7)),
        ([], {"PLAYGROUND_MAX_WAITING": "3"}, replace(Limits(), waiting=3)),
        (["--max-new-tokens", "9", "--share"], {}, replace(PUBLIC_LIMITS, new_tokens=9)),
    ],
)
def test_limits_are_narrower_where_strangers_come_and_as_they_are_given(
    arguments: list[str],
    environment: dict[str, str],
    limits: Limits,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert flags_from(arguments).limits == limits


@pytest.mark.parametrize(
    ("arguments", "variables", "may_add"),
    [
        ([], {}, True),
        (["--no-store"], {}, True),
        (["--no-admin"], {}, False),
        (["--share"], {}, False),
        (["--share", "--admin"], {}, False),
        (["--admin"], {"SYSTEM": "spaces"}, False),
        (["--models", "gpt2-stories"], {}, False),
    ],
)
def test_models_are_added_on_a_page_of_one_s_own_only(
    arguments: list[str],
    variables: dict[str, str],
    may_add: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("XLA_BACKEND_STORE", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    added = added_models(flags_from(arguments))
    assert (added is not None) is may_add
    if added is not None:
        folder = tmp_path / "cache" / "xla_backend" if arguments else tmp_path
        assert added.path == folder / "added_models.json"


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
    ],
)
def test_what_cannot_be_is_told_in_a_sentence(
    arguments: list[str],
    environment: dict[str, str],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        flags_from(arguments)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err
