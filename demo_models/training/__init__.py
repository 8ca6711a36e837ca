"""The recipes that trained the demo models, and what scores the finished folders.

Knows Transformers' TensorFlow models and Keras 2, which lie in the baseline overlay and nowhere
else. Must not be imported by the page or the engine: whoever imports it sees the overlay from then
on, and so an older Transformers.
"""

from __future__ import annotations

import os

from xla_backend.baselines import overlay

overlay.use()  # here, before any module of this package imports what lies in it
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
