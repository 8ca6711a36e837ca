"""The flags of `app.py`: one table for the parser, its help and the environment variables.

Knows the command line, the environment and which flags exclude each other. Must not know their use;
imports neither Gradio nor TensorFlow.
"""

import argparse
import importlib.util
import ipaddress
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from playground.context.limits import PUBLIC_LIMITS, Limits
from xla_backend.checkpoints import kinds
from xla_backend.checkpoints.architectures.positions import LONGEST_CONTEXT
from xla_backend.compilation import device
from xla_backend.compilation.startup import is_on
from xla_backend.interface.errors import InvalidRequest
from xla_backend.process.memory import (
    DEFAULT_KV_MEMORY,
    DEFAULT_LIMIT,
    DEFAULT_PREFIX_STORE,
    limit_from,
)


@dataclass(frozen=True)
class Flag:
    name: str
    help: str  # its meaning, its environment variable, its default
    default: object = ""  # the value if neither the flag nor its variable is given
    on_spaces: object = None  # the default on Spaces
    before: str = ""  # another program's variable, used if ours is not set
    how: Mapping[str, Any] = field(default_factory=dict)  # further arguments for argparse

    @property
    def variable(self) -> str:
        """The environment variable; an empty value counts as not set."""
        words = self.name.removeprefix("--").removeprefix("no-")
        return f"PLAYGROUND_{words.replace('-', '_').upper()}"

    def add_to(self, parser: argparse.ArgumentParser, on_spaces: bool) -> None:
        """Adds it to the parser, with the environment's value as its default."""
        default = self.default if not on_spaces or self.on_spaces is None else self.on_spaces
        if given := os.environ.get(self.variable) or os.environ.get(self.before):
            default = given
            if self.how.get("action") in _SWITCHES:
                try:
                    default = is_on(given)
                except ValueError as error:
                    parser.error(f"{self.variable}: {error}")
        parser.add_argument(self.name, default=default, help=self.help, **self.how)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _models(text: str) -> tuple[str, ...]:
    """Names and paths; a comma in a path that exists separates nothing."""
    names, parts = [], text.split(",")
    while parts:
        joined = (",".join(parts[:most]).strip() for most in range(len(parts), 1, -1))
        is_path = os.path.exists  # unlike Path's, also for texts that are too long for one
        name = next(filter(is_path, joined), parts[0].strip())
        parts = parts[name.count(",") + 1 :]
        names.append(name)
    return tuple(filter(None, names))


def _at_least_one(text: str) -> int:
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is not a whole number of at least 1")
    return number


def _limit(name: str, flag: str, meaning: str) -> Flag:
    usual, public = (f"{getattr(limits, name):g}" for limits in (Limits(), PUBLIC_LIMITS))
    variable = Flag(flag, "").variable
    help_text = f"{meaning} ({variable}; default: {usual}, on Spaces and with --share {public})"
    return Flag(flag, help_text, None, how={"dest": name, "type": _at_least_one, "metavar": "N"})


_SWITCHES = ("store_true", argparse.BooleanOptionalAction)
LIMIT_FLAGS = (
    _limit("waiting", "--max-waiting", "waiting requests of all visitors together"),
    _limit("waiting_each", "--max-waiting-each", "waiting requests of one program"),
    _limit("new_tokens", "--max-new-tokens", "new tokens of one request"),
    _limit("prompt_bytes", "--max-prompt-bytes", "bytes of a prompt"),
    _limit("audio_s", "--max-audio-seconds", "seconds of a recording"),
)
FLAGS = (
    Flag(
        "--host",
        "address to listen on, 0.0.0.0 for all (GRADIO_SERVER_NAME or, before it, "
        "PLAYGROUND_HOST; default: %(default)s)",
        "127.0.0.1",
        on_spaces="0.0.0.0",
        before="GRADIO_SERVER_NAME",
    ),
    Flag(
        "--port",
        "port to listen on (GRADIO_SERVER_PORT or, before it, PLAYGROUND_PORT; "
        "default: %(default)s)",
        7860,
        before="GRADIO_SERVER_PORT",
        how={"type": int},
    ),
    Flag(
        "--models",
        "models to offer, the first one selected: bundled names, Hub ids or folders "
        "(PLAYGROUND_MODELS; default: all known models)",
        how={"type": _models, "metavar": "NAME,NAME"},
    ),
    Flag(
        "--store",
        "folder of compiled functions (PLAYGROUND_STORE, where off means none; "
        "default: XLA_BACKEND_STORE, or else the user's cache directory)",
        None,
        how={"metavar": "FOLDER"},
    ),
    Flag(
        "--no-store",
        "save no compiled functions (PLAYGROUND_STORE=off)",
        how={"dest": "store", "action": "store_const", "const": "off"},
    ),
    Flag(
        "--max-context",
        "bound on the tokens of prompt and text, for models with longer contexts "
        "(PLAYGROUND_MAX_CONTEXT; default: XLA_BACKEND_MAX_CONTEXT, or else "
        f"{LONGEST_CONTEXT}, which is the maximum)",
        how={"metavar": "TOKENS"},
    ),
    Flag(
        "--weights",
        "format of weights in memory: auto, as in the checkpoint; float32; bfloat16 or int8, to "
        "which wider ones are rounded (PLAYGROUND_WEIGHTS; default: XLA_BACKEND_WEIGHTS, or else "
        "auto)",
        how={"metavar": "KIND"},
    ),
    Flag(
        "--activations",
        "exact, or int8: products with weights of 8 or fewer bits also round activations, "
        "which is faster and changes some tokens (PLAYGROUND_ACTIVATIONS; default: "
        "XLA_BACKEND_ACTIVATIONS, or else exact)",
        how={"metavar": "KIND"},
    ),
    Flag(
        "--kernels",
        "what computes: own, machine code of our own; xla, XLA alone, on any device; auto, own "
        "where it can run (PLAYGROUND_KERNELS; default: XLA_BACKEND_KERNELS, or else auto)",
        how={"metavar": "KIND"},
    ),
    Flag(
        "--device",
        "cpu; gpu:0, NVIDIA's first GPU; auto, a GPU if TensorFlow can use one (PLAYGROUND_DEVICE; "
        "default: XLA_BACKEND_DEVICE, or else auto)",
        how={"metavar": "DEVICE"},
    ),
    Flag(
        "--memory-limit",
        "memory of the engine's process before it is replaced: 3GB, 60%% of the machine's or the "
        "container's memory, off (PLAYGROUND_MEMORY_LIMIT; default: 60%%)",
        how={"metavar": "AMOUNT"},
    ),
    Flag(
        "--kv-memory",
        "memory of all models' keys and values, of running requests and cached prefixes: 1GB, 5%% "
        "of the memory (PLAYGROUND_KV_MEMORY; default: 1GB)",
        how={"metavar": "AMOUNT"},
    ),
    Flag(
        "--log-requests",
        "file that gets a line of JSON for each request, without its text; - for stdout "
        "(PLAYGROUND_LOG_REQUESTS; default: none)",
        how={"metavar": "FILE"},
    ),
    Flag(
        "--prefix-store",
        "disk space for cached prefixes, which survive a restart: 2GB, off "
        "(PLAYGROUND_PREFIX_STORE; default: 2GB, on Spaces off)",
        how={"metavar": "AMOUNT"},
    ),
    Flag(
        "--trace-file",
        "file for a trace of all requests for ui.perfetto.dev, without their texts; an earlier "
        "file is replaced (PLAYGROUND_TRACE_FILE; default: none)",
        how={"metavar": "FILE"},
    ),
    Flag(
        "--metrics",
        "offer /metrics to Prometheus, behind the password if there is one (PLAYGROUND_METRICS=1; "
        "default: no)",
        False,
        how={"action": "store_true"},
    ),
    Flag(
        "--share",
        "also make a public link through Gradio's servers (PLAYGROUND_SHARE=1)",
        False,
        how={"action": "store_true"},
    ),
    Flag(
        "--admin",
        "whether visitors may compile and clear shapes and add models, which affects everybody "
        "(PLAYGROUND_ADMIN=1 or 0; needs a --password where others reach --host; default: yes "
        "where allowed, but not on Spaces and not with --share)",
        None,
        how={"action": argparse.BooleanOptionalAction},
    ),
    Flag(
        "--mcp",
        "also offer the endpoints to agents as MCP tools, at /gradio_api/mcp/; needs "
        "requirements-mcp.txt (PLAYGROUND_MCP=1)",
        False,
        how={"action": "store_true"},
    ),
    Flag(
        "--password",
        "password for visitors and programs; the variable keeps it out of the list of processes "
        "(PLAYGROUND_PASSWORD; default: none)",
    ),
    Flag(
        "--allowed-hosts",
        "names of this server beside local ones, numbers and --host, such as "
        "playground.example.com or *.example.com, or * for any (PLAYGROUND_ALLOWED_HOSTS; "
        "default: on Spaces SPACE_HOST, else none)",
        (),
        how={"type": _names, "metavar": "NAME,NAME"},
    ),
    Flag(
        "--root-path",
        "path under which a proxy offers the page and the API, such as /llm "
        "(PLAYGROUND_ROOT_PATH; default: GRADIO_ROOT_PATH, or else none)",
        before="GRADIO_ROOT_PATH",
        how={"type": lambda path: f"/{path.strip('/')}".rstrip("/"), "metavar": "PATH"},
    ),
    Flag(
        "--cors",
        "origins of other web pages that may use the API at /v1, such as "
        "https://chat.example.com, or * for all (PLAYGROUND_CORS; default: none)",
        (),
        how={"type": _names, "metavar": "ORIGIN,ORIGIN"},
    ),
    *LIMIT_FLAGS,
)


def is_local(host: str) -> bool:
    """Whether only programs on this machine reach an address to listen on."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def flags_from(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The flags, with the environment's values for those that are not given.

    `is_public` is whether strangers have access, on Spaces and through a public link. The defaults
    of `admin` and `limits` (of each visitor) are then strict. `is_guarded` is whether nobody else
    has access, because of a password or because nobody else reaches the address. `hosts` are this
    server's names.

    Raises:
        SystemExit: they are invalid or exclude each other; stderr has the sentence.
    """
    on_spaces = os.environ.get("SYSTEM") == "spaces" or "SPACE_ID" in os.environ
    parser = argparse.ArgumentParser(
        description="Serves the playground. Every flag has an environment variable."
    )
    for flag in FLAGS:
        flag.add_to(parser, on_spaces)
    flags = parser.parse_args(arguments, argparse.Namespace(on_spaces=on_spaces))
    flags.host = flags.host.strip("[]")  # as IPv6 addresses stand in a browser's address
    flags.is_public = on_spaces or flags.share
    flags.is_guarded = bool(flags.password) or (is_local(flags.host) and not flags.is_public)
    if problem := _problem(flags):
        parser.error(problem)
    flags.hosts = (
        flags.host,
        *flags.allowed_hosts,
        *_names(os.environ.get("SPACE_HOST", "")),
        *(("*.gradio.live",) if flags.share else ()),
    )
    if on_spaces and not flags.prefix_store:
        flags.prefix_store = "off"
    if flags.admin is None:
        flags.admin = flags.is_guarded and not flags.is_public
    bounds = {bound.name: getattr(flags, bound.name) for bound in fields(Limits)}
    given = {name: value for name, value in bounds.items() if value is not None}
    flags.limits = replace(PUBLIC_LIMITS if flags.is_public else Limits(), **given)
    return flags


def _problem(flags: argparse.Namespace) -> str:
    """The reason why these flags are invalid, as a sentence; empty if they are valid."""
    if not 0 < flags.port < 2**16:
        return f"--port is {flags.port}; a port is a number from 1 to {2**16 - 1}"
    if flags.mcp and importlib.util.find_spec("mcp") is None:
        return (
            "--mcp needs more packages: pip install -r requirements-mcp.txt, or xla-playground[mcp]"
        )
    if flags.admin and not flags.is_guarded:
        where = "a public page" if flags.is_public else f"--host {flags.host}"
        return (
            f"--admin on {where} would let everybody who reaches it add models and clear "
            "functions: set PLAYGROUND_PASSWORD, or leave --admin out"
        )
    if flags.mcp and flags.password:
        return "--mcp cannot have a --password: Gradio's tools for agents do not forward one"
    try:
        limit_from(flags.memory_limit or DEFAULT_LIMIT, of=None)
        limit_from(flags.kv_memory or DEFAULT_KV_MEMORY, of=None)
        limit_from(flags.prefix_store or DEFAULT_PREFIX_STORE, of=None)
        kinds.chosen(flags.weights)
        kinds.chosen_activations(flags.activations)
        kinds.known_kernels(flags.kernels)
        device.check(flags.device)
    except (ValueError, InvalidRequest) as error:
        return str(error)
    return ""
