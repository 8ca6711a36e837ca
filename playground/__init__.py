"""The web page, on Gradio: `create_app` builds it, `launch_options` are for serving it.

Knows only the engine's interface and plain values; never imports TensorFlow or Transformers.
Importing this package does not import Gradio yet, because the engine's process starts first.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from playground.settings.examples import examples_for

if TYPE_CHECKING:
    from playground.page import create_app, launch_options

__all__ = ["create_app", "examples_for", "launch_options"]


def __getattr__(name: str) -> Any:
    """Imports the page when one of its functions is first used."""
    if name in ("create_app", "launch_options"):
        with _without_stub_files():
            from playground import page

        return getattr(page, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@contextlib.contextmanager
def _without_stub_files() -> Iterator[None]:
    """Lets Gradio think that its components have no files.

    For each of 80 components it would parse its file, to write a `.pyi` beside it for editors: 40%
    of the time of importing Gradio, and nothing that serving a page needs.
    """
    find = inspect.getfile

    def find_other(thing: Any) -> str:
        if isinstance(thing, type) and thing.__module__.startswith("gradio."):
            raise OSError("not looked for")
        return find(thing)

    inspect.getfile = find_other  # type: ignore[assignment]
    try:
        yield
    finally:
        inspect.getfile = find
