"""Entry point: flags, then the engine's process, then the page.

Knows the order in which things start. Heavy imports happen inside functions, Gradio's only after
the engine's process has been started: TensorFlow loads there while Gradio loads here.
"""

from __future__ import annotations

import argparse
import errno
import os
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from playground.flags import flags_from
from xla_backend import BackendError
from xla_backend.checkpoints.architectures.positions import CONTEXT_VARIABLE
from xla_backend.compilation import device

if TYPE_CHECKING:
    from playground.server.metrics import Metrics
    from xla_backend import BackendProcess
    from xla_backend.checkpoints.added_models import AddedModels
    from xla_backend.process.request_log import FinishedRequest

ENDS_WITHIN_S = 3.0
"""Seconds that the clean-up after SIGTERM may take: containers are killed soon afterwards."""
_CANNOT_LISTEN = {
    errno.EADDRINUSE: "another program listens there; end it, or choose another --port",
    errno.EACCES: "that needs an administrator; choose a --port from 1024 on",
    errno.EADDRNOTAVAIL: "this machine has no such address; choose another --host",
    socket.EAI_NONAME: "nothing has this name; choose another --host",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves the page until it is told to end; returns the exit status."""
    flags = flags_from(arguments)
    # Containers end with SIGTERM; as an exception it runs the same clean-up.
    signal.signal(signal.SIGTERM, _end)
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    # This process only reads tokenizers, which need no PyTorch.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    # Some Spaces switch on this downloader, which the Hub's client no longer has and warns about.
    os.environ["HF_HUB_ENABLE_HF_TRANSFER"] = "0"
    backend: BackendProcess | None = None
    metrics: Metrics | None = None
    try:
        ensure_temporary_folder()
        reach_directly(flags.host)
        check_port(flags.host, flags.port)
        if flags.metrics:
            from playground.server.metrics import Metrics

            metrics = Metrics()
        if flags.max_context:
            os.environ[CONTEXT_VARIABLE] = flags.max_context  # also for the engine's process
        if flags.device:
            os.environ[device.VARIABLE] = flags.device
        added = added_models(flags)
        backend = start_engine(flags, opened_logs(flags, metrics), added)
        serve(backend, flags, metrics, added)
    except KeyboardInterrupt:
        return 0
    except BackendError as error:
        print(error, file=sys.stderr)
        return 1
    except Exception as error:  # also of libraries: the reader wants one sentence
        where = f"{in_address(flags.host)}:{flags.port}"
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        print(f"The page cannot be served at {where}: {reason}", file=sys.stderr)
        return 1
    finally:
        if backend is not None:
            backend.close()
    return 0


def _end(*_: object) -> None:
    """Ends the program through its clean-up, or after a time without it."""
    timer = threading.Timer(ENDS_WITHIN_S, os._exit, (0,))
    timer.daemon = True
    timer.start()
    sys.exit(0)


def ensure_temporary_folder() -> None:
    """Uses /dev/shm if none of the usual temporary folders can be written.

    Raises:
        OSError: that cannot be written, either.
    """
    try:
        tempfile.gettempdir()
    except FileNotFoundError:  # a container whose root is read-only
        os.environ["TMPDIR"] = "/dev/shm"
        try:
            tempfile.gettempdir()
        except FileNotFoundError:
            raise OSError(
                "no temporary folder can be written to; name one in the variable TMPDIR"
            ) from None


def reach_directly(host: str) -> None:
    """Exempts this machine's addresses from proxies: at launch Gradio requests its own page."""
    exempt = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    names = [*filter(None, [exempt]), "localhost", "127.0.0.1", "::1", host]
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(names)


def in_address(host: str) -> str:
    """A host as it stands in a URL; that of this machine for all of its addresses."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{host}]" if ":" in host else host


def check_port(host: str, port: int) -> None:
    """Checks that the page can listen there, before anything slow starts.

    Raises:
        OSError: it cannot.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family):
            pass
    except OSError as error:
        raise OSError(_CANNOT_LISTEN.get(error.errno or 0, str(error))) from None


def opened_logs(
    flags: argparse.Namespace, metrics: Metrics | None
) -> dict[str, Callable[[FinishedRequest], None]]:
    """What is called with each request that has ended, by name: logs, in a file or on stdout ("-"),
    and metrics.

    Raises:
        OSError: a file cannot be written.
    """
    from xla_backend.process.request_log import RequestLog, TraceLog

    watchers: dict[str, Callable[[FinishedRequest], None]] = {}
    if path := flags.log_requests:
        log = sys.stdout if path == "-" else Path(path).open("a", encoding="utf-8")  # noqa: SIM115
        watchers[f"The request log {path}"] = RequestLog(log).write
    if path := flags.trace_file:
        watchers[f"The trace {path}"] = TraceLog(Path(path)).write
    if metrics:
        watchers["/metrics"] = metrics.observe
    return watchers


def start_engine(
    flags: argparse.Namespace,
    watchers: Mapping[str, Callable[[FinishedRequest], None]],
    added: AddedModels | None,
) -> BackendProcess:
    """Starts the engine's process, without waiting for it.

    Args:
        flags: visitors can name no other folders than those in `flags.models`.
        watchers: called with each request that has ended, by name.
        added: further models.

    Raises:
        ModelUnavailable: one of `flags.models` is unknown.
    """
    from playground import examples_for
    from xla_backend.checkpoints.models import first_model, folder_info, open_registry
    from xla_backend.process.backend_process import BackendProcess
    from xla_backend.process.memory import DEFAULT_KV_MEMORY, DEFAULT_LIMIT, DEFAULT_PREFIX_STORE
    from xla_backend.process.request_log import Watchers

    registry = open_registry(flags.models, added, flags.weights, flags.activations, flags.kernels)
    for name in flags.models:
        registry.check(name)
    first = first_model(flags.models)
    info = next((model for model in registry.list() if model.name == first), None)
    return BackendProcess(
        registry,
        default_model=first,
        store=flags.store,
        warm_up=examples_for(info or folder_info(first))[0].options,
        memory_limit=flags.memory_limit or DEFAULT_LIMIT,
        kv_memory=flags.kv_memory or DEFAULT_KV_MEMORY,
        prefix_store=flags.prefix_store or DEFAULT_PREFIX_STORE,
        on_request=Watchers(watchers) if watchers else None,
        limits=flags.limits.queue,
    )


def added_models(flags: argparse.Namespace) -> AddedModels | None:
    """The models added on the page, in a file beside the store; None on public pages and if the
    list is fixed."""
    from xla_backend.checkpoints.added_models import FILE_NAME, AddedModels
    from xla_backend.compilation.store import chosen_folder, default_folder

    if not flags.admin or flags.is_public or flags.models:
        return None
    return AddedModels((chosen_folder(flags.store) or default_folder()) / FILE_NAME)


def serve(
    backend: BackendProcess,
    flags: argparse.Namespace,
    metrics: Metrics | None,
    added: AddedModels | None,
) -> None:
    """Builds the page, serves it and waits."""
    # Gradio's default is one folder for all users of a machine, which the first one owns.
    files = tempfile.TemporaryDirectory(prefix="xla-playground-", ignore_cleanup_errors=True)
    os.environ.setdefault("GRADIO_TEMP_DIR", files.name)
    from playground import create_app, launch_options

    # Gradio uses a name that Starlette has renamed, which is of no use to the reader.
    warnings.filterwarnings("ignore", message="'HTTP_422_UNPROCESSABLE_ENTITY' is deprecated")
    # On Spaces every request comes through Hugging Face's proxy, which sets the client's address.
    app = create_app(
        backend,
        flags.models,
        admin=flags.admin,
        limits=flags.limits,
        behind_proxy=flags.on_spaces,
        added=added,
        inspector=backend.inspector,
    )
    try:
        app.launch(
            # In brackets, Gradio also finds its own page.
            server_name=f"[{flags.host}]" if ":" in flags.host else flags.host,
            server_port=flags.port,
            share=flags.share,
            prevent_thread_lock=True,
            quiet=True,
            mcp_server=flags.mcp,
            **launch_options(
                app,
                flags.password,
                flags.on_spaces,
                flags.cors,
                metrics,
                flags.hosts,
                flags.root_path,
            ),
        )
        print(f"The page is at http://{in_address(flags.host)}:{flags.port}", flush=True)
        if app.share_url:
            print(f"and, for three days at most, at {app.share_url}", flush=True)
        backend.read_ahead()
        threading.Event().wait()
    finally:
        backend.close()  # first: it answers waiting requests, whose connections then close
        files.cleanup()  # before Gradio's end, which may hang
        app.close(verbose=False)


if __name__ == "__main__":
    sys.exit(main())
