"""The Ray Serve application: `serve run xla_backend.serve_app:app`.

Knows the deployments and their Ray Serve settings, which a Serve config file can override. Needs
requirements-ray.txt.
"""

# No postponed annotations: Ray Serve checks the arguments with the class in the annotation.

from ray import serve
from ray.serve import Application

from xla_backend.serving.ingress import Ingress
from xla_backend.serving.replica import Replica
from xla_backend.serving.settings import ServeSettings

AT_ONCE = 200
"""Requests of one ingress at once."""


def app(settings: ServeSettings) -> Application:
    """The API in front, engines behind."""
    engines = serve.deployment(
        name="Engines",
        autoscaling_config={
            "min_replicas": settings.min_replicas,
            "max_replicas": settings.max_replicas,
            "target_ongoing_requests": settings.target_ongoing,
        },
        max_ongoing_requests=settings.max_ongoing,
        request_router_config={"request_router_class": "xla_backend.serving.router.SessionRouter"},
        ray_actor_options={"num_cpus": settings.cores},
        health_check_period_s=5,
        logging_config={"enable_access_log": False},  # the ingress has logged the request
    )(Replica).bind(
        settings.models, settings.store, settings.weights, settings.cores, settings.memory_limit
    )
    return serve.deployment(
        name="Ingress", max_ongoing_requests=AT_ONCE, ray_actor_options={"num_cpus": 0}
    )(Ingress).bind(engines, settings.models, settings.weights)
