"""Names to folders: bundled models, local folders, and the Hub, whose part a local server plays."""

import dataclasses
import json
import pickle
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import checkpoints, gguf_files
from tests.hub import HUB_MODEL, Hub, hub_with
from tests.program import python
from xla_backend.checkpoints.added_models import AddedModels
from xla_backend.checkpoints.architectures.table import ARCHITECTURES
from xla_backend.checkpoints.models import (
    DEFAULT_MODEL,
    HUB_MODELS,
    PACKAGED_MODEL,
    Download,
    Registry,
    candidate,
    folder_info,
    open_registry,
)
from xla_backend.interface.errors import ModelUnavailable


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder with a checkpoint of every family; tests copy what they change."""
    root = tmp_path_factory.mktemp("made")
    for family in ("gpt2", "opt", "t5", "whisper"):
        getattr(checkpoints, family)(root / family)
    return root


@pytest.fixture
def bundled(made: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "demo_models"
    shutil.copytree(made / "t5", folder / "a-model-with-a-card")
    shutil.copytree(made / "gpt2", folder / DEFAULT_MODEL)
    shutil.copytree(made / "whisper", folder / "whisper-commands")
    card = "---\nlicense: apache-2.0\n---\n\n# Title\n\nSums up what it reads.\nMore.\n"
    (folder / "a-model-with-a-card" / "README.md").write_text(card)
    (folder / "recipe.py").touch()
    return folder


@pytest.fixture
def registry(bundled: Path) -> Registry:
    return Registry(bundled_folder=bundled)


# Listing


def test_list_starts_with_the_default_and_ends_with_the_hub(registry: Registry):
    infos = registry.list()
    names = ["gpt2-stories", "a-model-with-a-card", "whisper-commands", *HUB_MODELS]
    assert [info.name for info in infos] == names
    assert [info.family for info in infos[:3]] == ["decoder-only", "encoder-decoder", "speech"]
    assert [info.source for info in infos] == ["bundled"] * 3 + ["hub"] * len(HUB_MODELS)
    assert [info.context_length for info in infos[:3]] == [128, None, 64]
    multilingual = [info.name for info in infos if info.is_multilingual]
    assert multilingual == ["whisper-commands", "openai/whisper-tiny"]
    assert infos[1].description == "Sums up what it reads."
    assert all(info.description and not info.loaded for info in infos)


def test_list_leaves_out_what_cannot_be_loaded(registry: Registry, bundled: Path):
    (bundled / "gpt2-stories" / "model.safetensors").unlink()
    (bundled / "whisper-commands" / "preprocessor_config.json").unlink()
    broken = bundled / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{")
    other = bundled / "other"
    other.mkdir()
    (other / "config.json").write_text('{"model_type": "llama"}')
    assert [info.name for info in registry.list() if info.source == "bundled"] == [
        "a-model-with-a-card"
    ]


def test_list_of_an_own_allow_list():
    names = ["someone/whisper-small", "someone/mt5-mini", "someone/thing", "someone/thing"]
    infos = Registry(hub_models=names, bundled_folder=Path("/nowhere")).list()
    assert [(info.name, info.family) for info in infos] == [
        ("someone/whisper-small", "speech"),
        ("someone/mt5-mini", "encoder-decoder"),
        ("someone/thing", "decoder-only"),
    ]


def test_models_are_listed_again_without_a_large_file(monkeypatch: pytest.MonkeyPatch) -> None:
    registry, read = Registry(), dict[Path, int]()
    assert any(model.family == "speech" for model in registry.list())

    def read_text(path: Path, *options: Any, **more: Any) -> str:
        text = whole(path, *options, **more)
        read[path] = len(text)
        return text

    whole = Path.read_text
    monkeypatch.setattr(Path, "read_text", read_text)
    registry.list()  # as at the end of every request, before its answer
    assert read
    assert max(read.values()) < 100_000, read


def test_importing_and_listing_is_light():
    code = (
        "import sys; from xla_backend.checkpoints.models import Registry; Registry().list()\n"
        "heavy = {'transformers', 'httpx2', 'tensorflow', 'keras', 'h5py'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    python(code)


# Bundled models and folders


@pytest.mark.parametrize(
    ("family", "expected", "context"),
    [
        ("gpt2", "decoder-only", 128),
        ("opt", "decoder-only", 128),
        ("t5", "encoder-decoder", None),
        ("whisper", "speech", 64),
    ],
)
def test_a_folder_is_located(
    registry: Registry, made: Path, family: str, expected: str, context: int | None
):
    files = registry.locate(str(made / family))
    assert files.info == dataclasses.replace(
        folder_info(str(made / family)), description=files.info.description
    )
    assert files.folder == made / family
    assert files.info.name == str(made / family)
    assert (files.info.family, files.info.source) == (expected, "folder")
    assert files.info.context_length == context
    assert files.config.model_type == family
    saved = json.loads((made / family / "generation_config.json").read_text())
    assert files.generation_config.eos_token_id == saved["eos_token_id"]
    if family == "whisper":
        assert files.generation_config.lang_to_id == saved["lang_to_id"]


def test_a_folder_that_cannot_be_used_can_be_listed(made: Path, tmp_path: Path):
    assert folder_info(str(tmp_path)).family == "decoder-only"
    shutil.copy(made / "whisper" / "config.json", tmp_path)
    assert (folder_info(str(tmp_path)).family, folder_info(str(tmp_path)).context_length) == (
        "speech",
        64,
    )
    (tmp_path / "config.json").write_text('{"model_type": ["whisper"]}')
    assert folder_info(str(tmp_path)).family == "decoder-only"


def test_a_bundled_model_is_located(registry: Registry, bundled: Path) -> None:
    files = registry.locate("gpt2-stories")
    assert files.folder == bundled / "gpt2-stories"
    assert files.info.source == "bundled"
    assert files.info.description == registry.list()[0].description

    (bundled / "gpt2-stories" / "generation_config.json").unlink()
    files = registry.locate("gpt2-stories")
    assert files.generation_config.eos_token_id == files.config.eos_token_id


def test_folders_are_relative_at_home_or_forbidden_and_a_file_is_none(
    registry: Registry, made: Path, monkeypatch: pytest.MonkeyPatch, bundled: Path
) -> None:
    monkeypatch.chdir(made)
    monkeypatch.setenv("HOME", str(made))
    for name in ("gpt2", "./gpt2", "~/gpt2", "../" + made.name + "/gpt2", "gpt2/"):
        assert registry.locate(name).config.model_type == "gpt2"
    with pytest.raises(ModelUnavailable, match="is a file; give the folder"):
        registry.locate(str(made / "gpt2" / "model.safetensors"))

    registry = Registry(bundled_folder=bundled, allow_folders=False)
    for name in (str(made / "gpt2"), "../demo_models/gpt2-stories", str(bundled), "/etc"):
        with pytest.raises(ModelUnavailable, match="there is no model") as caught:
            registry.locate(name)
        assert "path of a folder" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "   ",
        "\x00",
        "gpt2-stories\x00",
        "/tmp/\x00",
        "\ud83e",
        "/\ud83e",
        "../../etc/passwd\x00",
        "~nobody-of-this-name/model",
        "/no/such/folder",
        "./no-such-folder",
        "x" * 5000,
        "/" + "x" * 1_000_000,
        "🦊",
        "gpt2-stories/../../..",
        None,
        3,
        ["gpt2-stories"],
    ],
)
@pytest.mark.parametrize("allow_folders", [True, False])
def test_other_names_get_a_printable_sentence(bundled: Path, name: object, allow_folders: bool):
    with pytest.raises(ModelUnavailable) as caught:
        Registry(bundled_folder=bundled, allow_folders=allow_folders).locate(name)
    message = str(caught.value)
    assert message.encode("utf-8").isascii() or "🦊" in message
    assert "\x00" not in message
    assert len(message) < 600
    assert "gpt2-stories" in message or "choose a model by its name" in message


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("gpt2", HUB_MODEL),
        ("gpt-2-stories", "gpt2-stories"),
        ("GPT2-Stories", "gpt2-stories"),
        ("t5-smal", "google-t5/t5-small"),
        ("openai/wisper-tiny", "openai/whisper-tiny"),
    ],
)
def test_a_misspelt_name_gets_a_suggestion(registry: Registry, name: str, meant: str):
    with pytest.raises(ModelUnavailable, match=rf"Did you mean {meant}\?"):
        registry.locate(name)


def test_a_hub_id_off_the_allow_list_says_so(registry: Registry, bundled: Path):
    with pytest.raises(ModelUnavailable, match="nor on the list of Hub models that may be"):
        registry.locate("meta-llama/Llama-3.2-1B")
    strict = Registry(bundled_folder=bundled, allow_folders=False)
    with pytest.raises(ModelUnavailable, match="not on the list of models that may be loaded"):
        strict.locate("meta-llama/Llama-3.2-1B")


@pytest.mark.parametrize(
    ("removed", "message"),
    [
        (["config.json"], "is not a model: it has no config.json"),
        (["model.safetensors"], "has no weights"),
        (["tokenizer.json", "vocab.json"], "has no tokenizer"),
    ],
)
def test_an_incomplete_folder_says_what_it_lacks(
    registry: Registry, made: Path, tmp_path: Path, removed: list[str], message: str
):
    folder = shutil.copytree(made / "gpt2", tmp_path / "copy")
    for name in removed:
        (folder / name).unlink()
    with pytest.raises(ModelUnavailable, match=message) as caught:
        registry.locate(str(folder))
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("is_chat", [True, False])
def test_a_text_ends_where_only_the_tokenizer_says_so(tmp_path: Path, is_chat: bool):
    """And, in a chat, at control tokens that mean nothing else."""
    folder = checkpoints.rotary(tmp_path / "m", "llama", special=["<|im_end|>", "<|turn|>"])
    if is_chat:
        (folder / "chat_template.jinja").write_text(checkpoints.CHAT_TEMPLATE)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token": "<|turn|>"}))
    added = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    place = {token["content"]: token["id"] for token in added}
    named = place["<|endoftext|>"]
    ends = Registry().locate(str(folder)).generation_config.eos_token_id
    assert ends == ([named, place["<|im_end|>"], place["<|turn|>"]] if is_chat else named)


def test_an_answer_in_channels_goes_on_behind_a_message(tmp_path: Path) -> None:
    """There `<|end|>` does not end it, as with Phi-3, and a call does."""
    for name, folder in (
        ("phi", checkpoints.rotary(tmp_path / "phi", "llama", special=["<|end|>", "<|call|>"])),
        ("gpt", checkpoints.in_channels(tmp_path / "gpt")),
    ):
        (folder / "chat_template.jinja").write_text(checkpoints.CHANNEL_TEMPLATE)
        added = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
        ends = Registry().locate(str(folder)).generation_config.eos_token_id
        names = {token["content"] for token in added if token["id"] in ends}
        own = {"<|end|>"} if name == "phi" else {"<|return|>", "<|call|>"}
        assert names == {"<|endoftext|>"} | own


@pytest.mark.parametrize("content", ["", "{", "[]", '{"max_length": "long"}', '{"num_beams": -3}'])
def test_broken_generation_configs(registry: Registry, made: Path, tmp_path: Path, content: str):
    folder = shutil.copytree(made / "gpt2", tmp_path / "copy")
    (folder / "generation_config.json").write_text(content)
    try:
        registry.locate(str(folder))
    except ModelUnavailable as error:
        assert "generation_config.json is damaged" in str(error)
    else:
        assert content.startswith('{"')  # JSON whose odd values Transformers lets pass


# The Hub


def _point_client_at(url: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", url)
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))


@pytest.fixture
def hub(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hub]]:
    """A Hub with one repository, and the client pointed at it with an empty cache."""
    folder = shutil.copytree(made / "gpt2", tmp_path / "repository")
    for name in ("pytorch_model.bin", "tf_model.h5", "flax_model.msgpack", "README.md", "64.onnx"):
        (folder / name).write_bytes(b"not to be fetched")

    with hub_with(folder) as served:
        _point_client_at(served.url, tmp_path / "cache", monkeypatch)
        yield served


@pytest.fixture
def no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    _point_client_at(f"http://127.0.0.1:{port}", tmp_path / "cache", monkeypatch)


def test_the_hub_has_the_model_of_a_missing_package(bundled: Path, hub: type[Hub]) -> None:
    hub.repository = "HuggingFaceTB/SmolLM2-135M-Instruct"
    registry = Registry(bundled_folder=bundled)
    assert registry.list()[0].name == DEFAULT_MODEL
    files = registry.locate(PACKAGED_MODEL)
    assert (files.info.name, files.info.source) == (PACKAGED_MODEL, "hub")
    assert "models--HuggingFaceTB--SmolLM2-135M-Instruct" in files.folder.parts
    # It comes first, as on a Space, whose cache is filled beforehand.
    first = registry.list()[0]
    assert (first.name, first.source, first.on_disk) == (PACKAGED_MODEL, "hub", True)
    assert [info.name for info in registry.list() if info.source == "hub" and info.on_disk] == [
        PACKAGED_MODEL
    ]


def test_a_gated_model_says_how_to_get_it(bundled: Path, hub: type[Hub]) -> None:
    hub.repository, hub.is_gated = "meta-llama/Llama-3.2-1B-Instruct", True
    with pytest.raises(ModelUnavailable) as caught:
        Registry(bundled_folder=bundled).locate(hub.repository)
    for step in (
        f"Accept it at https://huggingface.co/{hub.repository}",
        "https://huggingface.co/settings/tokens",
        "HF_TOKEN",
        "`hf auth login`",
    ):
        assert step in str(caught.value)
    assert not hub.requested


@pytest.mark.parametrize("name", HUB_MODELS)
def test_a_listed_model_says_what_it_takes(name: str) -> None:
    [info] = Registry([name], bundled_folder=Path("/nowhere")).list()
    assert info.model_type in ARCHITECTURES
    assert info.license
    assert 100e6 < (info.download_bytes or 0) < 3e9


def test_a_gguf_file_of_the_hub_by_its_quantization(hub: type[Hub], tmp_path: Path) -> None:
    for name in ("small-Q4_0.gguf", "small-Q8_0.gguf", "mmproj-small-Q8_0.gguf"):
        (hub.folder / name).write_bytes(b"another")
    gguf_files.write(hub.folder / "small-Q8_0.gguf", "llama")
    name = f"{HUB_MODEL}:Q8_0"
    registry = Registry([name], bundled_folder=Path("/nowhere"))
    [listed] = registry.list()
    assert not listed.on_disk
    said: list[Download] = []
    files = registry.locate(name, said.append)
    assert hub.requested == ["small-Q8_0.gguf"]
    assert files.folder.name == "small-Q8_0.gguf"
    assert (files.info.name, files.info.source, files.info.model_type) == (name, "hub", "llama")
    assert said[-1].total == (hub.folder / "small-Q8_0.gguf").stat().st_size
    hub.status = 500  # From here on the cache must do.
    assert registry.locate(name).folder == files.folder
    assert registry.list()[0].on_disk
    with pytest.raises(ModelUnavailable, match="status 500"):
        Registry([f"{HUB_MODEL}:Q4_0"]).locate(f"{HUB_MODEL}:Q4_0")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (("a-Q4_0.gguf",), r"no GGUF file of that quantization. Its GGUF files are a-Q4_0.gguf"),
        (("a-Q8_0.gguf", "b-q8_0.gguf"), r"has 2 GGUF files of that quantization"),
        ((), "It has no GGUF files; leave out the part after the colon"),
    ],
)
def test_gguf_files_that_are_unclear(hub: type[Hub], files: tuple[str, ...], message: str) -> None:
    for name in files:
        (hub.folder / name).write_bytes(b"GGUF")
    with pytest.raises(ModelUnavailable, match=message):
        Registry([f"{HUB_MODEL}:Q8_0"]).locate(f"{HUB_MODEL}:Q8_0")
    assert not hub.requested


# Models that are added


def test_a_candidate_is_looked_at_before_its_weights_are_fetched(hub: type[Hub]) -> None:
    hub.card = {"license": "other", "license_name": "their-own"}
    info = candidate(f" {HUB_MODEL} ")
    assert (info.name, info.source, info.model_type) == (HUB_MODEL, "hub", "gpt2")
    assert (info.license, info.context_length, info.on_disk) == ("their-own", 128, False)
    weights = (hub.folder / "model.safetensors").stat().st_size
    assert weights < (info.download_bytes or 0) < weights + 2_000_000
    assert hub.requested == ["config.json"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ('{"model_type": "mixtral"}', f"{HUB_MODEL} has an architecture that is .* 'mixtral'"),
        ("{", HUB_MODEL),
    ],
)
def test_other_candidates_are_refused_by_name(hub: type[Hub], config: str, message: str) -> None:
    (hub.folder / "config.json").write_text(config)
    with pytest.raises(ModelUnavailable, match=message) as caught:
        candidate(HUB_MODEL)
    assert "snapshots" not in str(caught.value)
    assert hub.requested == ["config.json"]


def test_a_candidate_in_a_gguf_file_is_told_by_the_hub(hub: type[Hub]) -> None:
    (hub.folder / "a-Q8_0.gguf").write_bytes(bytes(12345))
    hub.gguf = {"architecture": "qwen3"}
    info = candidate(f"{HUB_MODEL}:Q8_0")
    assert (info.model_type, info.download_bytes) == ("qwen3", 12345)
    hub.gguf = {"architecture": "mamba"}
    with pytest.raises(ModelUnavailable, match="architecture 'mamba', which is not supported"):
        candidate(f"{HUB_MODEL}:Q8_0")
    assert not hub.requested


@pytest.mark.parametrize("name", ["", "thing", "a/b/c", "a/b:", "https://huggingface.co/a/b", "\0"])
def test_a_candidate_that_is_no_name_says_what_to_write(name: str) -> None:
    with pytest.raises(ModelUnavailable, match="Write OWNER/REPO"):
        candidate(name)


def test_added_models_are_found_by_others(made: Path, hub: type[Hub], tmp_path: Path) -> None:
    added = AddedModels(tmp_path / "store" / "added_models.json")
    registry = Registry([], allow_folders=False, bundled_folder=Path("/nowhere"), added=added)
    assert registry.list() == []
    folder = str(made / "t5")
    for name in (folder, HUB_MODEL):
        with pytest.raises(ModelUnavailable):
            registry.locate(name)
        added.add(candidate(name))
    copy = pickle.loads(pickle.dumps(registry))
    assert [(info.name, info.source, info.on_disk) for info in copy.list()] == [
        (folder, "folder", True),
        (HUB_MODEL, "hub", False),
    ]
    assert copy.locate(folder).info.family == "encoder-decoder"
    assert copy.locate(HUB_MODEL).config.model_type == "gpt2"
    assert [info.on_disk for info in registry.list()] == [True, True]
    hub.status = 500  # What is here can be looked at without the Hub.
    assert candidate(HUB_MODEL).on_disk


@pytest.mark.parametrize("content", ["", "[", "{}", "[1]", '[{"name": "a/b"}]', "null"])
def test_a_damaged_file_of_models_is_as_none(tmp_path: Path, content: str, made: Path) -> None:
    added = AddedModels(tmp_path / "added_models.json")
    added.path.write_text(content)
    assert added.read() == {}
    added.add(candidate(str(made / "gpt2")))
    assert list(added.read()) == [str(made / "gpt2")]


def test_one_download(registry: Registry, hub: type[Hub], capfd: pytest.CaptureFixture[str]):
    said: list[Download] = []
    files = registry.locate(HUB_MODEL, said.append)
    assert files.info.name == HUB_MODEL
    assert (files.info.source, files.info.family) == ("hub", "decoder-only")
    assert files.info.context_length == 128  # of what was downloaded, not of the table
    assert sorted(hub.requested) == [
        "config.json",
        "generation_config.json",
        "merges.txt",
        "model.safetensors",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.json",
    ]
    size = sum((hub.folder / name).stat().st_size for name in hub.requested)
    assert said
    assert {(download.name, download.total) for download in said} == {(HUB_MODEL, size)}
    assert str(said[0]).startswith(f"{HUB_MODEL}: ")
    assert str(said[0]).endswith(f" of {size / 1e6:.1f} MB")
    assert capfd.readouterr() == ("", "")

    hub.status = 500  # From here on the cache must do.
    hub.requested.clear()
    said.clear()
    assert registry.locate(HUB_MODEL, said.append).folder == files.folder
    assert not hub.requested
    assert not said


def test_a_download_that_was_cut_off_is_finished(registry: Registry, hub: type[Hub]):
    folder = registry.locate(HUB_MODEL).folder
    (folder / "model.safetensors").resolve().unlink()
    (folder / "model.safetensors").unlink()
    hub.requested.clear()
    assert registry.locate(HUB_MODEL).folder == folder
    assert hub.requested == ["model.safetensors"]


def test_a_download_counts_its_bytes(registry: Registry, hub: type[Hub], tmp_path: Path):
    # The client writes ten megabytes at a time.
    checkpoints.gpt2(hub.folder, n_embd=384, n_layer=7, n_head=4, n_positions=128)
    blobs = tmp_path / "cache" / "models--openai-community--gpt2" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / "of-an-older-commit").write_bytes(bytes(20_000_000))
    hub.hold_at = 25_000_000
    shares: list[float] = []

    def tell(download: Download) -> None:
        shares.append(download.share)
        if download.share > 0.1:
            hub.go_on.set()

    registry.locate(HUB_MODEL, tell)
    assert shares == sorted(shares)
    assert any(0.1 < share < 0.7 for share in shares)


def test_a_download_that_breaks_off_keeps_whole_files(registry: Registry, hub: type[Hub]):
    checkpoints.gpt2(hub.folder, n_embd=384, n_layer=7, n_head=4, n_positions=128)
    hub.breaks_at = 25_000_000
    with pytest.raises(ModelUnavailable, match=r"broke off\. Try again: finished files are"):
        registry.locate(HUB_MODEL)
    hub.breaks_at = 0
    hub.requested.clear()
    folder = registry.locate(HUB_MODEL).folder
    assert hub.requested == ["model.safetensors"]
    assert (folder / "model.safetensors").read_bytes() == (
        hub.folder / "model.safetensors"
    ).read_bytes()


def test_shards_are_fetched_with_their_index(registry: Registry, hub: type[Hub]) -> None:
    (hub.folder / "model.safetensors").rename(hub.folder / "model-00001-of-00001.safetensors")
    index = {"weight_map": {"wte.weight": "model-00001-of-00001.safetensors"}}
    (hub.folder / "model.safetensors.index.json").write_text(json.dumps(index))
    registry.locate(HUB_MODEL)
    assert {"model.safetensors.index.json", "model-00001-of-00001.safetensors"} < set(hub.requested)
    assert "tf_model.h5" not in hub.requested


def test_one_weight_format_is_fetched(registry: Registry, hub: type[Hub]) -> None:
    hub.hidden = frozenset({"model.safetensors"})
    registry.locate(HUB_MODEL)
    assert "tf_model.h5" in hub.requested
    assert not {"pytorch_model.bin", "flax_model.msgpack"} & set(hub.requested)


def test_a_repository_of_pickles_is_refused(registry: Registry, hub: type[Hub]):
    hub.hidden = frozenset({"model.safetensors", "tf_model.h5"})
    with pytest.raises(ModelUnavailable, match=r"no weights in a supported format .* Pickles"):
        registry.locate(HUB_MODEL)
    assert not hub.requested


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, "private"),
        (403, "token may not read it"),
        (404, "does not exist"),
        (503, "status 503; try again"),
    ],
)
def test_the_hub_s_refusal_is_told(registry: Registry, hub: type[Hub], status: int, message: str):
    hub.status = status
    with pytest.raises(ModelUnavailable, match=f"{HUB_MODEL} cannot be downloaded.*{message}"):
        registry.locate(HUB_MODEL)


@pytest.mark.usefixtures("no_network")
def test_without_network_or_offline(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelUnavailable, match="the Hugging Face Hub cannot be reached") as caught:
        registry.locate(HUB_MODEL)
    assert "choose a model that is here: a-model-with-a-card, gpt2-stories" in str(caught.value)
    with pytest.raises(ModelUnavailable, match=f"`hf download {HUB_MODEL}` and give its folder"):
        Registry(bundled_folder=Path("/nowhere")).locate(HUB_MODEL)

    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelUnavailable, match="set to work offline"):
        registry.locate(HUB_MODEL)


def test_an_unwritable_cache_is_named(registry: Registry, hub: type[Hub], tmp_path: Path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(ModelUnavailable, match="cannot be stored in the local cache"):
        registry.locate(HUB_MODEL)


def test_a_server_downloads_named_models_only_and_opens_folders_only_where_one_is_named(
    tmp_path: Path,
):
    named = open_registry(("gpt2-stories", "someone/model"))
    assert [info.name for info in named.list() if info.source == "hub"] == ["someone/model"]
    with pytest.raises(ModelUnavailable):
        named.locate(str(tmp_path))
    path = gguf_files.write(tmp_path / "model.gguf", "llama")
    assert open_registry((str(path),)).locate(str(path)).folder == path


@pytest.mark.usefixtures("no_network")
def test_a_server_is_told_at_its_start_which_of_its_models_is_none(tmp_path: Path):
    file, folder = str(tmp_path / "missing.gguf"), str(tmp_path / "missing")
    names = ("gpt2-stories", "someone/model", file, "here/missing.gguf", folder, "~/missing", "gpt")
    registry = open_registry(names)
    for name in names[:2]:
        registry.check(name)
    for name in names[2:4]:
        with pytest.raises(ModelUnavailable, match=f"no GGUF file '.*{Path(name).name}'"):
            registry.check(name)
    for name in names[4:6]:
        with pytest.raises(ModelUnavailable, match=r"no folder '.*missing'\. Check the path"):
            registry.check(name)
    with pytest.raises(ModelUnavailable, match="no model 'gpt'"):
        open_registry(("gpt2-stories", "gpt")).check("gpt")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"do_sample": True, "temperature": 0.7, "top_k": 20}, {"temperature": 0.7, "top_k": 20}),
        ({"top_k": 64, "top_p": 0.95}, {"top_k": 64, "top_p": 0.95}),
        ({"do_sample": False, "temperature": 0.7}, {}),
        ({"temperature": "hot"}, {}),
        ({"eos_token_id": 0}, {}),
    ],
)
def test_a_model_is_sampled_as_its_generation_config_says(
    tmp_path: Path, said: dict[str, Any], expected: dict[str, Any]
) -> None:
    folder = checkpoints.gpt2(tmp_path)
    (folder / "generation_config.json").write_text(json.dumps(said))
    assert folder_info(str(folder)).sampling == expected


def test_the_packaged_model_is_sampled_as_its_card_says() -> None:
    assert Registry().locate(PACKAGED_MODEL).info.sampling == {"temperature": 0.2, "top_p": 0.9}


def test_a_model_has_the_same_defaults_however_it_is_named(tmp_path: Path) -> None:
    [known] = (info for info in Registry().list() if info.name == PACKAGED_MODEL)
    assert known.sampling
    name = f"{PACKAGED_MODEL.rpartition('/')[2]}.Q8_0.gguf"
    for called in (name, "another.gguf"):
        path = gguf_files.write(tmp_path / called, "llama")
        sampling = folder_info(str(path)).sampling
        assert sampling == (known.sampling if called == name else {})
