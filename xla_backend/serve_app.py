"""The Ray Serve application: `serve run xla_backend.serve_app:app`.

Knows the deployments and their Ray Serve settings. Must not know what they do. Needs
requirements-ray.txt. `serving.settings` reads the environment; a Serve config file can override the
settings of each deployment.
"""

from __future__ import annotations

from ray import serve
from ray.serve import Application
from ray.serve.config import RequestRouterConfig

from xla_backend.serving.board import Board
from xla_backend.serving.cluster_backend import BOARD, ENGINES
from xla_backend.serving.ingress import MAX_WAITING, Ingress
from xla_backend.serving.key_router import KeyRouter
from xla_backend.serving.replica import Engines
from xla_backend.serving.settings import ServeSettings

QUIET = {"enable_access_log": False}
"""The ingress logs each request; those that it causes behind it say nothing new."""


def build(settings: ServeSettings) -> Application:
    """The application: HTTP in front, engines behind, and a board where these tell their state."""
    board = serve.deployment(
        name=BOARD,
        # A reader waits for news: one request for each client, nearly always.
        max_ongoing_requests=1000,
        ray_actor_options={"num_cpus": 0},
        logging_config=QUIET,
    )(Board).bind()
    engines = serve.deployment(
        name=ENGINES,
        autoscaling_config=settings.autoscaling(),
        max_ongoing_requests=settings.max_ongoing,
        request_router_config=RequestRouterConfig(
            request_router_class=KeyRouter,  # type: ignore[arg-type]  # Ray types kwargs as **dict
        ),
        ray_actor_options={"num_cpus": settings.cores},
        health_check_period_s=5,
        logging_config=QUIET,
    )(Engines).bind(
        settings.models,
        settings.store,
        settings.cores,
        settings.memory_limit,
        settings.weights,
        board,
    )
    return serve.deployment(
        name="Ingress",
        max_ongoing_requests=MAX_WAITING,
        ray_actor_options={"num_cpus": 0},
    )(Ingress).bind(settings.models, engines, board)


app = build(ServeSettings.from_environment())
