"""`ServeSettings`: the arguments of the service on Ray Serve.

Knows names, defaults and checks.
"""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from xla_backend.checkpoints import kinds
from xla_backend.process import memory
from xla_backend.rows.scheduler import MAX_ROWS


class ServeSettings(BaseModel):
    """The arguments of `serve run`, and of `args` in a Ray Serve config file.

    A config file can also set Ray Serve's own options of each deployment, such as how soon replicas
    are added.

    Raises:
        ValidationError: an argument is unknown or invalid.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    models: tuple[str, ...] = Field(
        (), description="names with commas, the first one loaded at the start; default: all known"
    )
    store: str | None = Field(
        None, description="folder of compiled functions, preferably shared by all replicas; or off"
    )
    weights: str = Field(
        "", validate_default=True, description=f"format of weights; default: {kinds.VARIABLE}"
    )
    cores: int = Field(1, ge=1, description="cores of a replica")
    memory_limit: str = Field(
        memory.DEFAULT_LIMIT, description="memory of each engine before it is replaced"
    )
    min_replicas: int = Field(1, ge=1)
    max_replicas: int = Field(1, ge=1)
    target_ongoing: float = Field(
        4.0, gt=0, description="requests per replica that autoscaling aims at"
    )
    max_ongoing: int = Field(
        MAX_ROWS, ge=1, description="requests of a replica before others get the next"
    )

    @field_validator("models", mode="before")
    @classmethod
    def _split(cls, models: object) -> object:
        if isinstance(models, str):
            return tuple(name.strip() for name in models.split(",") if name.strip())
        return models

    @field_validator("weights")
    @classmethod
    def _known(cls, weights: str) -> str:
        return kinds.chosen(weights)

    @field_validator("memory_limit")
    @classmethod
    def _understood(cls, limit: str) -> str:
        memory.limit_from(limit, of=None)
        return limit

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max_replicas < self.min_replicas:
            raise ValueError("max_replicas must be at least min_replicas")
        return self
