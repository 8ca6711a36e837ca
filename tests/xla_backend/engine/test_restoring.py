"""Tests of what one process leaves to the next: functions restored from disk, or made anew where
the disk holds anything else. Real models in real processes, one process a test.
"""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import checkpoints
from tests.xla_backend.engine.new_process import LONG, SHORT, Told, answer, begin, finish
from xla_backend.compilation.store import Store

REQUESTS = [
    (SHORT, {"max_new_tokens": 4}),
    (SHORT, {"max_new_tokens": 8}),
    (LONG, {"max_new_tokens": 4}),
    (SHORT, {"max_new_tokens": 4, "num_beams": 2}),
]
KEYS = [(8, 1, 4), (8, 1, 8), (16, 1, 4), (8, 2, 4)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.gpt2(
        tmp_path_factory.mktemp("models") / "tiny", n_layer=1, n_embd=32, n_head=2, n_positions=32
    )


@pytest.fixture(scope="module")
def filled(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Told]:
    """A store that a process has filled, and what that process told. Work on copies of it."""
    folder = tmp_path_factory.mktemp("filled") / "store"
    reported = answer(model, folder, REQUESTS)
    assert reported.outcomes == ["miss"] * 4
    assert [a.key for a in reported.answers] == KEYS
    assert reported.left == (), "what XLA wrote went to the store"
    return folder, reported


@pytest.fixture
def store(filled: tuple[Path, Told], tmp_path: Path) -> Store:
    return Store(shutil.copytree(filled[0], tmp_path / "store"))


def contents(store: Store) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.folder.glob("*.entry")}


def entry(store: Store, kind: str, last: str) -> Path:
    """The file of one entry: kind "prefill", "decode_1" or "decode_2", and how its name ends."""
    (path,) = store.folder.glob(f"xla_backend_{kind}_*.{last}.entry")
    return path


def test_keys_restored_in_any_order(model: Path, filled: tuple[Path, Told], store: Store) -> None:
    # Prefill and the two loops, 2 + 4 chunks of machine code.
    assert len(store.names()) == 3 + 2 + 4
    before = contents(store)
    reported = answer(model, store.root, REQUESTS[::-1])
    assert reported.outcomes == ["disk"] * 4
    assert reported.tokens == filled[1].tokens
    assert contents(store) == before, "nothing was compiled, so nothing was stored"
    assert reported.left == ()
    assert reported.log == ""


@pytest.mark.release
def test_a_restored_key_s_first_call(model: Path, filled: tuple[Path, Told], store: Store) -> None:
    reported = answer(model, store.root, [REQUESTS[0], REQUESTS[0]])
    assert reported.outcomes == ["disk", "hit"]
    compiled = filled[1].answers[0].first_call
    assert compiled[0] == "miss"
    assert [a.first_call for a in reported.answers] == [compiled] * 2


@pytest.mark.release
@pytest.mark.parametrize("make", [checkpoints.opt, checkpoints.t5])
def test_other_families_are_restored_as_well(make: Callable[..., Path], tmp_path: Path) -> None:
    """Their functions have other arguments and results, about which HLO stubs must be right."""
    other = make(tmp_path / "model", seed=19)
    requests = [REQUESTS[0], REQUESTS[3]]
    reported = answer(other, tmp_path / "store", requests)
    assert reported.outcomes == ["miss"] * 2
    again = answer(other, tmp_path / "store", requests[::-1])
    assert again.outcomes == ["disk"] * 2
    assert again.tokens == reported.tokens
    assert (reported.log, again.log) == ("", "")


def test_a_pool_is_restored_as_well(model: Path, tmp_path: Path) -> None:
    drafts = {"prompt_lookup_num_tokens": 3}
    row = {"max_new_tokens": 8, "cache_salt": "mine", "temperature": 0.9, "seed": 5}
    requests = [(SHORT, row), (LONG, row), (LONG, row | drafts)]
    reported = answer(model, tmp_path / "store", requests)
    assert reported.outcomes == ["miss", "hit", "miss"]
    again = answer(model, tmp_path / "store", [requests[1], requests[0], requests[2]])
    assert again.outcomes == ["disk", "hit", "disk"]
    assert again.tokens[32, 1, 32, True, 3] == again.answers[0].tokens
    assert {a.tokens for a in again.answers} == {a.tokens for a in reported.answers}
    assert (reported.log, again.log) == ("", "")


def test_damaged_entries(model: Path, filled: tuple[Path, Told], store: Store) -> None:
    def change(path: Path, damage: Callable[[bytes], bytes]) -> None:
        path.write_bytes(damage(path.read_bytes()))

    def flipped(content: bytes) -> bytes:
        middle = len(content) // 2
        return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]

    prefill_16 = entry(store, "prefill", "16").read_bytes()
    change(entry(store, "prefill", "trace"), flipped)
    change(entry(store, "prefill", "8"), lambda content: prefill_16)  # under a wrong name
    change(entry(store, "prefill", "16"), lambda content: content[: len(content) // 2])
    change(entry(store, "decode_1", "8x4"), lambda content: b"")
    change(entry(store, "decode_1", "8x8"), lambda content: b"\x7fELF of another program")
    change(entry(store, "decode_1", "trace"), lambda content: content[:-1])
    in_the_way = entry(store, "decode_1", "16x4")
    in_the_way.unlink()
    (in_the_way / "inside").mkdir(parents=True)
    (store.folder / "history-auto.json").write_text('{"a": ')
    names = store.names()

    reported = answer(model, store.root, REQUESTS)
    # The loop of two beams is whole, but prefill had to be made anew for the first request.
    assert reported.outcomes == ["miss", "miss", "miss", "disk"]
    assert reported.tokens == filled[1].tokens
    assert reported.log.count("is set aside: ") == 7
    assert "Traceback" not in reported.log
    assert len(list((store.root / "damaged").iterdir())) == 7
    assert store.names() == names
    assert all(store.load(name) is not None for name in names), "the new ones are whole"
    assert isinstance(store.read_history("auto"), dict)


@pytest.mark.release
def test_senseless_entries(model: Path, filled: tuple[Path, Told], store: Store) -> None:
    """What a checksum cannot tell: TensorFlow and XLA refuse what is inside."""
    noise = random.Random(0)
    for name in store.names():
        description, blobs = store.load(name)
        if name.endswith(".8x4"):  # machine code of two loops, under the file names that XLA reads
            store.save(name, description, [blobs[0], noise.randbytes(500)])
        elif name.endswith(".8x8"):  # XLA does not look there: it compiles the HLO stub instead
            store.save(name, description | {"file": "elsewhere.pb"}, blobs)
        elif name.endswith(".16x4"):
            store.save(name, {"file": "none"}, blobs[:1])
        elif "decode_2" in name:
            store.save(name, {"captures": ["no such variable"], "outputs": []}, blobs)
    reported = answer(model, store.root, REQUESTS)
    assert reported.outcomes == ["miss"] * 4
    assert reported.tokens == filled[1].tokens
    assert reported.left == ()
    assert reported.log.count("XLA refuses it") == 2
    assert reported.log.count("XLA looks for it under another name") == 1
    assert len(list((store.root / "damaged").iterdir())) == 3
    again = answer(model, store.root, REQUESTS)
    assert again.outcomes == ["disk"] * 4, "what was made anew took its place"
    assert again.tokens == filled[1].tokens


@pytest.mark.release
def test_two_processes_at_once(model: Path, filled: tuple[Path, Told], tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    one = begin(model, folder, [REQUESTS[0], REQUESTS[1]])
    other = begin(model, folder, [REQUESTS[0], REQUESTS[2]])
    reported = [finish(one), finish(other)]
    assert [t.log for t in reported] == ["", ""]
    for t in reported:
        assert t.tokens == {key: filled[1].tokens[key] for key in t.tokens}
    store = Store(folder)
    assert len(store.names()) == 2 + 2 + 3
    assert all(store.load(name) is not None for name in store.names())
    assert not list(store.folder.glob(".*")), "no unfinished file is left"
    history = json.loads((store.folder / "history-auto.json").read_text())
    assert history[str(model)]["8 1 4 0 0"]["times"] >= 1
