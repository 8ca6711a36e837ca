"""The Models tab, as a visitor uses it, with downloads whose steps a test gives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import ClassVar

import pytest

from playground import create_app
from playground.tabs.models import adding, tab
from tests.playground.fake_backend import FakeBackend
from tests.playground.visitor import Visitor
from tests.waiting import wait_until
from xla_backend import ModelInfo, ModelUnavailable
from xla_backend.checkpoints.added_models import AddedModels
from xla_backend.checkpoints.hub import Download

FOUND = ModelInfo("someone/small", "decoder-only", "hub", "", license="mit", download_bytes=10**8)


class FakeDownload:
    """One whose steps a test gives; None ends it."""

    latest: ClassVar[FakeDownload]

    def __init__(self, name: str) -> None:
        self.info: ModelInfo | None = None
        self.steps: SimpleQueue[Download | None] = SimpleQueue()
        FakeDownload.latest = self

    def __iter__(self) -> Iterator[Download]:
        while (step := self.steps.get()) is not None:
            yield step

    def cancel(self) -> None:
        self.steps.put(None)


@pytest.fixture
def engine() -> FakeBackend:
    return FakeBackend()


@pytest.fixture
def visitor(engine: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Visitor:
    def candidate(name: str) -> ModelInfo:
        if name == FOUND.name:
            return FOUND
        raise ModelUnavailable(f"{name} cannot be had: it does not exist.")

    monkeypatch.setattr(tab, "candidate", candidate)
    monkeypatch.setattr(adding, "DownloadProcess", FakeDownload)
    added = AddedModels(tmp_path / "added_models.json")
    return Visitor(create_app(engine, admin=True, added=added))


def look_up(visitor: Visitor, name: str) -> bool:
    """Whether what was found can be added."""
    visitor.put("add_name", name)
    visitor.press("look_up")
    return visitor.shown("add_model", "interactive")[-1]


def says(visitor: Visitor, sentence: str) -> None:
    """Waits until the tab says so, which the page's script has look again and again."""

    def is_said() -> bool:
        visitor.press("models_is_new")
        return sentence in visitor.reads("adding")

    wait_until(is_said, 20)


def test_what_cannot_be_added_says_why(visitor: Visitor) -> None:
    assert not look_up(visitor, "nobody/nothing")
    assert "it does not exist" in visitor.reads("add_found")
    assert look_up(visitor, FOUND.name)
    assert all(said in visitor.reads("add_found") for said in (FOUND.name, "mit", "100 MB"))
    visitor.put("add_name", "nobody/nothing")
    assert visitor.shown("add_model", "interactive")[-1] is False, "another was written"


def test_a_download_shows_how_far_it_is_and_is_cancelled(visitor: Visitor) -> None:
    look_up(visitor, FOUND.name)
    visitor.press("add_model")
    assert "Downloading" in visitor.reads("adding")
    assert visitor.shown("cancel_adding", "interactive")[-1] is True
    FakeDownload.latest.steps.put(Download(FOUND.name, 25_000_000, 100_000_000))
    says(visitor, 'aria-valuenow="25"')
    visitor.press("cancel_adding")
    says(visitor, "was not added")
    assert FOUND.name not in visitor.reads("models_sheet")


def test_what_was_added_is_offered_on_the_other_tabs(visitor: Visitor, engine: FakeBackend) -> None:
    look_up(visitor, FOUND.name)
    visitor.press("add_model")
    FakeDownload.latest.info = replace(FOUND, on_disk=True)
    engine.known.append(FakeDownload.latest.info)
    FakeDownload.latest.steps.put(None)
    says(visitor, "is in the lists of models")
    visitor.press("offered_is_new")
    assert FOUND.name in visitor.reads("models_sheet")
    for name in ("model", "compare_model"):
        assert (f"{FOUND.name} (Hub)", FOUND.name) in visitor.shown(name, "choices")[-1]
    assert visitor.shown("speech_model", "choices")[-1] == [
        ("openai/whisper-tiny (Hub)", "openai/whisper-tiny")
    ]
