"""The models that can be asked for, and where each one's files lie.

Knows names, the allow-list, the folder of bundled models, the Hub's cache and its download. Must
not know TensorFlow, weights beyond their presence, or the engine; and imports Transformers and the
Hub's client only when a model is located, so that a page can list the choices at once.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import difflib
import fnmatch
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from xla_backend.errors import ModelUnavailable
from xla_backend.results import ModelInfo
from xla_backend.transformers_import import transformers_alone
from xla_backend.weights import (
    KERAS_H5,
    MODEL_TYPES,
    SAFETENSORS,
    SAFETENSORS_INDEX,
    read_config,
    read_config_values,
    weight_files,
)

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling
    from transformers import GenerationConfig, PretrainedConfig

DEFAULT_MODEL = "gpt2-stories"
DEFAULT_SPEECH_MODEL = "whisper-commands"

BUNDLED_FOLDER = Path(__file__).resolve().parent.parent / "demo_models"

HUB_MODELS = (
    "openai-community/gpt2",
    "distilbert/distilgpt2",
    "facebook/opt-125m",
    "google-t5/t5-small",
    "google/flan-t5-small",
    "openai/whisper-tiny",
    "openai/whisper-tiny.en",
)
"""The Hub models that may be downloaded unless a `Registry` is told otherwise."""

Family = Literal["decoder-only", "encoder-decoder", "speech"]

_FAMILIES: dict[str, Family] = {
    "gpt2": "decoder-only",
    "opt": "decoder-only",
    "t5": "encoder-decoder",
    "whisper": "speech",
}

# Model type, description, and context length of what can be listed before any file is there.
_KNOWN: dict[str, tuple[str, str, int | None]] = {
    "gpt2-stories": ("gpt2", "Continues a story for children. Ships with the project.", None),
    "opt-stories": ("opt", "Continues a story for children. Ships with the project.", None),
    "t5-stories": ("t5", "Sums up or answers about a short story. Ships with the project.", None),
    "whisper-commands": ("whisper", "Writes down spoken commands. Ships with the project.", None),
    "openai-community/gpt2": ("gpt2", "GPT-2, 124M parameters: continues English text.", 1024),
    "distilbert/distilgpt2": ("gpt2", "Distilled GPT-2, 82M: continues English text.", 1024),
    "facebook/opt-125m": ("opt", "OPT, 125M parameters: continues English text.", 2048),
    "google-t5/t5-small": ("t5", "T5, 60M: translates and sums up, told so by a prefix.", None),
    "google/flan-t5-small": ("t5", "Flan-T5, 77M: follows short instructions.", None),
    "openai/whisper-tiny": ("whisper", "Whisper, 39M: writes down speech, 99 languages.", 448),
    "openai/whisper-tiny.en": ("whisper", "Whisper, 39M: writes down English speech.", 448),
}

_CONFIG_FILES = ("config.json", "generation_config.json", "preprocessor_config.json")
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "normalizer.json",
    "spiece.model",
)


@dataclass(frozen=True)
class ModelFiles:
    """A model whose files are all on this computer.

    Attributes:
        info: how it is listed, context length included.
        folder: where config, tokenizer and weights lie.
        config: its architecture and sizes.
        generation_config: its special tokens and decoding defaults.
    """

    info: ModelInfo
    folder: Path
    config: PretrainedConfig
    generation_config: GenerationConfig


@dataclass(frozen=True)
class Download:
    """How far a download is; `str()` of it says so in megabytes.

    Attributes:
        name: of the model.
        done, total: bytes.
    """

    name: str
    done: int
    total: int

    @property
    def share(self) -> float:
        """How much is here, 0 to 1."""
        return self.done / self.total if self.total else 0.0

    def __str__(self) -> str:
        return f"{self.name}: {_megabytes(self.done)} of {_megabytes(self.total)} MB"


class Registry:
    """What can be asked for by name, and how a name becomes a folder.

    Example:
        >>> Registry().locate("gpt2-stories").info.family
        'decoder-only'
    """

    def __init__(
        self,
        hub_models: Iterable[str] = HUB_MODELS,
        allow_folders: bool = True,
        bundled_folder: Path = BUNDLED_FOLDER,
    ) -> None:
        """Decides what may be loaded.

        Args:
            hub_models: the Hub ids that may be downloaded; no other one ever is.
            allow_folders: whether a name may be the path of a folder on this computer. Turn it off
                where strangers choose the name.
            bundled_folder: its sub-folders with a config.json are models under their own names.
        """
        self._hub_models = tuple(dict.fromkeys(hub_models))
        self._allow_folders = allow_folders
        self._bundled_folder = Path(bundled_folder)

    def list(self) -> list[ModelInfo]:
        """Every model that can be chosen by name: the default, other bundled ones, the Hub's."""
        bundled = self._bundled()
        names = sorted(bundled, key=lambda name: (name != DEFAULT_MODEL, name))
        return [
            *(bundled[name] for name in names if _is_complete(self._bundled_folder / name)),
            *(_hub_info(name) for name in self._hub_models),
        ]

    def locate(
        self, name: str, on_progress: Callable[[Download], None] | None = None
    ) -> ModelFiles:
        """The files of a model; a Hub model that is not in the local cache is downloaded.

        Args:
            name: a bundled name, a Hub id of the allow-list, or, where allowed, a folder.
            on_progress: told how far it is, twice a second, while something is downloaded.

        Raises:
            ModelUnavailable: the name is unknown or not allowed, the Hub is out of reach, or the
                folder is missing, broken, incomplete or of an unsupported architecture.
        """
        bundled = self._bundled()
        if not isinstance(name, str):
            raise ModelUnavailable(self._unknown(name, list(bundled)))
        if name in bundled:
            return _open(bundled[name], self._bundled_folder / name)
        if name in self._hub_models:
            folder = _cached(name) or _download(name, on_progress, alternatives=list(bundled))
            return _open(_hub_info(name), folder)
        folder = _as_folder(name) if self._allow_folders else None
        if folder is None:
            raise ModelUnavailable(self._unknown(name, list(bundled)))
        return _open(ModelInfo(name, "decoder-only", "folder", f"The folder {folder}."), folder)

    def _bundled(self) -> dict[str, ModelInfo]:
        """The bundled models by name; they can appear and change while this runs."""
        found = {}
        for path in sorted(self._bundled_folder.glob("*/config.json")):
            name = path.parent.name
            try:
                values = read_config_values(path.parent)
            except ModelUnavailable:
                continue
            model_type = values.get("model_type")
            if model_type not in MODEL_TYPES:
                continue
            if name in _KNOWN:
                description = _KNOWN[name][1]
            else:
                description = _first_line_of_card(path.parent) or "Ships with the project."
            found[name] = ModelInfo(name, _FAMILIES[model_type], "bundled", description)
            found[name] = _with_sizes(found[name], path.parent, values)
        return found

    def _unknown(self, name: object, bundled: list[str]) -> str:
        choices = [*bundled, *self._hub_models]
        shown = _shown(name)
        message = f"there is no model {shown}."
        if isinstance(name, str) and _looks_like_hub_id(name):
            message = (
                f"{shown} is neither a folder here nor on the list of Hub models that may be "
                "downloaded."
                if self._allow_folders
                else f"{shown} is not on the list of models that may be loaded."
            )
        # The last part alone is what people remember: "gpt2" for "openai-community/gpt2".
        by_short_name = {choice.rsplit("/", 1)[-1].lower(): choice for choice in choices}
        by_short_name.update({choice.lower(): choice for choice in choices})
        wanted = name.strip().lower()[:100] if isinstance(name, str) else ""
        close = difflib.get_close_matches(wanted, by_short_name, n=1, cutoff=0.6)
        if close:
            message += f" Did you mean {by_short_name[close[0]]}?"
        message += f" Models to choose from: {', '.join(choices) or 'none'}"
        return message + ("; or give the path of a folder." if self._allow_folders else ".")


# What bounds prompt and text together. T5's positions are relative, and bound nothing.
_CONTEXT_LENGTH_NAMES = {
    "gpt2": "n_positions",
    "opt": "max_position_embeddings",
    "whisper": "max_target_positions",
}


def folder_info(name: str) -> ModelInfo:
    """How a folder is listed, without importing or loading anything.

    A folder that cannot be used is listed as text: what is wrong with it is told when it is used.
    """
    info = ModelInfo(name, "decoder-only", "folder", f"The folder {name}.")
    try:
        values = read_config_values(Path(name))
    except ModelUnavailable:
        return info
    if (model_type := values.get("model_type")) not in MODEL_TYPES:
        return info
    info = dataclasses.replace(info, family=_FAMILIES[model_type])
    return _with_sizes(info, Path(name), values)


def _with_sizes(info: ModelInfo, folder: Path, config: dict[str, Any]) -> ModelInfo:
    """The description with what the files say beyond their architecture."""
    context_length = config.get(_CONTEXT_LENGTH_NAMES.get(config["model_type"], ""))
    return dataclasses.replace(
        info,
        context_length=context_length if isinstance(context_length, int) else None,
        is_multilingual=_is_multilingual(folder),
        model_type=config["model_type"],
    )


def _hub_info(name: str) -> ModelInfo:
    if name in _KNOWN:
        model_type, description, context_length = _KNOWN[name]
    else:
        # Until the files are here, the name is all there is to judge by.
        model_type = next((kind for kind in _FAMILIES if kind in name.lower()), "")
        description, context_length = "From the Hugging Face Hub.", None
    return ModelInfo(
        name=name,
        family=_FAMILIES.get(model_type, "decoder-only"),
        source="hub",
        description=description,
        context_length=context_length,
        is_multilingual=model_type == "whisper" and not name.endswith(".en"),
        model_type=model_type,
    )


def _is_multilingual(folder: Path) -> bool:
    """Whether the generation config tells several languages apart, as multilingual Whisper's do."""
    try:
        values = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
        return len(values.get("lang_to_id") or ()) > 1
    except (OSError, ValueError, TypeError, AttributeError):
        return False


def _open(info: ModelInfo, folder: Path) -> ModelFiles:
    """Checks a folder as far as can be done without reading weights, and reads its configs."""
    config = read_config(folder)
    missing = _missing(folder, config.model_type)
    if missing:
        raise ModelUnavailable(f"{folder} is incomplete: {missing}.")
    weight_files(folder)
    context_name = _CONTEXT_LENGTH_NAMES.get(config.model_type)
    info = dataclasses.replace(
        info,
        family=_FAMILIES[config.model_type],
        context_length=getattr(config, context_name) if context_name else None,
        is_multilingual=_is_multilingual(folder),
        model_type=config.model_type,
    )
    return ModelFiles(info, folder, config, _read_generation_config(folder, config))


def _missing(folder: Path, model_type: Any) -> str | None:
    """What a folder lacks besides weights, in words; None when it lacks nothing."""
    has_tokenizer = (
        (folder / "tokenizer.json").is_file()
        or ((folder / "vocab.json").is_file() and (folder / "merges.txt").is_file())
        or (folder / "spiece.model").is_file()
    )
    if not has_tokenizer:
        return "it has no tokenizer (tokenizer.json, or vocab.json with merges.txt)"
    if model_type == "whisper" and not (folder / "preprocessor_config.json").is_file():
        return "a speech model needs its preprocessor_config.json"
    return None


def _is_complete(folder: Path) -> bool:
    """Whether all that is needed is there; nothing but config.json is opened."""
    try:
        model_type = read_config_values(folder).get("model_type")
        weight_files(folder)
    except ModelUnavailable:
        return False
    return _missing(folder, model_type) is None


def _read_generation_config(folder: Path, config: PretrainedConfig) -> GenerationConfig:
    with transformers_alone() as transformers:
        kind = transformers.GenerationConfig
    path = folder / "generation_config.json"
    if not path.is_file():
        return kind.from_model_config(config)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return kind.from_dict(values)
    except Exception as error:  # Whatever a made-up value provokes in the config's own checks.
        raise ModelUnavailable(
            f"{path} is damaged: {error}. Download or copy the file again, or delete it."
        ) from error


def _first_line_of_card(folder: Path) -> str | None:
    """The first plain sentence of a model card, after its front matter."""
    try:
        text = (folder / "README.md").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    if text.startswith("---"):
        text = text[3:].partition("\n---")[2]
    lines = (line.strip() for line in text.splitlines())
    line = next((line for line in lines if line and line[0] not in "#!<|[-`*"), None)
    return line[:200] if line else None


# Names


def _shown(name: object) -> str:
    """A name for a message: short, and printable whatever was sent."""
    try:
        text = repr(name)
    except ValueError:  # Python refuses to print whole numbers of thousands of digits.
        text = "of that number"
    return text if len(text) <= 80 else text[:77] + "..."


def _looks_like_hub_id(name: str) -> bool:
    owner, slash, model = name.partition("/")
    parts = (owner, model)
    return (
        bool(slash)
        and len(name) <= 96
        and all(
            part.isascii() and part.replace("-", "").replace("_", "").replace(".", "").isalnum()
            for part in parts
        )
    )


def _as_folder(name: object) -> Path | None:
    """The folder that a name stands for, or None when it does not look like a path.

    Raises:
        ModelUnavailable: it looks like a path, and there is no such folder.
    """
    if not isinstance(name, str) or not name.strip():
        return None
    try:
        folder = Path(name).expanduser()
        if folder.is_dir():
            return folder
        is_file = folder.is_file()
    # NUL bytes, lone surrogates, unknown users and names too long for the system.
    except (OSError, ValueError, RuntimeError):
        return None
    if is_file:
        raise ModelUnavailable(f"{folder} is a file; give the folder that holds it.")
    if name.startswith(("/", "./", "../", "~")):
        raise ModelUnavailable(
            f"there is no folder {_shown(name)}. Check the path, or choose a model by its name."
        )
    return None


# The Hub


def _cached(name: str) -> Path | None:
    """The folder of a Hub model in the local cache, when it is complete; asks no network."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name, local_files_only=True))
    except (LocalEntryNotFoundError, OSError, ValueError):
        return None
    return folder if _is_complete(folder) else None


def _download(
    name: str, on_progress: Callable[[Download], None] | None, alternatives: list[str]
) -> Path:
    """Fetches the files that are needed, in one weight format, into the Hub's own cache.

    Raises:
        ModelUnavailable: the Hub is out of reach, refuses, or has no weights that can be read.
    """
    import requests
    from huggingface_hub import HfApi
    from huggingface_hub.errors import (
        HfHubHTTPError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
    )

    try:
        repository = HfApi().model_info(name, files_metadata=True, timeout=10)
        files = {file.rfilename: file for file in repository.siblings or ()}
        wanted = [file for file in (*_CONFIG_FILES, *_TOKENIZER_FILES) if file in files]
        wanted += _weights_of_repository(name, list(files))
        return _fetch(name, [files[file] for file in wanted], on_progress)
    except (
        requests.ConnectionError,
        requests.Timeout,
        OfflineModeIsEnabled,
        LocalEntryNotFoundError,
    ) as error:
        why = (
            "this computer is set to work offline (HF_HUB_OFFLINE)"
            if isinstance(error, OfflineModeIsEnabled)
            else "the Hugging Face Hub cannot be reached"
        )
        offer = (
            f"choose a model that is here: {', '.join(alternatives)}"
            if alternatives
            else f"fetch it elsewhere with `hf download {name}` and give its folder"
        )
        raise ModelUnavailable(
            f"{name} is not on this computer, and {why}. Check the connection and try again, or "
            f"{offer}."
        ) from error
    except HfHubHTTPError as error:
        code = getattr(error.response, "status_code", None)
        why = {
            401: "it does not exist, or it is private and needs `hf auth login`",
            403: "it is gated: accept its terms on huggingface.co and use `hf auth login`",
            404: "it does not exist",
            429: "too many requests were sent; wait a few minutes",
        }.get(code, f"it answered with status {code}; try again later")
        raise ModelUnavailable(
            f"{name} cannot be downloaded, the Hugging Face Hub says: {why}."
        ) from error
    except (requests.RequestException, RuntimeError) as error:
        raise ModelUnavailable(_broke_off(name)) from error
    except OSError as error:
        if error.errno is None:  # The client's way to say that a file came too short.
            raise ModelUnavailable(_broke_off(name)) from error
        raise ModelUnavailable(
            f"{name} cannot be stored in the local cache: {error.strerror or error}. Make room "
            "or check that the cache folder can be written to (HF_HOME moves it)."
        ) from error


def _broke_off(name: str) -> str:
    return (
        f"The download of {name} broke off. What is here is kept: try again, and it goes on from "
        "there."
    )


def _weights_of_repository(name: str, files: list[str]) -> list[str]:
    """The weight files to fetch: of all the formats that a repository has, one."""
    if SAFETENSORS in files:
        return [SAFETENSORS]
    if SAFETENSORS_INDEX in files:
        return [SAFETENSORS_INDEX, *fnmatch.filter(files, "model-*-of-*.safetensors")]
    if KERAS_H5 in files:
        return [KERAS_H5]
    raise ModelUnavailable(
        f"{name} has no weights in a format that is read here ({SAFETENSORS} or {KERAS_H5}). "
        "Pickles (*.bin) are never opened, because they can run code."
    )


def _fetch(
    name: str,
    files: list[RepoSibling],
    on_progress: Callable[[Download], None] | None,
) -> Path:
    """Downloads files in a thread, and tells the caller's thread how far it is."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import repo_folder_name

    blobs = Path(HF_HUB_CACHE) / repo_folder_name(repo_id=name, repo_type="model") / "blobs"
    # Files lie there under the names that the Hub knows their contents by.
    contents = {file.lfs.sha256 if file.lfs else file.blob_id for file in files}
    total = sum(file.size or 0 for file in files)
    with (
        _quiet_progress_bars(),
        concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="download") as pool,
    ):
        # The branch, not the commit: only a branch leaves the note by which the cache is found
        # again without a network.
        download = pool.submit(
            snapshot_download, name, allow_patterns=[file.rfilename for file in files]
        )
        while True:
            if on_progress is not None:
                # The Hub's client reports bytes only to a terminal; the files grow in its cache.
                done = sum(_bytes_of(blobs, content) for content in contents)
                on_progress(Download(name, min(done, total), total))
            if concurrent.futures.wait([download], timeout=0.5).done:
                return Path(download.result())


def _bytes_of(folder: Path, content: str | None) -> int:
    """How much of a file the Hub's cache holds."""
    # The name while incomplete comes first: it may be renamed between the two looks.
    for path in (folder / f"{content}.incomplete", folder / f"{content}"):
        try:
            status = path.stat()
        except OSError:
            continue
        # A file may be written from several ends at once; what is not written takes no blocks.
        written = getattr(status, "st_blocks", math.inf) * 512
        return int(min(status.st_size, written)) if path.suffix == ".incomplete" else status.st_size
    return 0


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f}" if size >= 10e6 else f"{size / 1e6:.1f}"


class _quiet_progress_bars:
    """Keeps the Hub client's own bars off the terminal while one download runs."""

    def __enter__(self) -> None:
        from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars

        self._were_on = not are_progress_bars_disabled()
        if self._were_on:
            disable_progress_bars()

    def __exit__(self, *error: object) -> None:
        from huggingface_hub.utils import enable_progress_bars

        if self._were_on:
            enable_progress_bars()
