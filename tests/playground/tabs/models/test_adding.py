"""Adding a model: downloads in a real process, from a Hub on this computer."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from playground.tabs.models.adding import Adding
from tests import checkpoints
from tests.hub import HUB_MODEL, Hub, hub_with
from tests.waiting import wait_until
from xla_backend import InvalidRequest, ModelInfo
from xla_backend.checkpoints.added_models import AddedModels

WANTED = ModelInfo(HUB_MODEL, "decoder-only", "hub", "GPT-2.", license="mit", download_bytes=7)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hub]]:
    folder = checkpoints.gpt2(tmp_path / "repository")
    with hub_with(folder) as served:
        monkeypatch.setenv("HF_ENDPOINT", served.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        yield served


@pytest.fixture
def adding(tmp_path: Path) -> Adding:
    return Adding(AddedModels(tmp_path / "added_models.json"))


def state(adding: Adding) -> str:
    return adding.progress.state if adding.progress else ""


def test_a_model_is_kept_once_it_is_here(hub: type[Hub], adding: Adding, tmp_path: Path) -> None:
    added = AddedModels(tmp_path / "added_models.json")
    adding.start(WANTED)
    assert added.read() == {}
    wait_until(lambda: not adding.is_under_way)
    assert state(adding) == "added", adding.progress
    [info] = added.read().values()
    assert (info.name, info.license, info.on_disk) == (HUB_MODEL, "mit", True)
    assert (info.model_type, info.context_length) == ("gpt2", 128)
    assert "model.safetensors" in hub.requested


def test_a_download_is_cancelled(hub: type[Hub], adding: Adding, tmp_path: Path) -> None:
    hub.hold_at = 1
    adding.start(WANTED)
    wait_until(lambda: "model.safetensors" in hub.requested)
    with pytest.raises(InvalidRequest, match="Wait for it, or cancel it"):
        adding.start(WANTED)
    adding.cancel()
    wait_until(lambda: not adding.is_under_way)
    assert state(adding) == "cancelled"
    assert not (tmp_path / "added_models.json").exists()
    hub.go_on.set()
    adding.start(WANTED)
    wait_until(lambda: not adding.is_under_way)
    assert state(adding) == "added", adding.progress


def test_a_refusal_of_the_hub_is_told(hub: type[Hub], adding: Adding) -> None:
    hub.is_gated = True
    adding.start(WANTED)
    wait_until(lambda: not adding.is_under_way)
    assert state(adding) == "failed"
    assert adding.progress
    assert "https://huggingface.co/settings/tokens" in adding.progress.problem


def test_a_folder_is_added_at_once(adding: Adding, tmp_path: Path) -> None:
    info = ModelInfo("/somewhere", "decoder-only", "folder", "The folder /somewhere.")
    adding.start(info)
    assert state(adding) == "added"
    assert AddedModels(tmp_path / "added_models.json").read() == {"/somewhere": info}

    (tmp_path / "store").write_text("a file where the folder should be")
    adding = Adding(AddedModels(tmp_path / "store" / "added_models.json"))
    with pytest.raises(InvalidRequest, match=r"added_models.json cannot be written"):
        adding.start(ModelInfo("/somewhere", "decoder-only", "folder", ""))
