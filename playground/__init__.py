"""The web page, on Gradio: `create_app` builds it, `launch_options` are for serving it.

Knows only the engine's interface and plain values; never imports TensorFlow or Transformers.
Importing this package does not import Gradio yet, because the engine's process starts first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from playground.tabs.generate.examples import examples_for

if TYPE_CHECKING:
    from playground.page import create_app, launch_options

__all__ = ["create_app", "examples_for", "launch_options"]


def __getattr__(name: str) -> Any:
    """Imports the page when one of its functions is first used."""
    if name in ("create_app", "launch_options"):
        from playground import page

        return getattr(page, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
