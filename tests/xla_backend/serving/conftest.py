"""One real Ray on this machine for all tests of the service, and a small model for it.

Knows how Ray is started, scaled and ended without a trace. Must not know what the tests check.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.playground.served import free_port
from tests.waiting import wait_until
from xla_backend.serving.settings import ServeSettings

if TYPE_CHECKING:
    from xla_backend.serving.cluster_backend import ClusterBackend

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "RAY_USAGE_STATS_ENABLED": "0",
    # Queues are told every ten seconds otherwise, and scaling is tested in less.
    "RAY_SERVE_HANDLE_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "0.5",
    "RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "0.5",
}


@dataclass
class Cluster:
    """A running service.

    Attributes:
        backend: connected as the page is.
        url: of the ingress.
        address: of Ray itself.
        model: the folder of a tiny random model.
        slow: of one that takes a good part of a second for 1000 tokens.
    """

    backend: ClusterBackend | None
    url: str
    address: str
    model: str
    slow: str
    settings: ServeSettings

    def scale(self, **changes: Any) -> None:
        """Deploys with other settings; replicas stay where they can."""
        from ray import serve

        from xla_backend.serve_app import build

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the queues are counted more often here than usual
            application = build(replace(self.settings, **changes))
        serve.run(application)

    def wait_for(self, replicas: int) -> None:
        """Waits until there are so many replicas, and all are ready."""
        wait_until(
            lambda: [one.status.state for one in self.backend.replicas()] == ["ready"] * replicas
        )


@pytest.fixture(scope="session")
def tiny_gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a GPT-2 that compiles as fast as one can: a single narrow layer."""
    from tests.checkpoints import gpt2

    folder = tmp_path_factory.mktemp("models") / "tiny-gpt2"
    return gpt2(folder, n_positions=1100, n_embd=32, n_layer=1, n_head=2)


@pytest.fixture(scope="module")
def cluster(
    tiny_gpt2: Path, small_gpt2: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Two replicas that share a store, in a Ray that this test run starts and ends.

    No longer than it is needed: idle it takes a fifth of a core from the tests that follow.
    """
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # a short path: Ray's sockets are in it
    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own, about its own code
        import ray
        from ray import serve

    port = free_port()
    try:
        context = ray.init(
            num_cpus=4,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=80 * 1024**2,
            namespace="serve",
            _temp_dir=folder,
        )
        serve.start(http_options={"port": port}, logging_config={"log_level": "ERROR"})
        settings = ServeSettings(
            models=(str(tiny_gpt2), str(small_gpt2), "gpt2-stories", "whisper-commands"),
            store=str(tmp_path_factory.mktemp("store")),
            min_replicas=2,
            max_replicas=2,
            target_ongoing=1.0,
            upscale_delay_s=0.5,
            downscale_delay_s=1.0,
            look_back_s=2.0,
        )
        from xla_backend.serving.cluster_backend import ClusterBackend

        address = context.address_info["gcs_address"]
        url = f"http://127.0.0.1:{port}"
        running = Cluster(None, url, address, str(tiny_gpt2), str(small_gpt2), settings)
        running.scale()
        running.backend = ClusterBackend.connect()
        running.wait_for(2)
        yield running
        running.backend.close()
    finally:
        ray.shutdown()  # ends every process that it has started
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        shutil.rmtree(folder, ignore_errors=True)
