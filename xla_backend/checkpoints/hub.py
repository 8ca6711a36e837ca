"""The Hugging Face Hub: a repository's files, its download, and the local cache.

Knows the Hub's client, its cache and its errors. A name is `OWNER/REPO`, or `OWNER/REPO:Q8_0` for a
repository's GGUF file with that quantization. Imports the client only when needed, so that listing
models is fast.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from xla_backend.checkpoints.formats import gguf_file
from xla_backend.checkpoints.weights import KERAS_H5, SAFETENSORS, SAFETENSORS_INDEX
from xla_backend.interface.errors import ModelUnavailable

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling

CONFIG_FILES = ("config.json", "generation_config.json", "preprocessor_config.json")
TOKENIZER_FILES = tuple(
    "tokenizer.json tokenizer_config.json chat_template.jinja special_tokens_map.json "
    "added_tokens.json vocab.json merges.txt normalizer.json spiece.model".split()
)
_ID = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+")
_QUANTIZATION = re.compile(r"[A-Za-z0-9_]+")


@dataclass(frozen=True)
class Download:
    """Progress of a download; `str()` gives it in megabytes.

    Attributes:
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


@dataclass(frozen=True)
class Repository:
    """A repository of the Hub, before anything is downloaded.

    Attributes:
        commit: its newest. files: the needed files, with their sizes.
        license: from its card; empty if there is none.
        gguf_architecture: llama.cpp's name of the architecture of its GGUF files; empty if the Hub
            does not say.
    """

    name: str
    commit: str | None
    files: tuple[RepoSibling, ...]
    license: str
    gguf_architecture: str

    @property
    def download_bytes(self) -> int:
        return sum(file.size or 0 for file in self.files)


def is_name(name: str) -> bool:
    """Whether a repository of the Hub, or a GGUF file of one, could have this name."""
    repository, colon, quantization = name.partition(":")
    return (
        len(name) <= 96
        and _ID.fullmatch(repository) is not None
        and (not colon or _QUANTIZATION.fullmatch(quantization) is not None)
    )


def cached(name: str) -> Path | None:
    """The folder or GGUF file of a model in the local cache, complete or not; uses no network."""
    from huggingface_hub import constants

    repository, _, quantization = name.partition(":")
    place = Path(constants.HF_HUB_CACHE) / "--".join(["models", *repository.split("/")])
    try:
        folder = place / "snapshots" / (place / "refs" / "main").read_text().strip()
        if not quantization:
            return folder if folder.is_dir() else None
        return folder / _ggufs_of(name, [path.name for path in folder.iterdir()])[0]
    except (OSError, ValueError, ModelUnavailable):
        return None


def find_repository(name: str, alternatives: Iterable[str] = ()) -> Repository:
    """What the Hub says about a model; downloads nothing.

    Args:
        alternatives: models to suggest if the Hub cannot be reached.
    """
    from huggingface_hub import HfApi

    repository, _, quantization = name.partition(":")
    with _readable_errors(name, alternatives):
        found = HfApi().model_info(repository, files_metadata=True, timeout=10)
    files = {file.rfilename: file for file in found.siblings or ()}
    if quantization:
        files_to_load = _ggufs_of(name, list(files))
    else:
        files_to_load = [file for file in (*CONFIG_FILES, *TOKENIZER_FILES) if file in files]
        files_to_load += _weights_of_repository(name, list(files))
    card = found.card_data
    license_name = (card.get("license_name") or card.get("license") or "") if card else ""
    return Repository(
        name,
        found.sha,
        tuple(files[file] for file in files_to_load),
        license_name if isinstance(license_name, str) else ", ".join(map(str, license_name)),
        str((found.gguf or {}).get("architecture") or ""),
    )


def fetch_config(name: str) -> Path:
    """Downloads config.json alone; returns its folder."""
    from huggingface_hub import hf_hub_download

    with _readable_errors(name):
        return Path(hf_hub_download(name, "config.json", tqdm_class=_silent_bar())).parent


def download(
    name: str,
    on_progress: Callable[[Download], None] | None = None,
    alternatives: Iterable[str] = (),
) -> Path:
    """Downloads the needed files, in one weight format, into the Hub's own cache.

    Args:
        on_progress: called twice a second.
        alternatives: as for `find_repository`.

    Returns:
        The folder, or the GGUF file.
    """
    repository = find_repository(name, alternatives)
    with _readable_errors(name, alternatives):
        folder = _fetch(repository, on_progress)
    is_file = ":" in name
    return folder / repository.files[0].rfilename if is_file else folder


@contextlib.contextmanager
def _readable_errors(name: str, alternatives: Iterable[str] = ()) -> Iterator[None]:
    """Turns the errors of the Hub's client into sentences that say what to do."""
    import httpx2
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
    )

    repository = name.partition(":")[0]
    try:
        yield
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
            else f"fetch it elsewhere with `hf download {repository}` and give its folder"
        )
        raise ModelUnavailable(
            f"{name} is not on this computer, and {why}. Check the connection and try again, or "
            f"{offer}."
        ) from error
    except GatedRepoError as error:
        raise ModelUnavailable(
            f"{name} is gated: the Hugging Face Hub asks you to accept its license first. Accept "
            f"it at https://huggingface.co/{repository}, make a token that may read at "
            "https://huggingface.co/settings/tokens, and give it in the variable HF_TOKEN or with "
            "`hf auth login`; then start again."
        ) from error
    except HfHubHTTPError as error:
        code: int | None = getattr(error.response, "status_code", None)
        reasons: dict[int | None, str] = {
            401: "it does not exist, or it is private and needs `hf auth login`",
            403: "this computer's token may not read it; log in with another (`hf auth login`)",
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
        if error.errno is None:  # The client's error for a file that is too short.
            raise ModelUnavailable(_broke_off(name)) from error
        raise ModelUnavailable(
            f"{name} cannot be stored in the local cache: {error.strerror or error}. Make room "
            "or check that the cache folder can be written to (HF_HOME moves it)."
        ) from error


def _broke_off(name: str) -> str:
    return f"The download of {name} broke off. Try again: finished files are not downloaded again."


def _ggufs_of(name: str, files: list[str]) -> list[str]:
    """The GGUF file of a quantization, which is at the end of its name, or its pieces."""
    quantization = name.partition(":")[2].lower()
    ggufs = [file for file in files if file.lower().endswith(gguf_file.SUFFIX)]
    # Not the vision part of a model, which llama.cpp keeps in a separate file.
    ggufs = [file for file in ggufs if "mmproj" not in file.lower()]
    ends = tuple(f"{mark}{quantization}{gguf_file.SUFFIX}" for mark in "-._/")
    found = [
        pieces
        for pieces in {tuple(map(str, gguf_file.pieces(Path(file)))) for file in ggufs}
        if f"/{re.sub('-00001-of-[0-9]{5}', '', pieces[0].lower())}".endswith(ends)
    ]
    if len(found) == 1:
        return [*found[0]]
    problem = "no GGUF file" if not found else f"{len(found)} GGUF files"
    here = ", ".join(sorted(ggufs)[:12])
    raise ModelUnavailable(
        f"{name} cannot be loaded: the repository has {problem} of that quantization. "
        + (
            f"Its GGUF files are {here}."
            if here
            else "It has no GGUF files; leave out the part after the colon."
        )
    )


def _weights_of_repository(name: str, files: list[str]) -> list[str]:
    """The weight files to download: one of the repository's formats."""
    if SAFETENSORS in files:
        return [SAFETENSORS]
    if SAFETENSORS_INDEX in files:
        return [SAFETENSORS_INDEX, *fnmatch.filter(files, "model-*-of-*.safetensors")]
    if KERAS_H5 in files:
        return [KERAS_H5]
    if any(file.lower().endswith(gguf_file.SUFFIX) for file in files):
        raise ModelUnavailable(
            f"{name} has GGUF files only: choose one by its quantization, {name}:Q8_0 for example."
        )
    raise ModelUnavailable(
        f"{name} has no weights in a supported format ({SAFETENSORS} or {KERAS_H5}). "
        "Pickles (*.bin) are never opened, because they can run code."
    )


def _fetch(repository: Repository, on_progress: Callable[[Download], None] | None) -> Path:
    """Downloads files in another thread; reports progress in the caller's thread."""
    from huggingface_hub import snapshot_download, try_to_load_from_cache

    repo_id, files = repository.name.partition(":")[0], repository.files
    total, bar = repository.download_bytes, _silent_bar()
    cached = (try_to_load_from_cache(repo_id, x.rfilename, None, repository.commit) for x in files)
    before = sum(x.size or 0 for x, path in zip(files, cached, strict=True) if path is not None)
    with concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="download") as pool:
        # By branch, not by commit, so that the client also finds the files without a network.
        work = pool.submit(
            snapshot_download,
            repo_id,
            allow_patterns=[file.rfilename for file in files],
            tqdm_class=bar,
        )
        while True:
            if on_progress is not None:
                loaded = max((each.loaded for each in bar.of_bytes), default=0)
                on_progress(Download(repository.name, min(int(before + loaded), total), total))
            if concurrent.futures.wait([work], timeout=0.5).done:
                return Path(work.result())


def _silent_bar() -> Any:
    """A class of progress bars for the Hub's client that are not shown.

    `of_bytes` has those for bytes: what the client receives, and what it writes.
    """
    from huggingface_hub.utils import tqdm

    class Bar(tqdm):
        of_bytes: ClassVar[list[Bar]] = []

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options | {"disable": True})
            self.loaded = 0.0
            if options.get("unit") == "B":
                self.of_bytes.append(self)

        def update(self, n: float | None = 1) -> None:
            self.loaded += n or 0

    return Bar


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f}" if size >= 10e6 else f"{size / 1e6:.1f}"
