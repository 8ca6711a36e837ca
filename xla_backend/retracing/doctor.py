"""`diagnose`: finds in another process why the second of two calls made TensorFlow trace again.

Knows the process and its environment. Must not import TensorFlow, nor know what is tried.
"""

from __future__ import annotations

import tempfile

from xla_backend.baselines import overlay
from xla_backend.checkpoints.models import Registry
from xla_backend.child_process.parent_side import ChildProcess, search_path
from xla_backend.compilation.startup import ENVIRONMENT
from xla_backend.retracing.question import GENERATE, Findings, Question

MODULE = "xla_backend.retracing.retracing_process"


def diagnose(question: Question) -> Findings:
    """Tries both calls, and each change alone; takes some seconds, for `generate` a minute or two.

    Raises:
        InvalidRequest: the file does not define what it must.
        BaselineMissing: `generate` needs Transformers' TensorFlow models, which are not installed.
        EngineStopped: the process failed.
    """
    is_generate = question.function == GENERATE
    variables = overlay.environment(search_path()) if is_generate else ENVIRONMENT
    with tempfile.TemporaryDirectory() as dumps:
        first = (question, Registry(), dumps)
        findings: Findings = ChildProcess(MODULE, first, variables).answer()
    return findings
