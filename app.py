"""Entry point: flags, then the engine's process, then the page.

Knows the command line, the environment and the order in which things start. Must not know what is
on the page or how text is generated. Heavy imports happen inside functions, Gradio's only after the
engine's process has been started: TensorFlow loads there while Gradio loads here.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playground.limits import Limits
    from xla_backend import BackendProcess
    from xla_backend.request_log import RequestLog
    from xla_backend.serving.cluster_backend import ClusterBackend

DEFAULT_PORT = 7860
ENDS_WITHIN_S = 3.0
"""Seconds that the clean-up after SIGTERM may take: containers are killed soon afterwards."""
BACKENDS = ("process", "ray")
LIMIT_FLAGS = {
    "waiting": ("--max-waiting", "100", "60", "requests that may wait at once, of all visitors"),
    "waiting_each": ("--max-waiting-each", "100", "8", "of these, how many of one program"),
    "new_tokens": ("--max-new-tokens", "1024", "512", "tokens that one request may ask for"),
    "prompt_bytes": ("--max-prompt-bytes", "65536", "16384", "bytes of a prompt"),
    "audio_s": ("--max-audio-seconds", "600", "600", "seconds of a recording"),
}
"""Name in `Limits`: flag, default, default where strangers come, meaning."""


class NoService(Exception):
    """The engines that the page shall use are not there; the text says what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves the page until it is told to end; returns the exit status."""
    flags = flags_from(arguments)
    # A container is ended with SIGTERM; as an exception it passes through the same clean-up.
    signal.signal(signal.SIGTERM, _end)
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    # Some Spaces switch it on: a downloader that is not among our requirements, and that cannot go
    # on with a file where a download broke off.
    os.environ["HF_HUB_ENABLE_HF_TRANSFER"] = "0"
    backend = None
    try:
        check_port(flags.host, flags.port)
        if flags.backend == "ray":
            backend = connect_engines(flags.ray_address)
        else:
            log = opened_log(flags.log_requests)
            backend = start_engine(flags.models, flags.store, flags.memory_limit, log)
        serve(backend, flags)
    except KeyboardInterrupt:
        return 0
    except NoService as error:
        print(error, file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        where = f"{flags.host}:{flags.port}"
        print(f"The page cannot be served at {where}: {error}", file=sys.stderr)
        return 1
    finally:
        if backend is not None:
            backend.close()
    return 0


def _end(*_: object) -> None:
    """Ends the program through its clean-up, or without: Gradio waits for open connections."""
    timer = threading.Timer(ENDS_WITHIN_S, os._exit, (0,))
    timer.daemon = True
    timer.start()
    sys.exit(0)


def flags_from(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The flags, with what the environment says in place of those that are not given."""
    from xla_backend.memory import DEFAULT_LIMIT, limit_from

    parser = _parser()
    flags = parser.parse_args(arguments)
    if flags.mcp and importlib.util.find_spec("mcp") is None:
        parser.error("--mcp needs more packages: pip install -r requirements-mcp.txt")
    if flags.backend not in BACKENDS:  # argparse does not look at defaults
        parser.error(f"PLAYGROUND_BACKEND must be process or ray, not {flags.backend!r}.")
    if flags.backend == "ray" and importlib.util.find_spec("ray") is None:
        parser.error("--backend ray needs more packages: pip install -r requirements-ray.txt")
    if flags.backend == "ray" and flags.log_requests:
        parser.error("--log-requests works with --backend process: Ray Serve logs requests itself.")
    try:
        limit_from(flags.memory_limit or DEFAULT_LIMIT, of=None)
    except ValueError as error:
        parser.error(str(error))
    if flags.mcp and flags.password:
        parser.error("--mcp cannot have a --password: Gradio's tools for agents do not send one on")
    return flags


def check_port(host: str, port: int) -> None:
    """Raises OSError when the page could not listen there, before anything slow has begun."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family):
        pass


def opened_log(path: str) -> RequestLog | None:
    """Where a line about each request goes: a file that is added to, "-" for stdout, "" for none.

    Raises:
        OSError: the file cannot be written.
    """
    from xla_backend.request_log import RequestLog

    if not path:
        return None
    return RequestLog(sys.stdout if path == "-" else Path(path).open("a", encoding="utf-8"))


def start_engine(
    models: Sequence[str],
    store: str | None,
    memory_limit: str = "",
    log: RequestLog | None = None,
) -> BackendProcess:
    """Starts the engine's process, without waiting for it.

    Args:
        models: what may be used: bundled names, Hub ids, folders; empty for the default list. A
            page is open to strangers, so no folder can be named that is not among them.
        store: the folder that keeps compiled functions, "off" for none, None for the default one.
        memory_limit: what the engine's process may hold, as `xla_backend.memory.limit_from` takes
            it; empty for the default.
        log: is told of each request that has ended.
    """
    from playground import DEFAULTS
    from xla_backend.memory import DEFAULT_LIMIT
    from xla_backend.process import BackendProcess
    from xla_backend.serving.settings import first_model, open_registry

    return BackendProcess(
        open_registry(tuple(models)),
        default_model=first_model(models),
        store=store,
        warm_up=DEFAULTS,
        memory_limit=memory_limit or DEFAULT_LIMIT,
        on_request=log.write if log else None,
    )


def connect_engines(address: str) -> ClusterBackend:
    """Finds the engines that run on Ray Serve.

    Raises:
        NoService: there are none at this address.
    """
    from xla_backend import BackendError
    from xla_backend.serving.cluster_backend import ClusterBackend

    try:
        return ClusterBackend.connect(address)
    except BackendError as error:
        raise NoService(str(error)) from error


def serve(backend: BackendProcess | ClusterBackend, flags: argparse.Namespace) -> None:
    """Builds the page, serves it and waits."""
    from playground import create_app, launch_options

    # Gradio uses a name that Starlette has renamed; whoever reads this terminal cannot help it.
    warnings.filterwarnings("ignore", message="'HTTP_422_UNPROCESSABLE_ENTITY' is deprecated")
    # On Spaces every request comes through Hugging Face's proxy, which says who asks.
    app = create_app(
        backend,
        flags.models,
        admin=is_admin(flags),
        limits=limits_of(flags),
        behind_proxy=flags.on_spaces,
    )
    try:
        app.launch(
            server_name=flags.host,
            server_port=flags.port,
            share=flags.share,
            prevent_thread_lock=True,
            quiet=True,
            mcp_server=flags.mcp,
            **launch_options(app, flags.password, behind_proxy=flags.on_spaces),
        )
        shown_host = "127.0.0.1" if flags.host == "0.0.0.0" else flags.host
        print(f"The page is at http://{shown_host}:{flags.port}", flush=True)
        if app.share_url:
            print(f"and, for three days at most, at {app.share_url}", flush=True)
        threading.Event().wait()
    finally:
        backend.close()  # first: what waits for it is answered, and its connections close
        app.close(verbose=False)


def limits_of(flags: argparse.Namespace) -> Limits:
    """What each visitor may ask for: narrower where strangers come, and as the flags say."""
    from playground.limits import PUBLIC_LIMITS, Limits

    given = {name: getattr(flags, name) for name in LIMIT_FLAGS if getattr(flags, name) is not None}
    return replace(PUBLIC_LIMITS if flags.on_spaces or flags.share else Limits(), **given)


def is_admin(flags: argparse.Namespace) -> bool:
    """Whether the page gets the tabs that change the engine for everybody.

    Where strangers come (on Spaces, through a public link), only when that is said expressly.
    """
    return not (flags.on_spaces or flags.share) if flags.admin is None else flags.admin


def _parser() -> argparse.ArgumentParser:
    on_spaces = os.environ.get("SYSTEM") == "spaces" or "SPACE_ID" in os.environ
    parser = argparse.ArgumentParser(
        prog="app.py",
        description="Serves the playground. Every flag has an environment variable.",
    )
    parser.add_argument(
        "--host",
        default=_variable("PLAYGROUND_HOST", "GRADIO_SERVER_NAME")
        or ("0.0.0.0" if on_spaces else "127.0.0.1"),
        help="address to listen on, 0.0.0.0 for all (GRADIO_SERVER_NAME or, before it, "
        "PLAYGROUND_HOST; default: %(default)s)",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=_variable("PLAYGROUND_PORT", "GRADIO_SERVER_PORT") or str(DEFAULT_PORT),
        help="port to listen on (GRADIO_SERVER_PORT or, before it, PLAYGROUND_PORT; "
        "default: %(default)s)",
    )
    parser.add_argument(
        "--models",
        type=_names,
        default=os.environ.get("PLAYGROUND_MODELS", ""),
        metavar="NAME,NAME",
        help="models to offer, the first one chosen: bundled names, Hub ids or folders "
        "(PLAYGROUND_MODELS; default: all that are known)",
    )
    parser.add_argument(
        "--store",
        default=os.environ.get("PLAYGROUND_STORE"),
        metavar="FOLDER",
        help="folder that keeps compiled functions (PLAYGROUND_STORE, where off means none; "
        "default: XLA_BACKEND_STORE, or else the user's cache directory)",
    )
    parser.add_argument(
        "--no-store",
        dest="store",
        action="store_const",
        const="off",
        help="keep no compiled functions (PLAYGROUND_STORE=off)",
    )
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default=_variable("PLAYGROUND_BACKEND") or "process",
        help="where engines run: in a process of this program, or as replicas on Ray Serve, with "
        "models and store of their own; needs requirements-ray.txt (PLAYGROUND_BACKEND; default: "
        "process)",
    )
    parser.add_argument(
        "--ray-address",
        default=_variable("PLAYGROUND_RAY_ADDRESS") or "auto",
        metavar="ADDRESS",
        help="with --backend ray, the cluster: HOST:PORT, or auto for the one that runs on this "
        "machine (PLAYGROUND_RAY_ADDRESS; default: auto)",
    )
    parser.add_argument(
        "--memory-limit",
        default=os.environ.get("PLAYGROUND_MEMORY_LIMIT", ""),
        metavar="AMOUNT",
        help="what the engine's process may hold before it is replaced: 3GB, 60%% of the machine's "
        "or the container's memory, off (PLAYGROUND_MEMORY_LIMIT; default: 60%%)",
    )
    parser.add_argument(
        "--log-requests",
        default=os.environ.get("PLAYGROUND_LOG_REQUESTS", ""),
        metavar="FILE",
        help="file that gets a line of JSON for each request, without its text; - for stdout "
        "(PLAYGROUND_LOG_REQUESTS; default: none)",
    )
    parser.add_argument(
        "--share",
        action="store_true",
        default=os.environ.get("PLAYGROUND_SHARE", "").lower() in ("1", "true", "yes"),
        help="also make a public link through Gradio's servers (PLAYGROUND_SHARE=1)",
    )
    parser.add_argument(
        "--admin",
        action=argparse.BooleanOptionalAction,
        default=_switch(os.environ.get("PLAYGROUND_ADMIN")),
        help="whether visitors may make shapes ready and forget them, for everybody "
        "(PLAYGROUND_ADMIN=1 or 0; default: yes, but not on Spaces and not with --share)",
    )
    parser.add_argument(
        "--mcp",
        action="store_true",
        default=os.environ.get("PLAYGROUND_MCP", "").lower() in ("1", "true", "yes"),
        help="also offer the endpoints to agents as MCP tools, at /gradio_api/mcp/; needs "
        "requirements-mcp.txt (PLAYGROUND_MCP=1)",
    )
    parser.add_argument(
        "--password",
        default=os.environ.get("PLAYGROUND_PASSWORD", ""),
        help="what visitors and programs must know; the variable keeps it out of the list of "
        "processes (PLAYGROUND_PASSWORD; default: none)",
    )
    for name, (flag, default, in_public, meaning) in LIMIT_FLAGS.items():
        variable = f"PLAYGROUND_{flag[2:].replace('-', '_').upper()}"
        parser.add_argument(
            flag,
            dest=name,
            type=_at_least_one,
            default=os.environ.get(variable) or None,
            metavar="N",
            help=f"{meaning} ({variable}; default: {default}, on Spaces and with --share "
            f"{in_public})",
        )
    parser.set_defaults(on_spaces=on_spaces)
    return parser


def _variable(*names: str) -> str:
    """The first of these environment variables that is set to something, or else nothing."""
    return next(filter(None, map(os.environ.get, names)), "")


def _switch(text: str | None) -> bool | None:
    return None if not text else text.lower() in ("1", "true", "yes")


def _at_least_one(text: str) -> int:
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is not a whole number from 1 on")
    return number


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


if __name__ == "__main__":
    sys.exit(main())
