"""Tests of `store`: files that appear whole or not at all, are checked when they are
read, make room for each other, and are never worth an error.
"""

import errno
import importlib.metadata
import logging
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import checkpoints
from xla_backend import Backend, CacheOutcome, GenerationOptions
from xla_backend.compilation import store
from xla_backend.compilation.store import Store, open_store

DESCRIPTION = {"files": ["a", "b"]}
BLOBS = [b"machine code", b"\0" * 1000]


@pytest.fixture
def opened(tmp_path: Path) -> Store:
    found = open_store(tmp_path / "store")
    assert found is not None
    return found


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, logger="xla_backend")
    return caplog


# --- entries --------------------------------------------------------------------------------------


def test_an_entry_is_what_was_saved_until_it_is_removed(opened: Store) -> None:
    assert opened.load("one") is None
    assert not opened.holds("one")
    assert opened.save("one", DESCRIPTION, BLOBS)
    assert opened.save("nothing", {}, [])
    assert opened.load("one") == (DESCRIPTION, BLOBS)
    assert opened.load("nothing") == ({}, [])
    assert opened.holds("one")
    assert opened.names() == ["nothing", "one"]
    assert opened.save("one", {}, BLOBS[:1]), "replaced"
    assert Store(opened.root).load("one") == ({}, BLOBS[:1])

    assert opened.clear() == 2
    for name in ("one", "two", "three"):
        opened.save(name, DESCRIPTION, BLOBS)
    opened.write_history("auto", {"a": 1})
    assert opened.clear(["two", "none of this name"]) == 1
    assert opened.names() == ["one", "three"]
    assert opened.clear() == 2
    assert opened.names() == []
    assert opened.read_history("auto") == {"a": 1}, "what calls took is no compiled function"


def test_readers_see_whole_entries_while_others_write(opened: Store) -> None:
    def write(letter: bytes) -> None:
        mine = Store(opened.root)
        for _ in range(100):
            mine.save("one", {"letter": letter.decode()}, [letter * 100_000] * 3)

    opened.save("one", {"letter": "a"}, [b"a"])
    writers = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b", b"c")]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        found = opened.load("one")
        assert set(b"".join(found[1])) == {ord(found[0]["letter"])}
    for writer in writers:
        writer.join()
    assert not (opened.root / "damaged").exists()
    assert not list(opened.folder.glob(".*"))


def test_unfinished_files_of_a_killed_process_go_after_a_while(opened: Store) -> None:
    old, fresh = opened.folder / ".writing-old", opened.folder / ".writing-fresh"
    old.write_bytes(b"half")
    fresh.write_bytes(b"half")
    os.utime(old, (time.time() - 2 * store.LEFTOVER_S,) * 2)
    opened.save("one", DESCRIPTION, BLOBS)
    assert (old.exists(), fresh.exists()) == (False, True)


def test_a_write_that_is_cut_short_leaves_what_was_there(
    opened: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened.save("one", DESCRIPTION, BLOBS)
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        opened.save("one", {}, [b"other"])
    assert opened.load("one") == (DESCRIPTION, BLOBS)
    assert [path.name for path in opened.folder.iterdir()] == ["one.entry"]


def a_folder(path: Path) -> None:
    path.unlink()
    (path / "inside").mkdir(parents=True)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        pytest.param(lambda p: p.write_bytes(b""), "not an entry", id="empty"),
        pytest.param(lambda p: p.write_bytes(b"\x7fELF"), "not an entry", id="foreign"),
        pytest.param(lambda p: os.truncate(p, 25), "checksum", id="cut in the checksum"),
        pytest.param(lambda p: os.truncate(p, 60), "checksum", id="cut in the header"),
        pytest.param(
            lambda p: os.truncate(p, p.stat().st_size - 1), "checksum", id="cut at the end"
        ),
        pytest.param(
            lambda p: p.write_bytes(p.read_bytes().replace(b"machine", b"Machine")),
            "checksum",
            id="changed",
        ),
        pytest.param(lambda p: p.write_bytes(p.read_bytes() + b"x"), "checksum", id="longer"),
        pytest.param(lambda p: (p.parent / "two.entry").replace(p), "belongs to two", id="other"),
        pytest.param(a_folder, "cannot be read", id="a folder"),
    ],
)
def test_damage_is_logged_and_set_aside(
    opened: Store, damage: Callable[[Path], object], reason: str, log: pytest.LogCaptureFixture
) -> None:
    opened.save("one", DESCRIPTION, BLOBS)
    opened.save("two", DESCRIPTION, BLOBS)
    damage(opened.folder / "one.entry")
    assert opened.load("one") is None
    assert opened.load("one") is None, "the second time there is nothing"
    (record,) = log.records
    assert "one.entry is set aside" in record.getMessage()
    assert reason in record.getMessage()
    assert len(list((opened.root / "damaged").iterdir())) == 1
    assert opened.save("one", DESCRIPTION, BLOBS)
    assert opened.load("one") == (DESCRIPTION, BLOBS)


# --- the bound ------------------------------------------------------------------------------------


def save_at(found: Store, name: str, hour: int) -> None:
    found.save(name, {}, [b"x" * 10_000])
    os.utime(found.folder / f"{name}.entry", (3600 * hour,) * 2)


def test_the_least_recently_used_entries_make_room(tmp_path: Path) -> None:
    found = Store(tmp_path, size_bound=45_000)
    for hour, name in enumerate(("a", "b", "c", "d")):
        save_at(found, name, hour)
    assert found.names() == ["a", "b", "c", "d"]
    found.load("a")
    save_at(found, "e", 5)
    assert found.names() == ["a", "c", "d", "e"], "b was not used for longest"
    found.save("large", {}, [b"x" * 44_000])
    assert found.names() == ["large"]
    found.save("too large", {}, [b"x" * 50_000])
    assert found.names() == ["too large"], "what was just written stays"


def test_old_and_damaged_entries_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as change:
        change.setenv("XLA_FLAGS", "--of-an-earlier-version")
        save_at(Store(tmp_path), "earlier", 1)
    found = Store(tmp_path, size_bound=25_000)
    assert not found.holds("earlier")
    save_at(found, "bad", 2)
    (tmp_path / "damaged").mkdir()
    (found.folder / "bad.entry").replace(tmp_path / "damaged" / "bad.entry.1")
    (tmp_path / "damaged" / "folder.entry.2").mkdir()
    os.utime(tmp_path / "damaged" / "folder.entry.2", (0, 0))
    save_at(found, "one", 3)
    assert found.size() < 25_000
    save_at(found, "two", 4)
    assert found.names() == ["one", "two"]
    assert not [path for path in tmp_path.rglob("*.entry*") if path.parent != found.folder]


# --- where there is none --------------------------------------------------------------------------


def test_where_the_store_s_folder_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_BACKEND_STORE", str(tmp_path / "by variable"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert open_store(tmp_path / "given").root == tmp_path / "given"
    assert open_store().root == tmp_path / "by variable"
    for word in ("off", "0", "No", "disabled"):
        assert open_store(word) is None
    monkeypatch.setenv("XLA_BACKEND_STORE", "off")
    assert open_store() is None
    monkeypatch.delenv("XLA_BACKEND_STORE")
    assert open_store().root == tmp_path / "cache" / "xla_backend"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert open_store().root == tmp_path / "home" / ".cache" / "xla_backend"


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a file system in memory, with options; only root may."""
    folders = []

    def mount(options: str) -> Path:
        folder = tmp_path / f"disk-{len(folders)}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
            pytest.skip("mounting a file system takes more rights than these tests have")
        folders.append(folder)
        return folder

    yield mount
    for folder in folders:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    return checkpoints.gpt2(folder, seed=31, n_layer=1, n_embd=32, n_head=2, n_positions=32)


OPTIONS = GenerationOptions(max_new_tokens=4)


@pytest.fixture(scope="module")
def right_tokens(model: Path) -> list[int]:
    return tokens(Backend(store="off"), model)


def tokens(backend: Backend, model: Path, options: GenerationOptions = OPTIONS) -> list[int]:
    return [
        token.id for token in backend.generate(str(model), "The owl", options, mode="padded").tokens
    ]


def one_warning(log: pytest.LogCaptureFixture) -> str:
    (record,) = [r for r in log.records if r.name.startswith("xla_backend")]
    assert record.levelno == logging.WARNING
    return record.getMessage()


def test_a_file_in_the_place_of_the_folder(
    tmp_path: Path, model: Path, right_tokens: list[int], log: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("no folder")
    backend = Backend(store=tmp_path / "file")
    assert tokens(backend, model) == right_tokens
    assert tokens(backend, model, OPTIONS.replace(max_new_tokens=3)) == right_tokens[:3]
    backend.close()
    assert "cannot be stored" in one_warning(log)


def test_a_full_disk(
    mounted: Callable[[str], Path], tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    """Large enough to begin with, too small for the first entry."""
    # Weights of their own, so that this process has not compiled for them yet.
    model = checkpoints.gpt2(tmp_path / "m", seed=32, n_layer=1, n_embd=32, n_head=2)
    folder = mounted("size=16k")
    backend = Backend(store=folder)
    found = tokens(backend, model)
    tokens(backend, model, OPTIONS.replace(num_beams=2))
    backend.close()
    assert "No space left on device" in one_warning(log)
    assert not list(folder.rglob("*.entry"))
    assert not list(folder.rglob(".writing-*")), "what did not fit takes no space"
    assert found == tokens(Backend(store="off"), model)


def test_writes_that_fail_are_warned_of_once(
    opened: Store, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(store.os, "fdopen", full)
    assert not opened.save("one", DESCRIPTION, BLOBS)
    assert not opened.save("two", DESCRIPTION, BLOBS)
    opened.write_history("auto", {})
    sentence = one_warning(log)
    assert str(opened.root) in sentence
    assert "--store" in sentence
    monkeypatch.undo()
    assert opened.names() == []
    assert opened.save("one", DESCRIPTION, BLOBS), "there may be space again"


def test_a_folder_deleted_while_it_is_used(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    model = checkpoints.gpt2(tmp_path / "m", seed=33, n_layer=1, n_embd=32, n_head=2)
    folder = tmp_path / "store"
    backend = Backend(store=folder)
    before = tokens(backend, model)
    shutil.rmtree(folder)
    assert tokens(backend, model) == before
    other = backend.generate(str(model), "The owl", OPTIONS.replace(num_beams=2), mode="padded")
    assert other.cache is CacheOutcome.MISS
    backend.close()
    assert [name for name in Store(folder).names() if "decode_2" in name], "it is there again"
    assert not log.records


# --- what code depends on -------------------------------------------------------------------------


def test_the_fingerprint_has_all_that_code_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [store.fingerprint()]
    assert store.fingerprint() == seen[0]

    def changed(change: Callable[[pytest.MonkeyPatch], None]) -> None:
        with monkeypatch.context() as context:
            change(context)
            seen.append(store.fingerprint())

    version = importlib.metadata.version
    for package in ("tensorflow", "transformers"):
        changed(
            lambda m, package=package: m.setattr(
                importlib.metadata,
                "version",
                lambda name: "2.99.0" if name == package else version(name),
            )
        )
    changed(lambda m: m.setattr(store, "_source_digest", lambda: "other code"))
    changed(lambda m: m.setattr(store.processor, "features", lambda: "sse2"))
    changed(lambda m: m.setattr(store.platform, "machine", lambda: "riscv64"))
    changed(lambda m: m.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true"))
    changed(lambda m: m.setenv("TF_XLA_FLAGS", "--tf_xla_auto_jit=2"))
    assert len(set(seen)) == len(seen) == 8
    changed(
        lambda m: m.setenv(
            "TF_XLA_FLAGS",
            f"{os.environ.get('TF_XLA_FLAGS', '')} --tf_xla_persistent_cache_directory=/elsewhere",
        )
    )
    assert seen[-1] == seen[0], "where XLA writes in this process says nothing about its code"


def test_other_weights_never_meet_an_entry(tmp_path: Path) -> None:
    """The same path, the same shapes, another training."""
    folder, kept = tmp_path / "model", tmp_path / "store"
    sizes = {"n_layer": 1, "n_embd": 32, "n_head": 2}
    checkpoints.gpt2(folder, seed=34, **sizes)
    first = Backend(store=kept)
    assert first.generate(str(folder), "The owl", OPTIONS, mode="padded").cache is CacheOutcome.MISS
    first.close()
    before = set(Store(kept).names())
    checkpoints.gpt2(folder, seed=35, **sizes)
    second = Backend(store=kept)
    assert (
        second.predict(str(folder), "The owl", OPTIONS, mode="padded").outcome is CacheOutcome.MISS
    )
    result = second.generate(str(folder), "The owl", OPTIONS, mode="padded")
    assert result.cache is CacheOutcome.MISS
    assert [t.id for t in result.tokens] == tokens(Backend(store="off"), folder)
    second.close()
    assert len(Store(kept).names()) == 2 * len(before)
    checkpoints.gpt2(folder, seed=34, **sizes)
    third = Backend(store=kept)
    assert (
        third.generate(str(folder), "The owl", OPTIONS, mode="padded").cache is CacheOutcome.DISK
    ), "it is back"


# --- history --------------------------------------------------------------------------------------


def test_history_is_what_was_written(opened: Store) -> None:
    assert opened.read_history("auto") is None
    opened.write_history("auto", {"a": [1, None]})
    assert Store(opened.root).read_history("auto") == {"a": [1, None]}
    assert opened.read_history("int8") is None, "weights of other kinds have other times"


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"\0" * 100])
def test_a_damaged_history_is_none(opened: Store, content: bytes) -> None:
    (opened.folder / "history-auto.json").write_bytes(content)
    assert opened.read_history("auto") is None
    opened.write_history("auto", {})
    assert opened.read_history("auto") == {}
