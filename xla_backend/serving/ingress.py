"""`Ingress`: the API over HTTP, in front of the replicas.

Knows which models are offered, and paths outside the API. There is no queue here: Ray Serve and the
engines have their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ray import serve
from starlette.routing import Mount, Router

from xla_backend.checkpoints.models import folder_info, open_registry
from xla_backend.interface.errors import ModelUnavailable
from xla_backend.interface.options import DEFAULT_MAX_SECONDS, MAX_NEW_TOKENS
from xla_backend.openai_api.addresses import nothing_at
from xla_backend.openai_api.app import create_api
from xla_backend.openai_api.body_size import BodySize
from xla_backend.openai_api.errors import error_response
from xla_backend.openai_api.host import Answering, Host
from xla_backend.openai_api.outside import PATH, Outside
from xla_backend.serving.replicas import Replicas

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle
    from starlette.types import ASGIApp, Receive, Scope, Send

    from xla_backend.interface.options import GenerationOptions
    from xla_backend.interface.prompt import Prompt
    from xla_backend.interface.results import ModelInfo


class ServiceHost(Host):
    """The service as the server that offers the API."""

    new_tokens = MAX_NEW_TOKENS
    audio_s = DEFAULT_MAX_SECONDS

    def __init__(self, backend: Answering, models: Sequence[str], weights: str) -> None:
        self.backend = backend
        listed = {info.name: info for info in open_registry(models, weights=weights).list()}
        names = models or tuple(listed)
        # From the files on this machine, or the names; which replica has loaded them changes.
        self._models = {name: listed.get(name) or folder_info(name) for name in names}

    def models(self) -> list[ModelInfo]:
        return list(self._models.values())

    def check(
        self, model: str, prompt: Prompt = "", options: GenerationOptions | None = None
    ) -> None:
        if model not in self._models:
            raise ModelUnavailable(f"There is no model {model[:80]!r} here; /v1/models lists them.")


def create_app(host: Host) -> ASGIApp:
    """The API, and an error at every other address."""
    api = create_api(host)

    async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
        await error_response(404, nothing_at(scope["path"], api))(scope, receive, send)

    return Outside(BodySize(Router([Mount(PATH, api)], default=nothing)))


@serve.ingress()
class Ingress:
    """The deployment that gets HTTP requests from Ray Serve's proxies."""

    def __init__(self, handle: DeploymentHandle, models: tuple[str, ...], weights: str) -> None:
        self._host = ServiceHost(Replicas(handle), models, weights)

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """The app; called once by Ray Serve."""
        return create_app(self._host)
