"""Limits for chat templates: programs in Jinja's sandbox, which bounds neither time nor memory.

Knows what a template may take. Must not know messages or tokens. A template cannot be ended from
outside its thread, so a trace function looks at each line of it; what one operation alone could
take is looked for beforehand.
"""

from __future__ import annotations

import contextlib
import functools
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

LONGEST_S = 1.0
"""Seconds of processor time."""
MOST_BYTES = 2**28
"""What this process may grow by meanwhile."""
LARGEST_NUMBER = 100_000
"""Largest whole number in a template; Jinja's sandbox bounds a range likewise."""
_LOOK_AFTER_S = 0.02
"""Most templates have ended before their memory is looked at: that takes longer than a line."""


class TooMuch(Exception):
    """A template takes more time or memory than it may."""


@functools.lru_cache
def check(template: str) -> None:
    """Looks for operations that could take all memory at once.

    Raises:
        TooMuch: there is one.
        jinja2.TemplateSyntaxError: it is no template.
    """
    from jinja2 import Environment, nodes
    from transformers.utils.chat_template_utils import _compile_jinja_template

    parser: Environment = _compile_jinja_template("").environment  # with Transformers' own tags
    parsed = parser.parse(template)
    products = list(parsed.find_all(nodes.Mul))
    numbers = (node.value for node in parsed.find_all(nodes.Const) if isinstance(node.value, int))
    if (
        any(number > LARGEST_NUMBER for number in numbers)
        or any(product.find(nodes.Mul) for product in products)
        or parsed.find(nodes.Pow)
    ):
        raise TooMuch("it multiplies by more than a template needs")


@contextlib.contextmanager
def limits() -> Iterator[None]:
    """Ends templates that the block renders where they take too much.

    Raises:
        TooMuch: one does.
    """
    began, most = time.thread_time(), _bytes() + MOST_BYTES

    def look(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != "<template>":
            return None
        passed = time.thread_time() - began
        if passed > LONGEST_S:
            raise TooMuch(f"it runs for more than {LONGEST_S:g} s")
        if passed > _LOOK_AFTER_S and _bytes() > most:
            raise TooMuch(f"it takes more than {MOST_BYTES // 2**20} MB")
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        yield
    finally:
        sys.settrace(before)


def _bytes() -> int:
    """What this process holds; 0 where only Linux could say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return 0
