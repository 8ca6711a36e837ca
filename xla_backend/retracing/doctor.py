"""`diagnose`: finds in another process why the second of two calls made TensorFlow trace again."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from xla_backend.baselines import overlay
from xla_backend.checkpoints.models import Registry
from xla_backend.child_process import calling
from xla_backend.child_process.parent_side import search_path
from xla_backend.compilation.startup import ENVIRONMENT
from xla_backend.retracing.question import GENERATE, Findings, Trial

NICENESS = 10  # the engine goes first


def diagnose(question: Trial) -> Findings:
    """Tries both calls, and each change alone; takes some seconds, for `generate` a minute or two.

    Raises:
        InvalidRequest: the file does not define what it must.
        BaselineMissing: `generate` needs Transformers' TensorFlow models, which are not installed.
        EngineStopped: the process failed.
    """
    is_generate = question.function == GENERATE
    variables = overlay.environment(search_path()) if is_generate else ENVIRONMENT
    with tempfile.TemporaryDirectory() as dumps:
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_dump_to={dumps} --xla_dump_hlo_as_text"
        findings: Findings = calling.started(
            "xla_backend.retracing.trying:find",
            *(question, Path(dumps), Registry()),
            niceness=NICENESS,
            variables={**variables, "XLA_FLAGS": flags},
        ).answer()
    return findings
