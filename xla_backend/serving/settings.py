"""`ServeSettings`: what the environment says about the service on Ray Serve.

Knows variables, their defaults and their checks. Must not import Ray: a program without Ray can
say too what is wrong with a variable.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from xla_backend.checkpoints.added_models import AddedModels
from xla_backend.checkpoints.models import HUB_MODELS, Registry
from xla_backend.interface.errors import InvalidRequest
from xla_backend.process.memory import DEFAULT_LIMIT, limit_from
from xla_backend.products import kinds

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class ServeSettings:
    """How many engines there are, and what they may do. `from_environment` documents the variables.

    Attributes:
        models: names that requests may use, the first one loaded at the start; empty for all that
            are known.
        store: folder of compiled functions on each replica's machine, or one that they share; None
            for the default one, "off" for none.
        min_replicas, max_replicas: bounds of autoscaling.
        target_ongoing: requests a replica, running and waiting, that autoscaling aims at.
        max_ongoing: requests that a replica takes at once. They wait inside its engine, where those
            of one key can run together; more wait at the sender.
        upscale_delay_s, downscale_delay_s: how long there must be too few or too many replicas
            before their number changes.
        look_back_s: the number of requests is a mean over so many seconds. Ray Serve counts every
            ten seconds, unless its own variables say otherwise.
        cores: cores that one replica reserves, and threads that it computes with.
        memory_limit: what each engine may hold before it is replaced, as `memory.limit_from` takes
            it; where several replicas share a machine, they share its memory.
        weights: what weights are kept in; see `products.kinds`.
    """

    models: tuple[str, ...] = ()
    store: str | None = None
    min_replicas: int = 1
    max_replicas: int = 1
    target_ongoing: float = 4.0
    max_ongoing: int = 16
    upscale_delay_s: float = 30.0
    downscale_delay_s: float = 600.0
    look_back_s: float = 30.0
    cores: int = 1
    memory_limit: str = DEFAULT_LIMIT
    weights: str = kinds.AUTO

    def __post_init__(self) -> None:
        if self.max_replicas < self.min_replicas:
            raise InvalidRequest(
                f"XLA_BACKEND_MAX_REPLICAS ({self.max_replicas}) must be at least "
                f"XLA_BACKEND_MIN_REPLICAS ({self.min_replicas})."
            )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> ServeSettings:
        """Reads XLA_BACKEND_MODELS (names with commas), _STORE, _MIN_REPLICAS, _MAX_REPLICAS,
        _TARGET_ONGOING, _MAX_ONGOING, _UPSCALE_DELAY_S, _DOWNSCALE_DELAY_S, _LOOK_BACK_S,
        _CORES, _MEMORY_LIMIT and _WEIGHTS.

        Raises:
            InvalidRequest: a variable is not what it should be.
        """

        def number(name: str, default: Number, least: Number) -> Number:
            text = environment.get(f"XLA_BACKEND_{name}") or str(default)
            try:
                value = type(default)(text)
            except ValueError:
                value = None
            if value is None or not least <= value < float("inf"):
                kind = "whole number" if isinstance(default, int) else "number"
                raise InvalidRequest(
                    f"XLA_BACKEND_{name} must be a {kind} of at least {least}, not {text!r}."
                )
            return value

        memory_limit = environment.get("XLA_BACKEND_MEMORY_LIMIT") or cls.memory_limit
        try:
            limit_from(memory_limit, of=None)
        except ValueError as error:
            raise InvalidRequest(f"XLA_BACKEND_MEMORY_LIMIT: {error}") from error
        names = environment.get("XLA_BACKEND_MODELS", "").split(",")
        min_replicas = number("MIN_REPLICAS", cls.min_replicas, 1)
        return cls(
            models=tuple(name.strip() for name in names if name.strip()),
            store=environment.get("XLA_BACKEND_STORE") or None,
            min_replicas=min_replicas,
            max_replicas=number("MAX_REPLICAS", max(cls.max_replicas, min_replicas), 1),
            target_ongoing=number("TARGET_ONGOING", cls.target_ongoing, 0.1),
            max_ongoing=number("MAX_ONGOING", cls.max_ongoing, 1),
            upscale_delay_s=number("UPSCALE_DELAY_S", cls.upscale_delay_s, 0.0),
            downscale_delay_s=number("DOWNSCALE_DELAY_S", cls.downscale_delay_s, 0.0),
            look_back_s=number("LOOK_BACK_S", cls.look_back_s, 1.0),
            cores=number("CORES", cls.cores, 1),
            memory_limit=memory_limit,
            weights=kinds.chosen(environment.get(kinds.VARIABLE) or kinds.AUTO),
        )

    def autoscaling(self) -> dict[str, Any]:
        """Ray Serve's `autoscaling_config`."""
        return {
            "min_replicas": self.min_replicas,
            "max_replicas": self.max_replicas,
            "target_ongoing_requests": self.target_ongoing,
            "upscale_delay_s": self.upscale_delay_s,
            "downscale_delay_s": self.downscale_delay_s,
            "look_back_period_s": self.look_back_s,
        }


def first_model(models: Sequence[str]) -> str:
    """The model of a service that offers these, where a request names none."""
    return models[0] if models else Registry().list()[0].name


def open_registry(
    models: tuple[str, ...], added: AddedModels | None = None, weights: str = ""
) -> Registry:
    """The registry of a service that offers these models, or all that are known if there are none.

    Bundled names are always in it; Hub ids and folders only if they are named, or were added.
    """
    folders = [name for name in models if Path(name).exists()]  # or GGUF files
    hub_models = [
        name for name in models if ("/" in name and name not in folders) or name in HUB_MODELS
    ]
    return Registry(
        hub_models if models else HUB_MODELS,
        allow_folders=bool(folders),
        added=added,
        weights=weights,
    )
