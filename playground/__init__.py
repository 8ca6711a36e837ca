"""The web page, on Gradio: `create_app` builds it, `launch_options` is what serving it needs.

Knows the engine's interface and plain values only; never imports TensorFlow or Transformers.
"""

from __future__ import annotations

from playground.page import create_app, launch_options

__all__ = ["create_app", "launch_options"]
